"""Trainers that do not share memory with their daemon: over loopback, and from another network with a cable that breaks."""

import json
import os
import re
import signal

import harness
import networks

TOKEN = "open sesame"


class Tcp(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("data.jsonl")
        self.socket = self.path("s")

    def daemon(self, flags, before=(), **env):
        """A daemon that listens; returns its tcp:// socket."""
        self.odbd = self.start([*before, harness.program("odbd"), "--data", self.data, "--socket", self.socket, *flags],
                               env=self.env(**env), log="odbd.log")
        found = harness.wait_until("the daemon's address, log: " + self.path("odbd.log"),
                                   lambda: re.search(r"served at (tcp://\S+),", self.log("odbd.log")), 60)
        return found.group(1)

    def trainers(self, socket, world=2, options=None, before=(), torch=False, out="out", extra=(), **env):
        return self.start([*before, *self.launcher(world, options or {}, torch=torch, out=out, extra=extra)],
                          env=self.env(ODB_SOCKET=socket, **env), log="trainers.log")

    def stop(self):
        self.odbd.send_signal(signal.SIGTERM)
        self.finish(self.odbd, log="odbd.log")
        self.assert_nothing_left()

    def contents(self, ranks):
        return [[(s["ids"], s["content"], s["global"], s["loss_scale"]) for s in r["epochs"][0]["steps"]] for r in ranks]

    def test_an_epoch_is_the_same_as_with_shared_memory(self):
        harness.write_corpus(self.data, 400)
        flags = ["--token-budget", "512", "--window", "32"]
        local = self.train(2, ["--data", self.data, *flags], out="local")

        socket = self.daemon([*flags, "--listen", "127.0.0.1:0"])
        harness.wait_until("the address in the status", lambda: self.status()["listen"] == socket[len("tcp://"):])
        self.finish(self.trainers(socket, torch=True), log="trainers.log")

        ranks = self.results(2)
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 400)
        self.assertEqual(self.contents(ranks), self.contents(local))
        self.assertIn("400 of 400", self.odbctl(self.socket, "coverage"))
        # What watches the daemon may come the same way.
        self.assertIn("400 of 400", self.odbctl(socket, "coverage"))
        self.stop()

    def test_large_steps_and_a_trainer_that_sleeps(self):
        # 150 samples of about 20 000 tokens with three int64 tensors: 72 MB in steps of up to 6 MB.
        with open(self.data, "w", encoding="utf-8") as out:
            for i in range(150):
                out.write(json.dumps({"messages": [{"role": "assistant", "content": "%d " % i + "abcdefghi " * 2000}]}) + "\n")
        flags = ["--token-budget", "262144", "--window", "32", "--prefetch-steps", "2"]
        options = {"pause_at": 2, "pause_s": 5, "pause_rank": 0}
        local = self.train(2, ["--data", self.data, *flags], options, out="local")

        socket = self.daemon([*flags, "--listen", "127.0.0.1:0"])
        self.finish(self.trainers(socket, options=options), log="trainers.log")

        ranks = self.results(2)
        self.assertGreater(sum(s["local"][2] for r in ranks for s in r["epochs"][0]["steps"]) * 24, 70_000_000)
        self.assertEqual(self.contents(ranks), self.contents(local))
        self.stop()

    def test_a_killed_trainer_is_named_to_the_others(self):
        harness.write_corpus(self.data, 400)
        socket = self.daemon(["--token-budget", "512", "--window", "32", "--listen", "127.0.0.1:0"])
        process = self.trainers(socket, options={"mark_at": 4, "expect_error": True}, extra=("--keep-going",))
        pids = self.marks(2)
        os.kill(pids[1], signal.SIGKILL)
        os.kill(pids[0], signal.SIGCONT)
        self.finish(process, expect=137, log="trainers.log")
        self.assertIn("rank 1 lost its trainer: pid %d ended" % pids[1], self.error_of(0))
        self.stop()

    def test_the_token_is_wanted_and_not_shown_in_errors(self):
        harness.write_corpus(self.data, 50)
        socket = self.daemon(["--token-budget", "512", "--listen", "127.0.0.1:0"], ODB_JOB_TOKEN=TOKEN)
        for token, sentence in ((None, "none was shown: set ODB_CLIENT_TOKEN"), ("guess", "is not that of this odbd")):
            env = {} if token is None else {"ODB_CLIENT_TOKEN": token}
            self.finish(self.trainers(socket, world=1, options={"expect_error": True}, **env), log="trainers.log")
            self.assertIn(sentence, self.error_of(0))
            self.assertNotIn(TOKEN, self.error_of(0))
        self.finish(self.trainers(socket, world=1, ODB_CLIENT_TOKEN=TOKEN), log="trainers.log")
        self.assert_each_once(self.results(1), 50)
        self.stop()
        self.assertNotIn(TOKEN, self.log("odbd.log"))

    def test_off_loopback_without_a_token_the_daemon_does_not_start(self):
        harness.write_corpus(self.data, 10)
        process = self.start([harness.program("odbd"), "--data", self.data, "--socket", self.socket,
                              "--listen", "0.0.0.0:0"])
        self.finish(process, expect=78)
        self.assertIn("listen 0.0.0.0:0 can be reached from other machines, so it needs a job_token", self.log())

    def test_another_network_and_a_cable_that_breaks(self):
        try:
            net = networks.TwoNetworks(harness.environment())
        except networks.Unavailable as reason:
            print("SKIPPED: %s" % reason)
            self.skipTest(str(reason))
        self.addCleanup(net.close)
        harness.write_corpus(self.data, 400)
        flags = ["--token-budget", "512", "--window", "32", "--listen", networks.ADDRESSES[0] + ":0"]
        socket = self.daemon(flags, before=net.inside(0), ODB_JOB_TOKEN=TOKEN)

        # Out for a moment: nobody notices, each sample comes once.
        process = self.trainers(socket, options={"mark_at": 4}, before=net.inside(1), ODB_CLIENT_TOKEN=TOKEN)
        pids = self.marks(2)
        self.assertEqual({r["trainer_host"] for r in self.status()["jobs"][0]["ranks"]}, {networks.ADDRESSES[1]})
        net.cut()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        harness.wait_until("the pipelines to be ahead of the trainers", self.all_ready)
        net.restore()
        self.finish(process, log="trainers.log")
        self.assert_each_once(self.results(2), 400)

        # A trainer that dies there is only seen by its connection: lost 30 s later, by its host.
        process = self.trainers(socket, options={"mark_at": 4, "expect_error": True}, out="lost", before=net.inside(1),
                                extra=("--keep-going",), ODB_CLIENT_TOKEN=TOKEN)
        pids = self.marks(2, out="lost")
        os.kill(pids[1], signal.SIGKILL)
        os.kill(pids[0], signal.SIGCONT)
        self.finish(process, expect=137, log="trainers.log")
        self.assertIn("rank 1 lost its trainer: pid %d at %s lost its connection and did not come back"
                      % (pids[1], networks.ADDRESSES[1]), self.error_of(0, out="lost"))
        self.stop()

    def marks(self, world, out="out"):
        """Waits until all ranks have stopped themselves; their pids."""
        paths = [self.path("%s.%d.mark" % (out, r)) for r in range(world)]
        harness.wait_until("all marks; log: " + self.path("trainers.log"), lambda: all(map(os.path.exists, paths)), 90)
        pids = []
        for path in paths:
            with open(path, encoding="utf-8") as handle:
                pids.append(int(harness.wait_until("a pid in the mark", handle.read)))
        return pids

    def status(self):
        return json.loads(self.odbctl(self.socket, "status", "-w", "json"))

    def all_ready(self):
        job = self.status()["jobs"][0]
        return all(int(r.get("ready_steps", 0)) + int(r.get("held_steps", 0)) > 0 for r in job["ranks"])

    def error_of(self, rank, out="out"):
        with open(self.path("%s.%d.json" % (out, rank)), encoding="utf-8") as handle:
            return json.load(handle)["error"]["text"]


if __name__ == "__main__":
    harness.main()
