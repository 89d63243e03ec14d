"""What lies in a batch, through real processes and PyTorch: types, padding, buckets, extra tensors, of tokenized data."""

import json
import math
import random

import harness

VOCABULARY = 1000
BUCKETS = [16, 40, 64]
BUDGET = 256
EXTRAS = """
extra_tensors:
  - {name: weights, dtype: float32, shape: [length], pad_value: -1}
  - {name: boxes, dtype: int32, shape: [-1, 2], layout: concatenate}
  - {name: grid, dtype: uint8, shape: [-1, 3], layout: pad, pad_value: 7}
  - {name: score, dtype: bfloat16, shape: []}
"""


def write_tokenized(path, count):
    """Tokenized records of 2 to 64 tokens, by the byte at which each begins."""
    source = random.Random(7)
    records = {}
    with open(path, "w", encoding="utf-8") as out:
        for i in range(count):
            length = source.randint(2, 64)
            ids = [source.randrange(1, VOCABULARY) for _ in range(length)]
            record = {"input_ids": ids, "weights": [j + 0.5 for j in range(length)],
                      "boxes": [[i, j] for j in range(source.randint(0, 3))],
                      "grid": [[j, j + 1, j + 2] for j in range(source.randint(0, 4))], "score": source.randint(0, 8) / 4}
            if i % 3:
                record["labels"] = [-100] * (length // 2) + ids[length // 2:]
            records[out.tell()] = record
            out.write(json.dumps(record) + "\n")
    return records


class Tensors(harness.Case):
    def serve(self, world, settings, count):
        records = write_tokenized(self.path("data.jsonl"), count)
        config = self.path("odbd.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("data: %s\nformat: tokenized\ntoken_budget: %d\nwindow: 32\nlog_level: warn\n" % (
                json.dumps(self.path("data.jsonl")), BUDGET))
            out.write(settings)
        command = self.launcher(world, {"vocabulary": VOCABULARY}, script="tensors_trainer.py")
        self.finish(self.start(self.odbrun(["--config", config], command)))
        ranks = self.results(world)
        seen = [key for rank in ranks for step in rank["steps"] for _, key in step["ids"]]
        self.assertEqual(sorted(seen), sorted(records))
        return records, ranks

    def rows(self, records, step):
        return [records[key] for _, key in step["ids"]]

    def check_matrix(self, step, name, dtype, rows, padding, left):
        tensor = step["tensors"][name]
        self.assertEqual(tensor["dtype"], dtype)
        self.assertTrue(tensor["aligned"])
        length = tensor["shape"][1]
        padded = [[padding] * (length - len(row)) + row if left else row + [padding] * (length - len(row)) for row in rows]
        self.assertEqual(tensor["values"], padded)
        return length

    def check_probes(self, ranks):
        """What came before training was the same on all ranks, and as large as anything that came later."""
        probes = ranks[0]["probes"]
        self.assertGreater(len(probes), 0)
        for rank in ranks:
            self.assertEqual([{n: t["shape"] for n, t in p["tensors"].items()} for p in rank["probes"]],
                             [{n: t["shape"] for n, t in p["tensors"].items()} for p in probes])
            for probe in rank["probes"]:
                self.assertTrue(probe["probe"])
                self.assertEqual((probe["ids"], probe["loss_scale"]), ([], 0))
            for step in rank["steps"]:
                for name, tensor in step["tensors"].items():
                    self.assertEqual(tensor["dtype"], probes[0]["tensors"][name]["dtype"])
                    self.assertLessEqual(math.prod(tensor["shape"]),
                                         max(math.prod(p["tensors"][name]["shape"]) for p in probes), name)
                    for axis, size in enumerate(tensor["shape"]):
                        self.assertLessEqual(size, max(p["tensors"][name]["shape"][axis] for p in probes), name)

    def check_loss(self, step):
        """The labels that cost something are those that loss_scale counts."""
        self.assertAlmostEqual(step["loss"] / math.log(VOCABULARY), step["loss_tokens"], places=2)

    def test_defaults(self):
        records, ranks = self.serve(1, "", 60)
        self.check_probes(ranks)
        for step in ranks[0]["steps"]:
            rows = self.rows(records, step)
            self.assertEqual(list(step["tensors"]), ["input_ids", "labels", "attention_mask"])
            self.check_matrix(step, "input_ids", "torch.int64", [r["input_ids"] for r in rows], 0, left=False)
            self.check_matrix(step, "labels", "torch.int64", [r.get("labels", r["input_ids"]) for r in rows], -100, left=False)
            self.check_matrix(step, "attention_mask", "torch.int64", [[1] * len(r["input_ids"]) for r in rows], 0, left=False)
            self.check_loss(step)

    def test_small_types_left_padding_buckets_and_extras(self):
        settings = "ids_dtype: int32\nmask: bool\npadding_side: left\nposition_ids: int64\npad_token_id: 999\nshape_buckets: %s\n%s" % (BUCKETS, EXTRAS)
        # The second rank has no records, so all that it gets is stand-ins.
        records, ranks = self.serve(2, settings + "scope: rank\nviews: [{sources: [0]}, {sources: []}]\n", 100)
        self.check_probes(ranks)
        lengths, idle = set(), 0
        for rank in ranks:
            self.assertEqual(rank["pad_token_id"], 999)
            for step in rank["steps"]:
                lengths.add(self.check_step(records, step))
                idle += step["idle"]
        self.assertLessEqual(lengths, set(BUCKETS))
        self.assertGreater(len(lengths), 1)
        self.assertEqual(idle, len(ranks[1]["steps"]))

    def check_step(self, records, step):
        tensors = step["tensors"]
        self.assertEqual(list(tensors), ["input_ids", "labels", "attention_mask", "position_ids", "weights", "boxes",
                                         "boxes_offsets", "grid", "score"])
        if step["idle"]:
            self.assertTrue(step["stand_in"])
            self.assertEqual(step["loss_scale"], 0)
            self.assertGreater(step["loss"], 0)
            # One of the first records, found by its ids, which are padded on the left as well.
            mask = tensors["attention_mask"]["values"][0]
            ids = [i for i, real in zip(tensors["input_ids"]["values"][0], mask) if real]
            rows = [r for r in records.values() if r["input_ids"] == ids]
            self.assertEqual(len(rows), 1)
        else:
            rows = self.rows(records, step)
            self.assertTrue(step["padded_tokens"] <= BUDGET or len(rows) == 1)
            self.check_loss(step)
        ids = [r["input_ids"] for r in rows]
        # The first label would be predicted from padding.
        labels = [[-100] + r.get("labels", r["input_ids"])[1:] for r in rows]
        length = self.check_matrix(step, "input_ids", "torch.int32", ids, 999, left=True)
        self.check_matrix(step, "labels", "torch.int64", labels, -100, left=True)
        self.check_matrix(step, "attention_mask", "torch.bool", [[True] * len(i) for i in ids], False, left=True)
        self.check_matrix(step, "position_ids", "torch.int64", [list(range(len(i))) for i in ids], 0, left=True)
        self.check_matrix(step, "weights", "torch.float32", [r["weights"] for r in rows], -1.0, left=True)
        self.check_extras(tensors, rows)
        return length

    def check_extras(self, tensors, rows):
        boxes, offsets = tensors["boxes"], tensors["boxes_offsets"]
        self.assertEqual((boxes["dtype"], offsets["dtype"]), ("torch.int32", "torch.int64"))
        self.assertEqual(boxes["values"], [box for r in rows for box in r["boxes"]])
        self.assertEqual(boxes["shape"], [sum(len(r["boxes"]) for r in rows), 2])
        for row, record in enumerate(rows):
            begin, end = offsets["values"][row:row + 2]
            self.assertEqual(boxes["values"][begin:end], record["boxes"])
        grid = tensors["grid"]
        longest = max(len(r["grid"]) for r in rows)
        self.assertEqual(grid["dtype"], "torch.uint8")
        self.assertEqual(grid["shape"], [len(rows), longest, 3])
        self.assertEqual(grid["values"], [r["grid"] + [[7, 7, 7]] * (longest - len(r["grid"])) for r in rows])
        self.assertEqual(tensors["score"]["dtype"], "torch.bfloat16")
        self.assertEqual(tensors["score"]["values"], [r["score"] for r in rows])

    def test_a_record_that_does_not_fit_is_named_and_the_rest_is_served(self):
        path = self.path("data.jsonl")
        good = json.dumps({"input_ids": [1, 2, 3], "weights": [1, 2, 3]})
        bad = [json.dumps({"input_ids": [1, 2, 3], "weights": [1, 2]}), json.dumps({"input_ids": [1, 2, -3], "weights": [1, 2, 3]}),
               json.dumps({"input_ids": [1, 2, 3]})]
        with open(path, "w", encoding="utf-8") as out:
            out.write("\n".join([good] * 20 + bad) + "\n")
        socket = self.path("sock")
        flags = ["--data", path, "--format", "tokenized", "--socket", socket, "--max-bad-share", "1", "--log-level", "warn",
                 "--extra-tensors", "[{name: weights, dtype: float32, shape: [length]}]"]
        daemon = self.start([harness.program("odbd"), *flags], log="daemon")
        command = self.launcher(1, {"vocabulary": VOCABULARY}, script="tensors_trainer.py")
        self.finish(self.start(command, env=self.env(ODB_SOCKET=socket)))

        self.assertEqual(sum(len(s["ids"]) for s in self.results(1)[0]["steps"]), 20)
        listed = self.odbctl(socket, "quarantine", "list")
        self.assertIn("data.jsonl:21 (byte 940) bad_tensor: weights has 2 entries, not 3", listed)
        self.assertIn("data.jsonl:22", listed)
        self.assertIn('bad_tensor: input_ids[2] is "-3", not a token id from 0 to 2147483647', listed)
        self.assertIn("bad_tensor: there is no weights", listed)
        daemon.terminate()
        self.finish(daemon, log="daemon")


if __name__ == "__main__":
    harness.main()
