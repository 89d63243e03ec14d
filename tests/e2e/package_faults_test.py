"""What the authors' package gets wrong around its algorithm (F3, F4, F7 to F11) must not happen here, on real processes.

F1 and F2 are claims about plans, tested in batching; F5, F6 and F9 stand in conduct_test, faults_test and gradient_test.
"""

import json
import os
import signal

import harness


class PackageFaults(harness.Case):
    def setUp(self):
        super().setUp()
        self.socket = self.path("s")
        self.files = []

    def write(self, count, bad=(), line=b""):
        """Another file of `count` conversations; those at the positions `bad` are replaced by `line`."""
        path = self.path("part%d.jsonl" % len(self.files))
        harness.write_corpus(path, count, seed=len(self.files) + 5)
        with open(path, "rb") as data:
            lines = data.read().splitlines()
        for position in bad:
            lines[position] = line
        with open(path, "wb") as data:
            data.writelines(one + b"\n" for one in lines)
        self.files.append(path)
        return path

    def flags(self, *more, views=False):
        """One view per file, if wanted."""
        config = self.path("odbd.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("data: %s\ntoken_budget: 1024\nwindow: 32\n" % json.dumps(self.files))
            if views:
                out.write("views:\n" + "".join("  - sources: [%d]\n" % i for i in range(len(self.files))))
        return ["--config", config, "--socket", self.socket, *more]

    def serve(self, flags):
        daemon = self.start([harness.program("odbd"), *flags], log="odbd.log")
        return daemon, self.env(ODB_SOCKET=self.socket)

    def stop(self, daemon):
        daemon.terminate()
        self.finish(daemon, log="odbd.log")
        self.assert_nothing_left()

    def quarantine(self):
        return self.odbctl(self.socket, "quarantine", "list")

    def test_f3_uneven_views_end_at_the_quota_and_not_in_a_crash(self):
        self.write(200)
        self.write(60)
        ranks = self.train(2, self.flags("--termination", "non-join", views=True))
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 2 * 60)

    def test_f4_samples_that_count_nothing_are_listed_and_steps_stay_equal(self):
        empty = json.dumps({"messages": [{"role": "user", "content": "q"},
                                         {"role": "assistant", "content": "a", "weight": 0}]}).encode()
        self.write(200, bad=range(0, 200, 5), line=empty)
        daemon, env = self.serve(self.flags("--max-bad-share", "1"))
        self.finish(self.start(self.launcher(2, {}), env=env))
        ranks = self.results(2)
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 160)
        self.assertIn("40 no_loss_tokens", self.quarantine())
        self.stop(daemon)

    def test_f7_one_bad_record_ends_nothing_and_is_named(self):
        bad = self.write(100, bad=[41], line=b'{"messages": [')
        self.write(100)
        daemon, env = self.serve(self.flags(views=True))
        self.finish(self.start(self.launcher(2, {}), env=env))
        ranks = self.results(2)
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 199)
        self.assertIn("%s:42 " % os.path.basename(bad), self.quarantine())
        self.stop(daemon)

    def test_f7b_the_reason_reaches_every_trainer(self):
        bad = self.write(100, bad=range(50, 70), line=b'{"messages": [')
        self.write(100)
        ranks = self.train(2, self.flags(views=True), {"expect_error": True})
        for rank in ranks:
            self.assertIn("max_bad_share", rank["error"]["text"])
            self.assertIn("invalid_json", rank["error"]["text"])
            self.assertIn(os.path.basename(bad) + ":", rank["error"]["text"])

    def test_f7c_records_without_the_wanted_keys_are_no_quiet_empty_epoch(self):
        self.write(200, bad=range(200), line=b'{"text": "no conversation"}')
        ranks = self.train(1, self.flags(), {"expect_error": True})
        self.assertIn("none of the 200 records", ranks[0]["error"]["text"])
        self.assertIn("unknown_format", ranks[0]["error"]["text"])

    def test_f8_a_short_rank_exits_without_a_barrier_and_the_long_one_gets_everything(self):
        self.write(600)
        self.write(20)
        ranks = self.train(2, self.flags("--scope", "rank", views=True), {"idle": "skip", "random_sleep_ms": 10})
        self.assertNotIn("error", ranks[0])
        self.assert_each_once(ranks, 620)
        long, short = (rank["epochs"][0]["steps"] for rank in ranks)
        self.assertEqual(len(self.ids(ranks[1:])), 20)
        self.assertLess(short[-1]["index"], long[-1]["index"] // 2, "the short rank had something to do to the end")
        self.assert_nothing_left()

    def test_f10_a_break_leaves_no_process_and_no_memory(self):
        self.write(300)
        daemon, env = self.serve(self.flags())
        process = self.start(self.launcher(2, {"break_at": {"0": 5, "1": 5}, "mark_at": 2}), env=env)
        for rank in range(2):
            mark = self.path("out.%d.mark" % rank)
            harness.wait_until("the mark of rank %d" % rank, lambda: os.path.exists(mark), 60)
        self.assertEqual(len(harness.children_named(self.mark, "odb-aligner")), 2)
        self.assertTrue(harness.arenas_of(daemon.pid))
        for rank in range(2):
            with open(self.path("out.%d.mark" % rank), encoding="utf-8") as mark:
                os.kill(int(harness.wait_until("a pid in the mark", mark.read)), signal.SIGCONT)
        self.finish(process)
        self.assertEqual([len(r["epochs"][0]["steps"]) for r in self.results(2)], [5, 5])
        harness.wait_until("odbd to be the only process", lambda: harness.processes_with(self.mark) == [daemon.pid])
        harness.wait_until("the shared memory to be gone", lambda: not harness.arenas_of(daemon.pid))
        self.stop(daemon)

    def test_f11_a_busy_store_of_torchrun_disturbs_nothing(self):
        self.write(300)
        command = self.launcher(2, {"calls": 1500}, torch=True, script="store_trainer.py")
        self.finish(self.start(self.odbrun(self.flags(), command)))
        ranks = self.results(2)
        self.assertEqual([r["calls"] for r in ranks], [1500, 1500])
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 300)


if __name__ == "__main__":
    harness.main()
