"""Two nodes with two ranks each, in network namespaces of their own, and what happens when the cable between them goes."""

import json
import os
import re
import signal

import harness
import networks

COUNT = 400
RENDEZVOUS_PORT = 29461


class Links(harness.Case):
    topology = "flat"  # all four aligners speak with each other
    pairs = 4  # of aligners that are connected over the cable

    def setUp(self):
        super().setUp()
        try:
            self.networks = networks.TwoNetworks(harness.environment())
        except networks.Unavailable as reason:
            print("SKIPPED: %s" % reason)
            self.skipTest(str(reason))
        self.addCleanup(self.networks.close)
        self.data = self.path("data.jsonl")
        harness.write_corpus(self.data, COUNT)

    def sockets(self):
        return [self.path("s%d" % number) for number in range(2)]

    def node(self, number, exchange_timeout):
        """One node's odbd and its two trainers. Rendezvous stands where it does by default: MASTER_ADDR:29461."""
        flags = ["--data", self.data, "--token-budget", "512", "--window", "16", "--job-token", "a secret of both",
                 "--exchange-timeout", exchange_timeout, "--topology", self.topology, "--socket", self.sockets()[number]]
        command = self.launcher(4, {"mark_at": 4, "expect_error": True}, nodes=2, node=number,
                                extra=("--keep-going", "--master", networks.ADDRESSES[0]))
        return self.start([*self.networks.inside(number), *self.odbrun(flags, command)], log="node%d.log" % number)

    def run_to_marks(self, exchange_timeout):
        """Both nodes, all four trainers stopped after a few steps; returns the processes."""
        nodes = [self.node(number, exchange_timeout) for number in range(2)]
        marks = [self.path("out.%d.mark" % rank) for rank in range(4)]
        harness.wait_until("all marks, logs in " + self.dir, lambda: all(map(os.path.exists, marks)), 120)
        self.trainers = []
        for mark in marks:
            with open(mark, encoding="utf-8") as handle:
                self.trainers.append(int(harness.wait_until("a pid in the mark", handle.read)))
        # Waited for: with a short exchange_timeout the ranks may just be connecting anew.
        for number in range(2):
            interface = "%s %s" % (networks.CABLE[number], networks.ADDRESSES[number])
            harness.wait_until(interface, lambda number=number, interface=interface: interface in self.job(number)["interface"])
        harness.wait_until("%d connections between ranks" % self.pairs, lambda: self.pairs_connected() == self.pairs)
        return nodes

    def pairs_connected(self):
        connections = networks.connections_over_cable(self.trainers[0])
        return len([ports for ports in connections if RENDEZVOUS_PORT not in ports])

    def resume(self):
        for pid in self.trainers:
            os.kill(pid, signal.SIGCONT)

    def job(self, number):
        return json.loads(self.odbctl(self.sockets()[number], "status", "-w", "json"))["jobs"][0]

    def all_starve(self):
        """Whether all four trainers have taken whatever was planned before the cable went."""
        ranks = [rank for number in range(2) for rank in self.job(number)["ranks"]]
        return len(ranks) == 4 and all(
            rank["state"] == "waiting" and not int(rank.get("ready_steps", 0)) and not int(rank.get("planned_steps", 0))
            for rank in ranks)

    def generations(self, number):
        return len(re.findall(r"generation \d+ of 4 ranks on 2 nodes", self.log("node%d.log" % number)))

    def finish_all(self, nodes):
        for number, process in enumerate(nodes):
            self.finish(process, log="node%d.log" % number)
        return self.results(4)

    def assert_whole(self, ranks):
        for rank in ranks:
            self.assertNotIn("error", rank)
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, COUNT)
        self.assert_nothing_left()

    def test_a_cable_out_for_less_than_the_exchange_timeout_is_only_a_wait(self):
        nodes = self.run_to_marks("60s")
        self.networks.cut()
        self.resume()
        harness.wait_until("all trainers to starve", self.all_starve, 40)
        self.networks.restore()
        ranks = self.finish_all(nodes)
        self.assert_whole(ranks)
        for number in range(2):
            self.assertNotIn("broke", self.log("node%d.log" % number))

    def test_a_cable_out_for_longer_costs_a_generation_and_no_sample(self):
        nodes = self.run_to_marks("1s")
        before = self.generations(0)
        self.networks.cut()
        self.resume()
        harness.wait_until("the arbiter to open another generation", lambda: self.generations(0) > before, 40)
        self.networks.restore()
        self.assert_whole(self.finish_all(nodes))

    def test_a_cable_out_for_good_is_one_error_on_each_node_that_names_the_other(self):
        nodes = self.run_to_marks("2s")
        self.networks.cut()
        self.resume()
        ranks = self.finish_all(nodes)
        # Not the deadline of a trainer, which would come later and name nobody.
        self.assertEqual({rank["error"]["code"] for rank in ranks}, {"UNAVAILABLE"})
        errors = [rank["error"]["text"] for rank in ranks]
        print("named: %s | %s" % (errors[0], errors[2]))
        self.assertEqual(errors[0], errors[1])
        self.assertEqual(errors[2], errors[3])
        for error, lost in ((errors[0], ("node 1", "ranks 2, 3")), (errors[2], ("node 0", "ranks 0, 1"))):
            for part in lost:
                self.assertIn(part, error)
        self.assert_nothing_left()


class LeadersLinks(Links):
    topology = "hierarchical"  # one aligner of each node takes part between them
    pairs = 1


if __name__ == "__main__":
    harness.main()
