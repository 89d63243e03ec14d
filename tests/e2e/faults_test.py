"""kill -9 of each kind of process: what the others see, and that nothing is left."""

import os
import signal

import harness


class Faults(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("data.jsonl")
        self.socket = self.path("s")
        harness.write_corpus(self.data, 400)
        self.flags = ["--data", self.data, "--token-budget", "512", "--window", "32", "--socket", self.socket]

    def run_to_mark(self, world=2, options=None, extra=()):
        """A run whose ranks have all stopped themselves after a few steps."""
        options = {"mark_at": 4, "expect_error": True, **(options or {})}
        process = self.start(self.odbrun(self.flags, self.launcher(world, options, extra=extra)))
        marks = [self.path("out.%d.mark" % r) for r in range(world)]
        harness.wait_until("all marks; log: " + self.path("log"), lambda: all(map(os.path.exists, marks)), 90)
        pids = []
        for mark in marks:
            with open(mark, encoding="utf-8") as handle:
                pids.append(int(harness.wait_until("a pid in the mark", handle.read)))
        return process, pids

    def resume(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def test_f6_a_killed_aligner_is_replaced_and_nothing_is_lost(self):
        process, pids = self.run_to_mark()
        victims = harness.children_named(self.mark, "odb-aligner")
        self.assertEqual(len(victims), 2)
        os.kill(victims[0], signal.SIGKILL)
        self.resume(pids)
        self.finish(process)
        ranks = self.results(2)
        self.assertNotIn("error", ranks[0])
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 400)
        self.assert_nothing_left()

    def test_f6_a_killed_trainer_is_named_to_the_others_and_the_daemon_stays(self):
        process, pids = self.run_to_mark(world=3, extra=("--keep-going",))
        os.kill(pids[1], signal.SIGKILL)
        self.resume([pids[0], pids[2]])
        harness.wait_until("results of the survivors", lambda: all(
            os.path.exists(self.path("out.%d.json" % r)) for r in (0, 2)), 60)
        self.finish(process, expect=137)
        import json
        for rank in (0, 2):
            with open(self.path("out.%d.json" % rank), encoding="utf-8") as handle:
                error = json.load(handle)["error"]["text"]
            self.assertIn("rank 1", error)
            self.assertIn(str(pids[1]), error)
        self.assert_nothing_left()

    def test_a_killed_daemon_is_one_clear_error_and_nothing_is_left(self):
        process, pids = self.run_to_mark()
        daemon = harness.children_named(self.mark, "odbd")
        self.assertEqual(len(daemon), 1)
        self.assertTrue(harness.arenas_of(daemon[0]))
        os.kill(daemon[0], signal.SIGKILL)
        harness.wait_until("the aligners to end", lambda: not harness.children_named(self.mark, "odb-aligner"))
        self.finish(process, expect=69)
        self.assert_nothing_left()
        self.assertFalse([n for n in os.listdir("/dev/shm") if "odb" in n])

    def test_a_killed_odbrun_leaves_nothing(self):
        process, pids = self.run_to_mark()
        process.kill()
        process.wait(30)
        self.resume([p for p in pids if os.path.exists("/proc/%d" % p)])
        self.assert_nothing_left()

    def test_a_killed_daemon_leaves_a_socket_that_the_next_one_repairs(self):
        daemon = self.start([harness.program("odbd"), *self.flags], log="odbd.log")
        harness.wait_until("the socket", lambda: os.path.exists(self.socket))
        self.odbctl(self.socket, "health", expect=None)
        daemon.kill()
        daemon.wait(30)
        self.assertTrue(os.path.exists(self.socket))
        again = self.start(self.launcher(1, {"mark_at": 400}), env=self.env(ODB_SOCKET=self.socket), log="trainer.log")
        second = self.start([harness.program("odbd"), *self.flags], log="odbd2.log")
        self.finish(again, log="trainer.log")
        self.assert_each_once(self.results(1), 400)
        second.terminate()
        self.finish(second, log="odbd2.log")
        self.assertFalse(os.path.exists(self.socket))


if __name__ == "__main__":
    harness.main()
