"""Iterating: order, ends, limits, idle steps, loss scales, and what is said about misuse."""

import gc
import os
import sys
import unittest
from fractions import Fraction

import support  # first: sets the path and the environment

import odbd


class IterationTest(support.DaemonTest):
    def test_two_epochs_come_in_order_with_their_tensors(self):
        daemon = self.daemon(steps=4, samples=2, length=3)
        loader = odbd.DataLoader(socket=daemon.socket)
        for epoch in range(2):
            loader.set_epoch(epoch)
            indices = []
            for batch in loader:
                indices.append(batch.step.index)
                first = (epoch * 100 + batch.step.index) * 1000
                self.assertEqual(list(batch), ["input_ids", "labels", "attention_mask"])
                self.assertEqual(
                    batch["input_ids"].tolist(),
                    [[first, first + 1, first + 2], [first + 3, first + 4, first + 5]],
                )
                self.assertEqual(batch["labels"][0].tolist(), [-100, -100, -100])
            self.assertEqual(indices, [0, 1, 2, 3])
        loader.close()
        daemon.wait_for("close 4")
        self.assertFalse([line for line in daemon.log if line.startswith("end_iteration")])

    def test_epochs_go_on_by_themselves(self):
        daemon = self.daemon(steps=1)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            epochs = [batch.step.epoch for _ in range(2) for batch in loader]
            loader.set_epoch(7)
            epochs += [batch.step.epoch for _ in range(2) for batch in loader]
        self.assertEqual(epochs, [0, 1, 7, 8])

    def test_the_environment_says_where_and_who(self):
        daemon = self.daemon(steps=1)
        os.environ.update(ODB_SOCKET=daemon.socket, RANK="3", WORLD_SIZE="4")
        self.addCleanup(lambda: [os.environ.pop(n) for n in ("ODB_SOCKET", "RANK", "WORLD_SIZE")])
        with odbd.DataLoader() as loader:
            self.assertEqual((loader.dp_rank, loader.dp_size), (3, 4))
        with odbd.DataLoader(replicas=2, stream="eval") as loader:
            self.assertEqual((loader.dp_rank, loader.dp_size), (1, 2))
        daemon.wait_for("open 3/4 dp 3/4 replica 0/1 train")
        daemon.wait_for("open 3/4 dp 1/2 replica 1/2 eval")

    def test_a_step_tells_its_numbers(self):
        daemon = self.daemon(steps=4, samples=2, length=8, dp_size=2, accumulation=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            self.assertEqual(loader.accumulation, 2)
            self.assertEqual(loader.estimated_steps, 5)
            self.assertEqual(loader.records, 16)
            steps = []
            for batch in loader:
                steps.append(batch.step)
                self.assertEqual(batch.sample_ids, batch.step.sample_ids)
                self.assertFalse(batch.is_stand_in)
        step = steps[2]
        self.assertEqual(step.local, odbd.Counts(2, 16, 16, 8, 0))
        self.assertEqual(step.global_.samples, 4)
        self.assertEqual(step.window_local.loss_tokens, 16)
        self.assertEqual(step.window_global.loss_tokens, 32)
        self.assertEqual(step.num_items_in_batch, 32)
        self.assertEqual([s.window_index for s in steps], [0, 1, 0, 1])
        self.assertEqual([s.is_window_end for s in steps], [False, True, False, True])
        self.assertEqual(step.epoch_fraction, Fraction(12, 16))
        self.assertEqual(step.epoch_progress, 0.75)
        self.assertEqual(step.sample_ids, (odbd.SampleId(1, 4), odbd.SampleId(1, 5)))
        self.assertIn("index=2", repr(step))

    def test_a_step_of_many_samples_has_all_their_ids(self):
        daemon = self.daemon(steps=2, samples=1000, length=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            ids = [key for batch in loader for _, key in batch.sample_ids]
        self.assertEqual(ids, list(range(2000)))

    def test_waits_are_known_by_step_and_altogether(self):
        daemon = self.daemon(steps=4, slots=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            steps = [batch.step for batch in loader]
            self.assertGreater(loader.wait_s, 0)
            self.assertGreaterEqual(loader.wait_s, loader.longest_wait_s)
            # The end was waited for, too. Each is cut to whole microseconds.
            self.assertLessEqual(sum(step.wait_s for step in steps), loader.wait_s + 1e-9)
            self.assertGreaterEqual(loader.longest_wait_s, max(step.wait_s for step in steps))
        with self.assertRaises(odbd.Error):
            loader.wait_s

    def test_without_an_estimate_there_is_none(self):
        daemon = self.daemon(estimated_steps=0)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            self.assertIsNone(loader.estimated_steps)

    def test_the_length_is_unknown_and_says_what_to_use(self):
        daemon = self.daemon(steps=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            with self.assertRaisesRegex(TypeError, "estimated_steps"):
                len(loader)
            self.assertTrue(loader)
            self.assertEqual(len(list(loader)), 2)


class ProbeTest(support.DaemonTest):
    def test_the_largest_batches_come_first_and_tell_the_daemon_nothing(self):
        daemon = self.daemon(steps=2, probes=3)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            shapes = []
            for batch in loader.probe():
                shapes.append(tuple(batch["input_ids"].shape))
                self.assertEqual(batch["input_ids"].flatten().tolist(), [3] * batch["input_ids"].numel())
                self.assertEqual(batch["boxes_offsets"].tolist(), [2 * i for i in range(shapes[-1][0] + 1)])
                self.assertEqual(batch.step.loss_scale, 0.0)
                self.assertEqual(loader.loss_scale(batch), 0.0)
                self.assertTrue(batch.step.is_probe)
                self.assertFalse(batch.is_stand_in or batch.step.idle)
                self.assertEqual(batch.sample_ids, ())
                batch["input_ids"].fill_(4)  # ordinary memory
            self.assertEqual(shapes, [(3, 8), (2, 8), (1, 8)])
            self.assertEqual([b.step.is_probe for b in loader], [False, False])
        daemon.wait_for("close 2")
        self.assertEqual(sorted(daemon.returned()), [1, 2])

    def test_the_memory_goes_with_the_last_view(self):
        daemon = self.daemon(probes=1)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            kept = next(loader.probe())["input_ids"][0]
            gc.collect()
            self.assertEqual(self.mapped_probes(), 1)
            self.assertEqual(kept.tolist(), [3] * 8)
            del kept
            gc.collect()
            self.assertEqual(self.mapped_probes(), 0)

    def mapped_probes(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return maps.read().count("odb-probe")


class EndTest(support.DaemonTest):
    def test_break_tells_how_many_steps_were_taken(self):
        daemon = self.daemon(steps=9)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            for batch in loader:
                if batch.step.index == 2:
                    break
            daemon.wait_for("end_iteration 0 3")
            # The next iteration is the next epoch, from its start.
            batch = next(iter(loader))
            self.assertEqual((batch.step.epoch, batch.step.index), (1, 0))

    def test_an_exception_in_the_loop_ends_the_iteration(self):
        daemon = self.daemon(steps=9)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            with self.assertRaises(ZeroDivisionError):
                for batch in loader:
                    1 / 0
            gc.collect()
            daemon.wait_for("end_iteration 0 1")

    def test_a_second_iterator_ends_the_first(self):
        daemon = self.daemon(steps=9)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            first = iter(loader)
            next(first)
            second = iter(loader)
            with self.assertRaisesRegex(odbd.Error, "another iterator of this loader was started"):
                next(first)
            del first
            self.assertEqual(next(second).step.epoch, 1)
            daemon.wait_for("end_iteration 0 1")
            daemon.wait_for("start_epoch 1 1")

    def test_an_exhausted_iterator_stays_so(self):
        daemon = self.daemon(steps=1)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            iterator = iter(loader)
            next(iterator)
            for _ in range(2):
                with self.assertRaises(StopIteration):
                    next(iterator)

    def test_limits_end_every_iteration(self):
        daemon = self.daemon(steps=9, samples=2, dp_size=3)
        with odbd.DataLoader(socket=daemon.socket, max_steps=4) as loader:
            self.assertEqual([b.step.index for b in loader], [0, 1, 2, 3])
            self.assertEqual([b.step.index for b in loader], [0, 1, 2, 3])
            daemon.wait_for("end_iteration 1 4")
        # 2 samples on each of 3 ranks: the third step reaches 13.
        with odbd.DataLoader(socket=daemon.socket, max_samples=13) as loader:
            self.assertEqual([b.step.emitted_samples for b in loader], [6, 12, 18])

    def test_use_after_close_says_so(self):
        daemon = self.daemon()
        loader = odbd.DataLoader(socket=daemon.socket)
        iterator = iter(loader)
        batch = next(iterator)
        loader.close()
        loader.close()
        with self.assertRaisesRegex(odbd.Error, "the loader is closed"):
            iter(loader)
        with self.assertRaisesRegex(odbd.Error, "the loader was closed"):
            next(iterator)
        daemon.wait_for("close 1")
        self.assertEqual(batch["input_ids"][0, 0].item(), 0)  # still there

    def test_a_collected_loader_closes(self):
        daemon = self.daemon()
        loader = odbd.DataLoader(socket=daemon.socket)
        del loader
        gc.collect()
        daemon.wait_for("close 0")


class IdleTest(support.DaemonTest):
    def test_stand_ins_are_batches_with_scale_zero(self):
        daemon = self.daemon(steps=4, idle_every=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            batches = list(loader)
        self.assertEqual([b.step.is_stand_in for b in batches], [False, True, False, True])
        stand_in = batches[1]
        self.assertTrue(stand_in.step.idle)
        self.assertTrue(stand_in.is_stand_in)
        self.assertEqual(stand_in.sample_ids, ())
        self.assertEqual(stand_in.step.loss_scale, 0.0)
        self.assertEqual(stand_in.step.sample_ids, ())
        self.assertEqual(stand_in["input_ids"].tolist(), [[7, 8]])

    def test_writing_to_a_stand_in_leaves_the_next_one_alone(self):
        daemon = self.daemon(steps=4, idle_every=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            for batch in loader:
                if batch.step.idle:
                    self.assertEqual(batch["input_ids"].tolist(), [[7, 8]])
                    batch["input_ids"].fill_(-1)

    def test_skip_leaves_idle_steps_out(self):
        daemon = self.daemon(steps=4, idle_every=2)
        with odbd.DataLoader(socket=daemon.socket, idle="skip") as loader:
            self.assertEqual([b.step.index for b in loader], [0, 2])

    def test_raw_gives_an_empty_batch(self):
        daemon = self.daemon(steps=4, idle_every=2)
        with odbd.DataLoader(socket=daemon.socket, idle="raw") as loader:
            batches = list(loader)
        self.assertEqual([len(b) for b in batches], [3, 0, 3, 0])
        self.assertTrue(batches[1].step.idle)
        self.assertFalse(batches[1].step.is_stand_in)


class LossScaleTest(support.DaemonTest):
    def test_conventions(self):
        # 8 loss tokens of 16 here; 2 ranks x 2 steps: 32 and 64 in the window.
        daemon = self.daemon(steps=4, samples=2, length=8, dp_size=2, accumulation=2)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            with self.assertRaisesRegex(odbd.Error, "needs a step"):
                loader.loss_scale()
            batch = next(iter(loader))
            self.assertEqual(loader.loss_scale(), 2 * 8 / 32)
            self.assertEqual(loader.loss_scale(batch), batch.step.loss_scale)
            self.assertEqual(loader.loss_scale(batch.step, weight="tokens"), 2 * 16 / 64)
            self.assertEqual(loader.loss_scale(reduction="sum"), 2 / 32)
            self.assertEqual(loader.loss_scale(reduction="num_items"), 2)
            self.assertEqual(loader.loss_scale(averaged_over="nothing"), 8 / 32)
            self.assertEqual(loader.loss_scale(divided_by_accumulation=True), 2 * 2 * 8 / 32)
            self.assertEqual(loader.loss_scale(divided_by_accumulation=3), 3 * 2 * 8 / 32)
            with self.assertRaisesRegex(ValueError, "mean or sum or num_items, got 'max'"):
                loader.loss_scale(reduction="max")
            with self.assertRaisesRegex(ValueError, "got -1"):
                loader.loss_scale(divided_by_accumulation=-1)


class ArgumentTest(support.DaemonTest):
    def test_bad_arguments_are_one_sentence(self):
        daemon = self.daemon()
        with self.assertRaisesRegex(odbd.Error, "idle must be stand-in, skip or raw, got"):
            odbd.DataLoader(socket=daemon.socket, idle="none")
        with self.assertRaisesRegex(ValueError, "max_steps must be at least 1"):
            odbd.DataLoader(socket=daemon.socket, max_steps=0)
        with self.assertRaisesRegex(ValueError, "tensors must be"):
            odbd.DataLoader(socket=daemon.socket, tensors="jax")
        with self.assertRaisesRegex(odbd.Error, "dp_rank must be between 0 and 0, got 3"):
            odbd.DataLoader(socket=daemon.socket, dp_rank=3)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            with self.assertRaisesRegex(ValueError, "epoch must be at least 0"):
                loader.set_epoch(-1)

    def test_a_missing_library_names_the_places(self):
        environment = dict(os.environ, PYTHONPATH=support.PACKAGE_ROOT)
        environment["ODB_CLIENT_LIBRARY"] = "/nowhere/libodb_client.so"
        result = support.subprocess.run(
            [sys.executable, "-B", "-c", "import odbd; odbd.DataLoader()"],
            env=environment, capture_output=True, text=True, timeout=support.DEADLINE,
        )  # fmt: skip
        self.assertIn("looked at /nowhere/libodb_client.so", result.stderr)


if __name__ == "__main__":
    support.main()
