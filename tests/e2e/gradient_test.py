"""S20: the gradient of real DDP equals the single-process mean over tokens, in float64, norm-wise within 1e-12."""

import json

import harness


class Gradient(harness.Case):
    def check(self, world, idle, prompt=True, views=None):
        files = []
        for part, count in enumerate(views or [48]):
            files.append(self.path("part%d.jsonl" % part))
            harness.write_corpus(files[-1], count, seed=part + 3, longest=80, prompt=prompt)
        config = self.path("odbd.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write("data: %s\ntoken_budget: 512\nwindow: 16\n" % json.dumps(files))
            if views:
                out.write("scope: rank\nviews:\n" + "".join("  - sources: [%d]\n" % i for i in range(len(views))))
        command = self.launcher(world, {}, torch=True, script="gradient_trainer.py")
        self.finish(self.start(self.odbrun(["--config", config, "--log-level", "warn"], command)))
        said = self.results(1)[0]
        print("gradient: %d ranks, %d steps, %d with IDLE, worst relative difference %.2e" % (
            world, said["steps"], said["idle_steps"], said["worst"]))
        self.assertGreater(said["steps"], 2)
        self.assertEqual(said["idle_steps"] > 0, idle)
        self.assertLess(said["worst"], 1e-12)

    def test_with_masked_prompts(self):
        self.check(2, idle=False)

    def test_with_nothing_masked_but_the_template(self):
        self.check(2, idle=False, prompt=False)

    def test_f9_uneven_ranks_with_idle_steps_and_no_join(self):
        self.check(3, idle=True, views=[30, 22, 2])


if __name__ == "__main__":
    harness.main()
