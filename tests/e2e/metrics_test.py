"""What Prometheus reads: the same as the status and as the trainers counted, and counters that never go down."""

import json
import os
import re
import urllib.request

import harness

COUNT = 400
SAMPLE = re.compile(r'^(odbd_\w+)(?:\{([^}]*)\})? (\S+)$')


def scrape(address):
    """Every sample by (name, labels), as floats; and the names of counters."""
    with urllib.request.urlopen("http://%s/metrics" % address, timeout=20) as answer:
        text = answer.read().decode()
    counters = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and line.endswith(" counter")}
    matches = filter(None, map(SAMPLE.match, text.splitlines()))
    return {(m[1], m[2] or ""): float(m[3]) for m in matches}, counters


class Metrics(harness.Case):
    def test_metrics_status_and_trainers_agree(self):
        data = self.path("data.jsonl")
        harness.write_corpus(data, COUNT)
        with open(data, "a", encoding="utf-8") as out:
            out.write("no record\n")
        socket = self.path("sock")
        flags = ["--data", data, "--token-budget", "512", "--window", "16", "--socket", socket, "--metrics", "127.0.0.1:0",
                 "--max-bad-share", "0.1"]
        daemon = self.start([harness.program("odbd"), *flags], log="daemon")
        harness.wait_until("odbd to answer", lambda: os.path.exists(socket), 30)
        address = harness.wait_until("the address in the status",
                                     lambda: json.loads(self.odbctl(socket, "status", "-w", "json")).get("metrics"), 30)
        self.assertIn("metrics  at http://%s/metrics" % address, self.odbctl(socket, "status"))

        trainers = self.start(self.launcher(2, {}), env=self.env(ODB_SOCKET=socket), log="trainers")
        before, scrapes = {}, 0
        while trainers.poll() is None:
            seen, counters = scrape(address)
            for key, value in seen.items():
                if key[0] in counters:
                    self.assertGreaterEqual(value, before.get(key, 0), key)
            before.update(seen)
            scrapes += 1
        self.finish(trainers, log="trainers")
        self.assertGreater(scrapes, 3)

        ranks = self.results(2)
        self.assert_each_once(ranks, COUNT)
        harness.wait_until("a snapshot after the end",
                           lambda: scrape(address)[0].get(("odbd_samples_emitted_total", 'stream="train"')) == COUNT, 20)
        seen, _ = scrape(address)
        ledger = json.loads(self.odbctl(socket, "status", "-w", "json"))["ledger"]
        for name in ("read", "emitted", "quarantined"):
            self.assertEqual(seen["odbd_samples_%s_total" % name, 'stream="train"'], int(ledger.get(name, 0)), name)
        self.assertEqual(seen["odbd_samples_quarantined_total", 'stream="train"'], 1)
        self.assertEqual(seen["odbd_records", 'stream="train"'], COUNT + 1)
        for rank in ranks:
            labels = 'job="1",stream="train",rank="%d"' % rank["rank"]
            # The last look was up to a snapshot's age before the trainers' end, and the job goes with them.
            steps = before["odbd_rank_steps_total", labels]
            self.assertTrue(0 < steps <= len(rank["epochs"][0]["steps"]), steps)
        daemon.terminate()
        self.finish(daemon, log="daemon")


if __name__ == "__main__":
    harness.main()
