"""What trainers may do: pause, break, disagree, run beside another job."""

import os

import harness


class Conduct(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("data.jsonl")
        harness.write_corpus(self.data, 240)
        self.flags = ["--data", self.data, "--token-budget", "1024", "--window", "32", "--log-level", "info"]

    def test_f5_a_pause_of_three_exchange_timeouts_restarts_nothing(self):
        flags = self.flags + ["--exchange-timeout", "1s", "--socket", self.path("s")]
        options = {"pause_rank": 1, "pause_at": 4, "pause_s": 3.5, "mark_at": 8}
        process = self.start(self.odbrun(flags, self.launcher(2, options)))
        marks = [self.path("out.%d.mark" % r) for r in range(2)]
        harness.wait_until("both marks", lambda: all(map(os.path.exists, marks)), 60)
        status = self.odbctl(self.path("s"), "status", "-w", "json")
        for mark in marks:
            with open(mark, encoding="utf-8") as handle:
                os.kill(int(handle.read()), 18)
        self.finish(process)
        self.assert_each_once(self.results(2), 240)
        import json
        job = json.loads(status)["jobs"][0]
        self.assertEqual(int(job.get("aligner_restarts", 0)), 0)
        self.assertEqual(int(job["generation"]), 1)

    def test_break_on_all_ranks_at_the_same_step(self):
        ranks = self.train(2, self.flags, {"epochs": 2, "break_at": {"0": 3, "1": 3}})
        self.assertEqual([len(r["epochs"][0]["steps"]) for r in ranks], [3, 3])
        self.assert_same_steps(ranks, 1)
        self.assert_each_once(ranks, 240, 1)

    def test_who_has_looked_at_the_next_step_breaks_like_the_others(self):
        options = {"epochs": 2, "break_at": {"0": 3, "1": 3}, "look_ahead": {"0": True}}
        ranks = self.train(2, self.flags, options)
        self.assertEqual([len(r["epochs"][0]["steps"]) for r in ranks], [3, 3])
        self.assert_same_steps(ranks, 1)
        self.assert_each_once(ranks, 240, 1)

    def test_break_at_different_steps_is_one_error_that_names_ranks_and_values(self):
        options = {"epochs": 2, "break_at": {"0": 3, "1": 4}, "expect_error": True}
        ranks = self.train(2, self.flags, options)
        texts = [r["error"]["text"] for r in ranks]
        self.assertEqual(texts[0], texts[1])
        # Rank 1 may be told while it still waits for its fourth step, above all if that is one of another round.
        self.assertRegex(texts[0], "rank 0 took 3 steps.*rank 1 took (4 steps|3 steps and asks for another)")

    def test_two_jobs_on_one_node(self):
        other = self.path("other.jsonl")
        harness.write_corpus(other, 150, seed=9)
        first = self.start(self.odbrun(self.flags, self.launcher(2, {}, out="a")), log="a.log")
        second = self.start(self.odbrun(["--data", other, "--token-budget", "512"],
                                        self.launcher(2, {}, out="b")), log="b.log")
        self.finish(first, log="a.log")
        self.finish(second, log="b.log")
        self.assert_each_once(self.results(2, "a"), 240)
        self.assert_each_once(self.results(2, "b"), 150)

    def test_two_jobs_on_one_daemon_after_each_other(self):
        socket = self.path("s")
        daemon = self.start([harness.program("odbd"), *self.flags, "--socket", socket], log="odbd.log")
        for out, world in (("a", 2), ("b", 3)):
            process = self.start(self.launcher(world, {}, out=out), env=self.env(ODB_SOCKET=socket), log=out + ".log")
            self.finish(process, log=out + ".log")
            self.assert_each_once(self.results(world, out), 240)
        said = self.odbctl(socket, "coverage")
        self.assertIn("240 of 240", said)
        daemon.terminate()
        self.finish(daemon, log="odbd.log")
        self.assertFalse(os.path.exists(socket))
        self.assert_nothing_left()

    def test_the_exit_code_of_the_command_is_odbruns(self):
        process = self.start(self.odbrun(self.flags, ["sh", "-c", "exit 23"]))
        self.finish(process, expect=23)
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
