"""Shared memory: a step goes back when the last object over it dies, and not before."""

import ctypes
import gc
import unittest
import unittest.mock

import support  # first: sets the path and the environment

import odbd
from odbd import _batch, _library, _step

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

VALUES = {
    "int32": [0, 1, 0, 1],
    "bool": [False, True, False, True],
    "uint8": [0, 1, 0, 1],
    "float32": [[0.0, 1.0], [0.0, 1.0]],
    "float64": [0.0, 1.0, 0.0, 1.0],
    "float16": [0.0, 1.0, 0.0, 1.0],
}


class LayoutTest(unittest.TestCase):
    def test_what_is_unpacked_lies_as_it_is_declared(self):
        tensor = _library.Tensor(b"ids", 3, 1, None, 5, 6)
        name, *rest = _batch._TENSOR.unpack(bytes(tensor))
        self.assertEqual(ctypes.string_at(name), b"ids")
        self.assertEqual(rest, [3, 1, 0, 5, 6])
        self.assertEqual(_step._SAMPLE_ID.unpack(bytes(_library.SampleId(7, 8))), (7, 8))


class StepTest(support.DaemonTest):
    def first_batch(self, daemon, **arguments):
        loader = odbd.DataLoader(socket=daemon.socket, **arguments)
        self.addCleanup(loader.close)
        self.iterator = iter(loader)
        return next(self.iterator)

    def assert_held(self, daemon):
        # The next step is asked for and returned, so the daemon has heard all there is to hear.
        gc.collect()
        next(self.iterator)
        gc.collect()
        daemon.wait_returned(2)
        self.assertNotIn(1, daemon.returned())


class MemoryTest(StepTest):
    def test_a_dropped_batch_goes_back(self):
        daemon = self.daemon()
        batch = self.first_batch(daemon)
        self.assert_held(daemon)
        del batch
        daemon.wait_returned(1)

    def test_one_tensor_keeps_the_step(self):
        daemon = self.daemon()
        batch = self.first_batch(daemon)
        ids = batch["input_ids"]
        step = batch.step
        del batch
        self.assert_held(daemon)
        self.assertEqual(ids[0, 0].item(), 0)
        del ids
        daemon.wait_returned(1)
        self.assertEqual(step.local.samples, 2)  # numbers outlive the memory

    def test_held_steps_stop_the_daemon_and_not_the_memory(self):
        daemon = self.daemon(slots=2, steps=4)
        first = self.first_batch(daemon)
        second = next(self.iterator)
        self.iterator._loader._timeout = 0.3
        with self.assertRaisesRegex(odbd.Error, "no step came in 0.3 s"):
            next(self.iterator)
        self.assertEqual(second["input_ids"][0, 0].item(), 1000)
        del first
        self.assertEqual(next(self.iterator).step.index, 2)

    def test_a_copy_goes_back_at_once(self):
        daemon = self.daemon()
        batch = self.first_batch(daemon, copy=True)
        daemon.wait_returned(1)
        self.assertEqual(batch["input_ids"][1, 7].item(), 15)

    def test_tensors_outlive_the_loader_and_the_daemon(self):
        daemon = self.daemon()
        loader = odbd.DataLoader(socket=daemon.socket)
        batch = next(iter(loader))
        loader.close()
        del loader
        daemon.kill()
        gc.collect()
        self.assertEqual(batch["input_ids"][1, 7].item(), 15)
        del batch

    def test_memoryviews_where_there_is_nothing_else(self):
        daemon = self.daemon(all_dtypes=True)
        batch = self.first_batch(daemon, tensors="memoryview")
        self.assertEqual(batch["input_ids"].shape, (2, 8))
        self.assertEqual(batch["input_ids"][1, 7], 15)
        self.assertEqual(batch["float32"].tolist(), VALUES["float32"])
        self.assertEqual(batch["float16"].tolist(), [0, 0x3C00, 0, 0x3C00])
        view = batch["input_ids"]
        del batch
        self.assert_held(daemon)
        del view
        daemon.wait_returned(1)


@unittest.skipUnless(numpy, "NumPy is not installed")
class NumpyTest(StepTest):
    def test_every_type(self):
        batch = self.first_batch(self.daemon(all_dtypes=True), tensors="numpy")
        for name, values in VALUES.items():
            self.assertEqual(batch[name].tolist(), values, name)
            self.assertEqual(batch[name].dtype, numpy.dtype(name))
        self.assertEqual(batch["bfloat16"].tolist(), [0, 0x3F80, 0, 0x3F80])
        self.assertEqual(batch["empty"].shape, (0, 3))

    def test_a_view_of_a_view_keeps_the_step(self):
        daemon = self.daemon()
        batch = self.first_batch(daemon, tensors="numpy")
        row = batch["input_ids"][1][::2]
        del batch
        self.assert_held(daemon)
        self.assertEqual(row.tolist(), [8, 10, 12, 14])
        del row
        daemon.wait_returned(1)


@unittest.skipUnless(torch, "torch is not installed")
class TorchTest(StepTest):
    def test_every_type(self):
        daemon = self.daemon(all_dtypes=True)
        batch = self.first_batch(daemon)
        for name, values in list(VALUES.items()) + [("bfloat16", VALUES["float16"])]:
            self.assertEqual(batch[name].tolist(), values, name)
            self.assertEqual(batch[name].dtype, getattr(torch, name))
        self.assertEqual(tuple(batch["empty"].shape), (0, 3))
        last = batch["float64"]
        del batch
        self.assert_held(daemon)
        del last
        daemon.wait_returned(1)

    def test_torch_and_numpy_see_the_same_bytes(self):
        batch = self.first_batch(self.daemon())
        batch["input_ids"].numpy()[0, 0] = 42
        self.assertEqual(batch["input_ids"][0, 0].item(), 42)

    def test_a_numpy_view_of_a_tensor_keeps_the_step(self):
        daemon = self.daemon()
        batch = self.first_batch(daemon)
        view = batch["input_ids"].numpy()[1:]
        del batch
        self.assert_held(daemon)
        del view
        daemon.wait_returned(1)

    def test_an_autograd_graph_keeps_the_step(self):
        daemon = self.daemon(all_dtypes=True)
        batch = self.first_batch(daemon)
        weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
        loss = (weight * batch["float64"]).sum()
        del batch
        self.assert_held(daemon)
        loss.backward()
        self.assertEqual(weight.grad.tolist(), [0.0, 1.0, 0.0, 1.0])
        del loss
        daemon.wait_returned(1)

    def test_the_compiled_way_is_the_usual_one(self):
        self.first_batch(self.daemon())
        self.assertIsNotNone(self.iterator._loader._maker._native)

    def test_a_copy_is_not_the_shared_memory(self):
        daemon = self.daemon(all_dtypes=True)
        batch = self.first_batch(daemon, copy=True)
        daemon.wait_returned(1)
        self.assertEqual(batch["bool"].tolist(), VALUES["bool"])
        self.assertEqual(batch["input_ids"][1, 7].item(), 15)


class TorchByCtypesTest(TorchTest):
    """Where the compiled module cannot be loaded."""

    def setUp(self):
        super().setUp()
        without = unittest.mock.patch.object(_batch, "_native_torch", lambda library: None)
        without.start()
        self.addCleanup(without.stop)

    def test_the_compiled_way_is_the_usual_one(self):
        self.first_batch(self.daemon())
        self.assertIsNone(self.iterator._loader._maker._native)


@unittest.skipUnless(torch, "torch is not installed")
class NativeTest(StepTest):
    """The compiled module by itself: what goes wrong loses no step."""

    def native(self):
        self.first_batch(self.daemon())
        return self.iterator._loader._maker._native

    def test_a_failing_conversion_gives_the_step_back(self):
        daemon = self.daemon()
        loader = odbd.DataLoader(socket=daemon.socket)
        self.addCleanup(loader.close)
        iterator = iter(loader)

        def refuse(capsule):
            raise MemoryError("no room for a tensor")

        loader._maker._native.from_dlpack = refuse
        with self.assertRaisesRegex(MemoryError, "no room for a tensor"):
            next(iterator)
        daemon.wait_returned(1)

    def test_a_capsule_that_nobody_takes_gives_the_step_back(self):
        daemon = self.daemon()
        loader = odbd.DataLoader(socket=daemon.socket)
        self.addCleanup(loader.close)
        iterator = iter(loader)
        capsules = []
        loader._maker._native.from_dlpack = lambda capsule: capsules.append(capsule) or len(capsules)
        batch = next(iterator)
        self.assertEqual(sorted(batch.values()), list(range(1, len(batch) + 1)))
        self.assertEqual(batch.step.local.samples, 2)
        del batch
        gc.collect()
        self.assertNotIn(1, daemon.returned())
        capsules.clear()
        daemon.wait_returned(1)

    def test_wrong_arguments_are_errors(self):
        native = self.native()
        with self.assertRaises(TypeError):
            native.take("client", 0, {}, None)
        with self.assertRaises(TypeError):
            native.view()


if __name__ == "__main__":
    support.main()
