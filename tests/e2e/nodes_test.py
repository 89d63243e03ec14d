"""Two daemons with two ranks each, as two nodes: rendezvous over TCP, one plan for all four."""

import socket
import json

import harness


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nodes(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("data.jsonl")
        harness.write_corpus(self.data, 300)
        self.rendezvous = "127.0.0.1:%d" % free_port()

    def node(self, number, options=None, budget=1024):
        command = self.odbrun(
            ["--data", self.data, "--token-budget", str(budget), "--window", "64", "--rendezvous", self.rendezvous],
            self.launcher(4, options or {}, nodes=2, node=number))
        return self.start(command, log="node%d.log" % number)

    def test_four_ranks_on_two_nodes(self):
        nodes = [self.node(n) for n in range(2)]
        for number, process in enumerate(nodes):
            self.finish(process, log="node%d.log" % number)
        ranks = self.results(4)
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, 300)
        self.assert_nothing_left()

    def test_another_budget_on_the_second_node_is_refused_by_name(self):
        options = {"expect_error": True}
        nodes = [self.node(0, options), self.node(1, options, budget=2048)]
        for number, process in enumerate(nodes):
            self.finish(process, log="node%d.log" % number)
        for rank in self.results(4):
            self.assertIn("token_budget", rank["error"]["text"], json.dumps(rank["error"]))


if __name__ == "__main__":
    harness.main()
