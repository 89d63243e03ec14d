"""Several streams of one daemon: an evaluation in the middle of training, and two launches at once."""

import json
import socket
import subprocess

import harness

TRAIN, EVAL = 240, 90
EVAL_WINDOW = 16


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Streams(harness.Case):
    def setUp(self):
        super().setUp()
        harness.write_corpus(self.path("train.jsonl"), TRAIN)
        harness.write_corpus(self.path("eval.jsonl"), EVAL, seed=9)
        with open(self.path("run.yaml"), "w", encoding="utf-8") as config:
            config.write("data: [%s]\ntoken_budget: 1024\nwindow: 32\nstreams:\n" % self.path("train.jsonl"))
            config.write("- {name: eval, data: [%s], align: none, order: sequential, token_budget: 2048, window: %d}\n"
                         % (self.path("eval.jsonl"), EVAL_WINDOW))
            config.write("- {name: shared, data: [%s]}\n" % self.path("eval.jsonl"))
        self.socket = self.path("s")
        self.daemon = self.start([harness.program("odbd"), "--config", self.path("run.yaml"), "--socket", self.socket],
                                 log="odbd.log")

    def tearDown(self):
        self.daemon.terminate()
        self.finish(self.daemon, log="odbd.log")
        super().tearDown()

    def launch(self, options, out="out"):
        command = self.launcher(2, {"eval_at": 4, **options}, out=out, torch=True, script="streams_trainer.py")
        # All that say --standalone meet at one port of this machine.
        at = command.index("--standalone")
        command[at:at + 1] = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:%d" % free_port(), "--rdzv_id=" + out]
        return self.start(command, env=self.env(ODB_SOCKET=self.socket), log=out + ".log")

    def assert_trained_each_once(self, ranks):
        self.assertEqual(len({len(r["train"]) for r in ranks}), 1)
        ids = [tuple(i) for r in ranks for step in r["train"] for i in step]
        self.assertEqual(len(ids), TRAIN)
        self.assertEqual(len(set(ids)), TRAIN)

    def assert_evaluated_each_once(self, evaluations):
        ids = [tuple(i) for one in evaluations for step in one["steps"] for i in step["ids"]]
        self.assertEqual(len(ids), EVAL)
        self.assertEqual(len(set(ids)), EVAL)
        return ids

    def assert_alone(self, evaluation):
        """All of it on this rank, in steps that no other rank has a part in."""
        ids = self.assert_evaluated_each_once([evaluation])
        self.assertEqual(evaluation["records"], EVAL)
        for step in evaluation["steps"]:
            self.assertEqual((step["dp_size"], step["loss_scale"], step["stand_in"]), (1, 1.0, False))
            self.assertEqual(step["local"], step["global"])
        # The window reads in the order of the file: what is in the first step lies at its start.
        first = sorted(ids)[:EVAL_WINDOW]
        for key in evaluation["steps"][0]["ids"]:
            self.assertIn(tuple(key), first)

    def jobs(self):
        return json.loads(self.odbctl(self.socket, "status", "-w", "json"))["jobs"]

    def assert_undisturbed(self, jobs, streams):
        """These streams' jobs, ended in order, and none was held up by another."""
        self.assertEqual(sorted(job["stream"] for job in jobs), sorted(streams))
        for job in jobs:
            self.assertEqual((job["state"], int(job["aligner_restarts"]), int(job["generation"])), ("ended", 0, 1), job)

    def ended_jobs(self, count):
        """The jobs of this daemon once `count` of them have ended."""
        return harness.wait_until(
            "%d ended jobs" % count,
            lambda: [jobs for jobs in [self.jobs()] if sum(j["state"] == "ended" for j in jobs) == count])[0]

    def test_an_evaluation_on_one_rank_in_the_middle_of_training(self):
        self.finish(self.launch({"eval_ranks": [0]}), log="out.log")

        ranks = self.results(2)
        self.assert_trained_each_once(ranks)
        self.assertGreater(len(ranks[0]["train"]), 4)
        self.assert_alone(ranks[0]["evaluation"])
        self.assertIsNone(ranks[1]["evaluation"])
        jobs = self.ended_jobs(2)
        self.assert_undisturbed(jobs, ["train", "eval"])
        for job in jobs:
            self.assertEqual(int(job["world_size"]), {"train": 2, "eval": 1}[job["stream"]])
        self.assertIn("epoch 0: %d of %d, each once" % (TRAIN, TRAIN), self.odbctl(self.socket, "coverage"))
        self.assertIn("eval, epoch 0: %d of %d, each once" % (EVAL, EVAL),
                      self.odbctl(self.socket, "coverage", "--stream", "eval"))
        status = json.loads(self.odbctl(self.socket, "status", "-w", "json"))
        self.assertEqual([(s["name"], s["align"]) for s in status["streams"]], [("eval", "none"), ("shared", "all")])
        self.assertEqual(int(status["ledger"]["emitted"]), TRAIN + EVAL)
        self.assertEqual(int(status["streams"][0]["ledger"]["emitted"]), EVAL)

    def test_two_ranks_evaluate_all_of_it_each(self):
        self.finish(self.launch({"eval_ranks": [0, 1]}), log="out.log")

        ranks = self.results(2)
        self.assert_trained_each_once(ranks)
        for rank in ranks:
            self.assert_alone(rank["evaluation"])
        self.assertEqual(ranks[0]["evaluation"], ranks[1]["evaluation"])
        self.assert_undisturbed(self.ended_jobs(3), ["train", "eval", "eval"])

    def test_a_stream_with_alignment_is_shared_out(self):
        self.finish(self.launch({"eval_ranks": [0, 1], "stream": "shared"}), log="out.log")

        ranks = self.results(2)
        self.assert_trained_each_once(ranks)
        evaluations = [r["evaluation"] for r in ranks]
        self.assert_evaluated_each_once(evaluations)
        self.assertEqual(*[[s["global"] for s in one["steps"]] for one in evaluations])
        self.assert_undisturbed(self.ended_jobs(2), ["train", "shared"])

    def test_two_launches_at_once_have_what_each_has_alone(self):
        launches = {out: self.launch({"eval_ranks": [0]}, out) for out in ("a", "b")}
        for out, process in launches.items():
            self.finish(process, log=out + ".log")

        for out in launches:
            ranks = self.results(2, out)
            self.assert_trained_each_once(ranks)
            self.assert_alone(ranks[0]["evaluation"])
        self.assertEqual(self.results(2, "a"), self.results(2, "b"))
        self.assert_undisturbed(self.ended_jobs(4), ["train", "train", "eval", "eval"])

    def test_a_stream_that_there_is_not_is_refused_by_name(self):
        trainer = [harness.PYTHON, "-c", "import odbd; odbd.DataLoader(stream='evl', connect_timeout=30)"]
        done = subprocess.run(trainer, env=self.env(ODB_SOCKET=self.socket), check=False, capture_output=True, text=True,
                              timeout=60)
        self.assertIn('there is no stream "evl"; this odbd serves: train, eval, shared', done.stderr)
        self.odbctl(self.socket, "coverage", "--stream", "evl", expect=1)


if __name__ == "__main__":
    harness.main()
