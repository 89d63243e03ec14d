"""DataLoader(device="cuda"), against a stand-in for torch.cuda and, for what is said without one, torch itself."""

import gc
import os
import sys
import time
import types
import unittest
import warnings

import support  # first: sets the path and the environment

import odbd

try:
    import torch
except ImportError:
    torch = None
else:
    from fake_cuda import FakeCuda
    from odbd._device import TorchCuda


def ids(epoch, index, count=16):
    return [(epoch * 100 + index) * 1000 + i for i in range(count)]


@unittest.skipUnless(torch, "torch is not installed")
class DeviceTest(support.DaemonTest):
    def loader(self, daemon, cuda, is_pinned=True, cleanup=True, **arguments):
        class Loader(odbd.DataLoader):
            _open_cuda = staticmethod(lambda: cuda)
            if is_pinned:  # as on a machine with a GPU
                pinned = True

        loader = Loader(socket=daemon.socket, device="cuda", **arguments)
        if cleanup:
            self.addCleanup(loader.close)
        return loader

    def until_ahead(self, loader):
        """Until the step after the last one is being copied."""
        end = time.monotonic() + support.DEADLINE
        while loader._copies._ahead is None and time.monotonic() < end:
            loader._copy_ahead(loader._client, loader._copies)
        self.assertIsNotNone(loader._copies._ahead)

    def assert_heard(self, daemon, loader):
        """What the client told before is in the daemon's log now."""
        loader._end_iterator("the test")
        loader._client.end_iteration()
        daemon.wait_for("end_iteration 0 1")


class OrderTest(DeviceTest):
    def run_epoch(self, then, slots=3, cuda=None):
        """What the training loop's stream reads of 8 steps, each dropped at once; and the GPU."""
        daemon = self.daemon(steps=8, slots=slots)
        cuda = cuda or FakeCuda()
        loader = self.loader(daemon, cuda)
        seen = []
        for batch in loader:
            seen.append([])
            cuda.read(batch["input_ids"], seen[-1])
            del batch
            then(cuda)
        cuda.advance_all()
        daemon.wait_returned(*range(1, 9))
        return seen, cuda

    def assert_right(self, then, **arguments):
        seen, cuda = self.run_epoch(then, **arguments)
        self.assertEqual(seen, [ids(0, i) for i in range(8)])
        self.assertEqual(cuda.misuse, [])

    def test_the_loop_finds_its_values_on_a_device_that_does_nothing_before_it_must(self):
        self.assert_right(lambda cuda: None)

    def test_the_loop_finds_its_values_on_a_fast_device(self):
        self.assert_right(lambda cuda: cuda.advance_all())

    def test_the_loop_finds_its_values_when_it_is_before_the_copies(self):
        def then(cuda):
            while cuda.current.advance():
                pass

        self.assert_right(then)

    def test_one_place_is_enough(self):
        self.assert_right(lambda cuda: None, slots=1)

    def test_a_mistake_on_purpose_is_seen(self):
        class Forgetful(FakeCuda):
            def wait(self, stream, event):
                pass

        def training_first(cuda):
            while cuda.current.advance():
                pass

        seen, _ = self.run_epoch(training_first, cuda=Forgetful())
        self.assertNotEqual(seen, [ids(0, i) for i in range(8)])

        class Hasty(FakeCuda):
            def record(self, stream):
                event = super().record(stream)
                event.query = lambda: True
                return event

        _, cuda = self.run_epoch(lambda cuda: None, cuda=Hasty())
        self.assertTrue(cuda.misuse)

    def test_copy_event_wait_keep(self):
        daemon = self.daemon(steps=1)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        batch = next(iter(loader))
        self.assertEqual(cuda.log, ["copy"] * 3 + ["record", "wait"] + ["keep"] * 3)
        self.assertEqual(cuda.kept, [(id(t), "training") for t in batch.values()])
        self.assertEqual(list(batch), ["input_ids", "labels", "attention_mask"])
        self.assertEqual(batch.step.index, 0)
        self.assertEqual(loader.loss_scale(), batch.step.loss_scale)
        self.assertEqual(loader.device, torch.device("cuda", 0))

    def test_each_step_waits_for_the_stream_that_is_current_then(self):
        daemon = self.daemon(steps=2)
        cuda = FakeCuda()
        iterator = iter(self.loader(daemon, cuda))
        next(iterator)
        first = cuda.current
        cuda.current = type(first)("another")
        next(iterator)
        self.assertEqual([kind for kind, _ in first.operations], ["wait"])
        self.assertEqual([kind for kind, _ in cuda.current.operations], ["wait"])
        self.assertEqual(cuda.kept[-1][1], "another")

    def test_the_next_step_is_copied_while_one_is_in_use(self):
        daemon = self.daemon(steps=2)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        iterator = iter(loader)
        next(iterator)
        self.until_ahead(loader)
        while cuda.copying.advance():  # the training loop's stream stands still
            pass
        copies = cuda.log.count("copy")
        batch = next(iterator)
        self.assertEqual(cuda.log.count("copy"), copies)
        self.assertEqual(batch["input_ids"].flatten().tolist(), ids(0, 1))

    def test_the_loop_never_waits_for_a_copy_while_steps_are_there(self):
        daemon = self.daemon(steps=3, slots=3)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        iterator = iter(loader)
        next(iterator)
        for _ in range(2):
            self.until_ahead(loader)
            next(iterator)
        self.assertNotIn("synchronize", cuda.log)


class MemoryTest(DeviceTest):
    def test_a_dropped_batch_goes_back_once_its_copy_is_complete(self):
        daemon = self.daemon(steps=5)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        batch = next(iter(loader))
        del batch
        gc.collect()
        self.assert_heard(daemon, loader)
        self.assertEqual(daemon.returned(), [])
        cuda.advance_all()
        next(iter(loader))
        daemon.wait_returned(1)

    def test_a_batch_that_is_kept_keeps_no_shared_memory(self):
        daemon = self.daemon(steps=5)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        iterator = iter(loader)
        batch = next(iterator)
        cuda.advance_all()
        next(iterator)
        daemon.wait_returned(1)
        self.assertEqual(batch["input_ids"].flatten().tolist(), ids(0, 0))

    def test_close_waits_for_the_copies_first(self):
        daemon = self.daemon(steps=5)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        iterator = iter(loader)
        batch = next(iterator)
        self.until_ahead(loader)
        loader.close()
        self.assertEqual(cuda.log[-2:], ["synchronize"] * 2)
        self.assertFalse(cuda.copying.operations)
        self.assertEqual(batch["input_ids"].flatten().tolist(), ids(0, 0))
        daemon.wait_for("close 1")

    def test_a_collected_loader_waits_for_the_copies_first(self):
        daemon = self.daemon(steps=5)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda, cleanup=False)
        batch = next(iter(loader))
        del loader
        gc.collect()
        self.assertFalse(cuda.copying.operations)
        self.assertEqual(batch["input_ids"].flatten().tolist(), ids(0, 0))
        daemon.wait_for("close 1")

    def test_break_does_not_count_the_step_that_was_copied_ahead(self):
        daemon = self.daemon(steps=9, slots=5)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        for batch in loader:
            self.until_ahead(loader)
            if batch.step.index == 2:
                break
        daemon.wait_for("end_iteration 0 3")
        seen = []
        batch = next(iter(loader))
        self.assertEqual((batch.step.epoch, batch.step.index), (1, 0))
        cuda.read(batch["input_ids"], seen)
        cuda.advance_all()
        self.assertEqual(seen, ids(1, 0))

    def test_limits_hold(self):
        daemon = self.daemon(steps=9)
        loader = self.loader(daemon, FakeCuda(), max_steps=4)
        self.assertEqual([b.step.index for b in loader], [0, 1, 2, 3])
        self.assertEqual([b.step.index for b in loader], [0, 1, 2, 3])
        daemon.wait_for("end_iteration 1 4")

    def test_a_copy_ahead_that_finds_no_memory_is_tried_again(self):
        daemon = self.daemon(steps=3)
        cuda = FakeCuda()
        loader = self.loader(daemon, cuda)
        iterator = iter(loader)
        next(iterator)
        loader._copies.forget_ahead()
        self.until_ahead(loader)
        loader._copies.forget_ahead()
        cuda.fail = RuntimeError("out of memory")
        loader._copy_ahead(loader._client, loader._copies)
        self.assertIsNone(cuda.fail)
        self.assertEqual(next(iterator).step.index, 1)

    def test_a_copy_that_finds_no_memory_raises_what_torch_says(self):
        daemon = self.daemon(steps=3)
        cuda = FakeCuda()
        iterator = iter(self.loader(daemon, cuda))
        cuda.fail = RuntimeError("out of memory")
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            next(iterator)
        self.assertEqual(next(iterator).step.index, 1)


class IdleTest(DeviceTest):
    def test_stand_ins_are_copies_of_their_own(self):
        daemon = self.daemon(steps=4, idle_every=2)
        cuda = FakeCuda()
        stand_ins = []
        for batch in self.loader(daemon, cuda):
            cuda.advance_all()
            if batch.step.is_stand_in:
                stand_ins.append(batch["input_ids"].tolist())
                batch["input_ids"].fill_(-1)
        self.assertEqual(stand_ins, [[[7, 8]], [[7, 8]]])

    def test_skip_and_raw(self):
        daemon = self.daemon(steps=4, idle_every=2)
        loader = self.loader(daemon, FakeCuda(), idle="skip")
        self.assertEqual([b.step.index for b in loader], [0, 2])
        loader.close()
        loader = self.loader(daemon, FakeCuda(), idle="raw")
        self.assertEqual([len(b) for b in loader], [3, 0, 3, 0])


class WithoutTest(DeviceTest):
    """What this machine, or a machine like it, lacks."""

    def test_memory_that_is_not_pinned_is_one_warning_and_copies_that_block(self):
        daemon = self.daemon(steps=3)
        cuda = FakeCuda()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = self.loader(daemon, cuda, is_pinned=False)
            if loader.pinned:
                self.skipTest("this machine has a GPU")
            batches = [batch["input_ids"].flatten().tolist() for batch in loader]
        self.assertEqual(batches, [ids(0, i) for i in range(3)])
        self.assertNotIn("copy", cuda.log)
        self.assertEqual([w.category for w in caught], [RuntimeWarning])
        self.assertIn("odbd's memory is not pinned", str(caught[0].message))
        self.assertIn(loader.why_not_pinned, str(caught[0].message))
        self.assertRegex(loader.why_not_pinned, "GPU|CUDA")
        self.assertEqual(os.path.basename(caught[0].filename), "device_test.py")

    def test_pinned_memory_is_asked_for_by_the_device_or_the_variable(self):
        daemon = self.daemon(steps=1)
        self.addCleanup(os.environ.pop, "ODB_CLIENT_PIN", None)
        for variable, device, warned in (
            ("auto", None, 0),
            ("on", None, 1),
            ("off", "cuda", 0),
            ("auto", "cpu", 0),
        ):
            os.environ["ODB_CLIENT_PIN"] = variable
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if device == "cuda":
                    loader = self.loader(daemon, FakeCuda(), is_pinned=False)
                else:
                    loader = odbd.DataLoader(socket=daemon.socket, device=device)
                if loader.pinned:
                    warned = 0  # this machine has a GPU
                loader.close()
            self.assertEqual(len(caught), warned, (variable, device))

    def test_a_torch_without_cuda_is_one_sentence(self):
        if torch.cuda.is_available():
            self.skipTest("this machine has a GPU")
        with self.assertRaises(odbd.Error) as caught:
            odbd.DataLoader(socket="/nonexistent/odbd.sock", device="cuda:1")
        self.assertRegex(
            str(caught.exception),
            "^device 'cuda:1' was asked for, but torch.cuda.is_available\\(\\) is false: "
            "(this torch was built without CUDA|torch finds no usable GPU and driver)$",
        )
        self.assertEqual(caught.exception.code, "FAILED_PRECONDITION")

    def test_what_is_no_device_is_refused(self):
        for device in ("mps", "gpu", 1.5):
            with self.assertRaisesRegex(ValueError, "device must be cuda, cuda:<n>, cpu or None, got"):
                odbd.DataLoader(device=device)
        with self.assertRaisesRegex(ValueError, "device needs tensors='torch', got tensors='numpy'"):
            odbd.DataLoader(device="cuda", tensors="numpy")

    def test_without_torch_that_is_said(self):
        program = "import sys; sys.modules['torch'] = None; import odbd; odbd.DataLoader(device='cuda')"
        result = support.subprocess.run(
            [sys.executable, "-B", "-c", program],
            env=dict(os.environ, PYTHONPATH=support.PACKAGE_ROOT),
            capture_output=True, text=True, timeout=support.DEADLINE,
        )  # fmt: skip
        self.assertIn("it needs torch, which is not installed", result.stderr)


@unittest.skipUnless(torch, "torch is not installed")
class TorchCudaTest(unittest.TestCase):
    """The calls that torch gets, on a module that writes them down."""

    def setUp(self):
        self.calls = calls = []

        class Entered:
            def __init__(self, stream):
                self.stream = stream

            def __enter__(self):
                calls.append(("enter", self.stream))

            def __exit__(self, *exception):
                calls.append(("exit", self.stream))

        class Event:
            def record(self, stream):
                calls.append(("record", stream))

        cuda = types.SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 1,
            device_count=lambda: 2,
            Stream=lambda device: ("stream", device),
            current_stream=lambda index: ("current", index),
            stream=Entered,
            Event=Event,
        )
        self.module = types.SimpleNamespace(
            cuda=cuda, device=torch.device, version=types.SimpleNamespace(cuda="13.0")
        )
        self.cuda = TorchCuda(self.module)

    def test_the_device(self):
        self.assertEqual(self.cuda.choose(torch.device("cuda")), 1)
        self.assertEqual(self.cuda.choose(torch.device("cuda:0")), 0)
        with self.assertRaisesRegex(odbd.Error, "'cuda:2' was asked for, but torch shows this process 2 GPUs"):
            self.cuda.choose(torch.device("cuda:2"))
        self.module.cuda.is_available = lambda: False
        with self.assertRaisesRegex(odbd.Error, "torch finds no usable GPU and driver"):
            self.cuda.choose(torch.device("cuda:2"))

    def test_a_copy_is_made_on_the_stream(self):
        calls = self.calls

        class Tensor:
            def to(self, device, non_blocking):
                calls.append((device, non_blocking))

            def record_stream(self, stream):
                calls.append(("keep", stream))

        self.assertEqual(self.cuda.stream(1), ("stream", 1))
        self.assertEqual(self.cuda.current_stream(1), ("current", 1))
        self.cuda.copy(Tensor(), 1, "copying", non_blocking=True)
        self.cuda.record("copying")
        self.cuda.keep_for(Tensor(), "training")
        self.assertEqual(
            calls,
            [
                ("enter", "copying"),
                (torch.device("cuda:1"), True),
                ("exit", "copying"),
                ("record", "copying"),
                ("keep", "training"),
            ],
        )


if __name__ == "__main__":
    support.main()
