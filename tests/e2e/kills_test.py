"""Aligners killed 20 times during one epoch of four ranks, every time inside a round: nothing is lost or doubled.

How a kill is known to land inside a round: the victim is stopped first, so no round can end any more. When status says
of every rank that its trainer has nothing left and its pipeline waits for a round, all offers of that round are made and
its release is not there. Only then comes SIGKILL.
"""

import json
import os
import random
import re
import signal

import harness

KILLS = 20
WORLD = 4
COUNT = 16000
SEED = 20


class Kills(harness.Case):
    def jobs(self):
        said = self.odbctl(self.socket, "status", "-w", "json", expect=None)  # nothing before odbd listens
        return json.loads(said)["jobs"] if said else []

    def job(self):
        return self.jobs()[0]

    def wait_for(self, what, condition):
        """The first status that `condition` gives something true for, and that something."""
        def look():
            job = self.job()
            self.assertNotEqual(job["state"], "failed", self.log()[-4000:])
            found = condition(job)
            return (job, found) if found else None
        return harness.wait_until(what, look, 60)

    def rounds_in_flight(self, job):
        """By rank, the round that it has offered and waits for; None unless all four wait, with nothing left to take."""
        rounds = []
        for rank in job["ranks"]:
            said = re.match(r"round (\d+) waits for ", rank.get("text", ""))
            if rank["state"] != "waiting" or rank.get("planned_steps") or rank.get("ready_steps") or not said:
                return None
            rounds.append(int(said.group(1)))
        return rounds if len(rounds) == WORLD else None

    def kill_one(self, victim, last_round):
        """Returns the round that was hit."""
        job, _ = self.wait_for("a round after %d" % last_round, lambda job: int(job["round"]) > last_round)
        pid = int(job["ranks"][victim]["aligner_pid"])
        os.kill(pid, signal.SIGSTOP)
        job, rounds = self.wait_for("all ranks to wait for a round; victim: rank %d" % victim, self.rounds_in_flight)
        self.assertEqual(int(job["ranks"][victim]["aligner_pid"]), pid, "replaced before it was killed")
        self.assertGreater(min(rounds), last_round)
        self.assertLessEqual(max(rounds) - min(rounds), 1)
        os.kill(pid, signal.SIGKILL)
        self.wait_for("another aligner and generation for rank %d" % victim, lambda now: (
            int(now["generation"]) > int(job["generation"]) and
            int(now["ranks"][victim].get("aligner_pid", 0)) not in (0, pid)))
        return min(rounds)

    def test_twenty_kills_inside_rounds_lose_and_double_nothing(self):
        data = self.path("data.jsonl")
        self.socket = self.path("s")
        harness.write_corpus(data, COUNT, longest=120)
        flags = ["--data", data, "--token-budget", "512", "--window", "16", "--prefetch-steps", "2",
                 "--max-steps-per-round", "4", "--exchange-timeout", "60s", "--socket", self.socket]
        slow = self.path("slow")  # so that the epoch outlasts the kills on any machine
        open(slow, "w").close()
        options = {"content": False, "random_sleep_ms": 40, "slow_while": slow}
        process = self.start(self.odbrun(flags, self.launcher(WORLD, options)))
        harness.wait_until("a running job", self.jobs, 60)
        choose = random.Random(SEED)
        hit = [0]
        for _ in range(KILLS):
            hit.append(self.kill_one(choose.randrange(WORLD), hit[-1]))
        job = self.job()
        os.remove(slow)
        self.finish(process)
        print("killed inside rounds %s; %s generations" % (hit[1:], job["generation"]))
        self.assertEqual(int(job["aligner_restarts"]), KILLS)
        self.assertGreater(int(job["generation"]), KILLS)
        ranks = self.results(WORLD)
        self.assert_same_steps(ranks)
        self.assert_each_once(ranks, COUNT)
        self.assertGreater(ranks[0]["epochs"][0]["steps"][-1]["round"], hit[-1], "the epoch ended before the last kill")
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
