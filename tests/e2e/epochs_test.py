"""Whole epochs through real processes: coverage, equal steps, shapes of the world."""

import json
import os

import harness


class Epochs(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("data.jsonl")
        self.flags = ["--data", self.data, "--token-budget", "1024", "--window", "64", "--log-level", "warn"]

    def check_world(self, world, torch=False):
        harness.write_corpus(self.data, 300)
        ranks = self.train(world, self.flags, torch=torch)
        self.assert_each_once(ranks, 300)
        steps = self.assert_same_steps(ranks)
        self.assertGreaterEqual(steps, 300 * 40 // (1024 * world))
        last = ranks[0]["epochs"][0]["steps"][-1]
        self.assertEqual(last["progress"], [300, 300])
        for rank in ranks:
            for step in rank["epochs"][0]["steps"]:
                self.assertTrue(step["local"][2] <= 1024 or step["local"][0] == 1, "a group above the budget")

    def test_one_rank(self):
        self.check_world(1)

    def test_two_ranks_under_torchrun(self):
        self.check_world(2, torch=True)

    def test_three_ranks(self):
        self.check_world(3)

    def test_four_ranks(self):
        self.check_world(4)

    def test_five_ranks(self):
        self.check_world(5)

    def test_seven_ranks(self):
        self.check_world(7)

    def test_eight_ranks_under_torchrun(self):
        self.check_world(8, torch=True)

    def check_replicas(self, dp_size):
        harness.write_corpus(self.data, 200)
        ranks = self.train(2 * dp_size, self.flags, {"replicas": 2})
        firsts, seconds = ranks[::2], ranks[1::2]
        for first, second in zip(firsts, seconds):
            self.assertEqual(first["epochs"], second["epochs"])
        self.assert_same_steps(firsts)
        self.assert_each_once(firsts, 200)

    def test_two_ranks_of_two_replicas_each(self):
        self.check_replicas(2)

    def test_three_ranks_of_two_replicas_each(self):
        self.check_replicas(3)

    def test_s01_uneven_epochs_with_an_empty_rank(self):
        sizes = [1000, 997, 3, 0]
        files = []
        for rank, size in enumerate(sizes[:3]):
            files.append(self.path("part%d.jsonl" % rank))
            harness.write_corpus(files[-1], size, seed=rank, longest=4000)
        config = self.path("odbd.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("data: %s\ntoken_budget: 4096\nscope: rank\nviews:\n" % json.dumps(files))
            for rank in range(3):
                out.write("  - sources: [%d]\n" % rank)
            out.write("  - sources: []\n")
        ranks = self.train(4, ["--config", config, "--log-level", "warn"], {"epochs": 2, "content": False})
        for epoch in range(2):
            self.assert_same_steps(ranks, epoch)
            self.assert_each_once(ranks, 2000, epoch)
            self.assertTrue(all(s["idle"] and s["loss_scale"] == 0 for s in ranks[3]["epochs"][epoch]["steps"]))
        self.assertNotEqual(self.ids(ranks, 0), self.ids(ranks, 1), "both epochs came in the same order")

    def test_timing_never_reaches_content(self):
        harness.write_corpus(self.data, 250)
        runs = [
            self.train(2, self.flags + ["--workers", "1"], out="one"),
            self.train(2, self.flags + ["--workers", "8"], {"random_sleep_ms": 20, "hold": 2}, out="many"),
        ]
        self.assertEqual([r["epochs"] for r in runs[0]], [r["epochs"] for r in runs[1]])

    def test_non_join_ends_at_the_quota_exactly(self):
        harness.write_corpus(self.data, 300)
        ranks = self.train(2, self.flags + ["--termination", "non-join", "--quota", "217"])
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 217)

    def test_accumulation_windows_share_their_totals(self):
        harness.write_corpus(self.data, 300)
        ranks = self.train(2, self.flags + ["--accumulation", "4"])
        steps = ranks[0]["epochs"][0]["steps"]
        self.assert_each_once(ranks, 300)
        for begin in range(0, len(steps), 4):
            window = steps[begin:begin + 4]
            summed = [sum(s["global"][i] for s in window) for i in range(5)]
            for position, step in enumerate(window):
                self.assertEqual(step["window"], [position, len(window)])
                self.assertEqual(step["window_global"], summed)

    def test_max_steps_and_max_samples_stop_all_ranks_together(self):
        harness.write_corpus(self.data, 300)
        ranks = self.train(2, self.flags, {"max_steps": 3, "epochs": 2}, out="steps")
        self.assertEqual([[len(e["steps"]) for e in r["epochs"]] for r in ranks], [[3, 3], [3, 3]])
        ranks = self.train(2, self.flags, {"max_samples": 100}, out="samples")
        seen = self.assert_same_steps(ranks)
        progress = [s["progress"][0] for s in ranks[0]["epochs"][0]["steps"]]
        self.assertGreaterEqual(progress[-1], 100)
        self.assertTrue(seen < 2 or progress[-2] < 100)

    def test_bad_records_are_quarantined_and_counted(self):
        harness.write_corpus(self.data, 200)
        with open(self.data, "ab") as out:
            out.write(b'{"messages": [\n["not", "an", "object"]\n{"messages": []}\n\xff\xfe\n')
        socket = self.path("s")
        options = {"mark_at": 2}
        process = self.start(self.odbrun(self.flags + ["--socket", socket], self.launcher(1, options)))
        harness.wait_until("the mark of rank 0", lambda: os.path.exists(self.path("out.0.mark")), 60)
        with open(self.path("out.0.mark"), encoding="utf-8") as mark:
            os.kill(int(mark.read()), 18)  # SIGCONT
        self.finish(process)
        self.assert_each_once(self.results(1), 200)


if __name__ == "__main__":
    harness.main()
