"""Token ids of indexed corpora, read in place out of their mapped files: through real processes, and a file that is cut meanwhile."""

import array
import os
import random
import signal
import struct

import harness

VOCABULARY = 1000
TYPES = {"int32": ("i", 4), "uint16": ("H", 8)}  # array's letter, the index's code


def write_corpus(prefix, kind, count):
    """An indexed corpus of 2 to 64 tokens a sequence, as Megatron-LM writes it; ids by the byte at which each begins."""
    letter, code = TYPES[kind]
    source = random.Random(5)
    records, lengths, offsets = {}, [], []
    with open(prefix + ".bin", "wb") as out:
        for i in range(count):
            ids = [source.randrange(1, VOCABULARY) for _ in range(source.randint(2, 64))]
            if i % 4 == 0:
                ids[-1] = 0  # as a cut file ends
            offsets.append(out.tell())
            lengths.append(len(ids))
            records[offsets[-1]] = ids
            out.write(array.array(letter, ids).tobytes())
    with open(prefix + ".idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, count, 2))
        index.write(struct.pack("<%di" % count, *lengths) + struct.pack("<%dq" % count, *offsets) + struct.pack("<2q", 0, count))
    return records


class Corpus(harness.Case):
    def flags(self):
        return ["--data", self.path("corpus.idx"), "--token-budget", "256", "--window", "64", "--log-level", "warn"]

    def test_every_sequence_arrives_as_it_lies_in_the_file(self):
        for kind in TYPES:
            with self.subTest(kind):
                records = write_corpus(self.path("corpus"), kind, 600)
                command = self.launcher(2, {"vocabulary": VOCABULARY}, script="tensors_trainer.py")
                self.finish(self.start(self.odbrun(self.flags(), command)))
                seen = []
                for step in (step for rank in self.results(2) for step in rank["steps"]):
                    rows = zip(step["ids"], step["tensors"]["input_ids"]["values"], step["tensors"]["labels"]["values"])
                    for (_, key), ids, labels in rows if not step["idle"] else ():
                        seen.append(key)
                        length = len(records[key])
                        self.assertEqual(ids[:length], records[key])
                        self.assertEqual(labels[:length], records[key])
                        self.assertTrue(all(label == -100 for label in labels[length:]))
                self.assertEqual(sorted(seen), sorted(records))

    def test_a_file_that_is_cut_ends_the_job_in_a_sentence_that_names_it(self):
        write_corpus(self.path("corpus"), "int32", 4000)
        process = self.start(self.odbrun(self.flags(), self.launcher(1, {"mark_at": 3, "expect_error": True})))
        mark = self.path("out.0.mark")
        harness.wait_until("the mark", lambda: os.path.exists(mark), 60)
        os.truncate(self.path("corpus.bin"), 0)
        with open(mark, encoding="utf-8") as handle:
            os.kill(int(handle.read()), signal.SIGCONT)
        self.finish(process, expect=None)
        error = self.results(1)[0]["error"]["text"]
        self.assertIn(self.path("corpus.idx"), error)
        self.assertIn("was cut, or can no longer be read", error)
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
