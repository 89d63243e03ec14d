"""DataLoader(device="cuda") on a real GPU; prints why it skips where torch has none.

    gpu_torch_test.py <libodb_client.so> <fake_daemon_main>

Needs a torch with CUDA, which Debian's is not: run it by the Python that has one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

LIBRARY, FAKE_DAEMON = (os.path.abspath(path) for path in sys.argv[1:3])
os.environ["ODB_CLIENT_LIBRARY"] = LIBRARY
for _name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "ODB_SOCKET", "ODB_CLIENT_PIN"):
    os.environ.pop(_name, None)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "client", "python"))

STEPS, SAMPLES, LENGTH = 64, 64, 4096


def why_not():
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch.cuda.is_available() is false"
    return None


class GpuTest(unittest.TestCase):
    def setUp(self):
        import odbd

        folder = tempfile.mkdtemp(prefix="odb", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder)
        socket = os.path.join(folder, "odbd.sock")
        flags = {"--socket": socket, "--steps": STEPS, "--samples": SAMPLES, "--length": LENGTH}
        command = [FAKE_DAEMON] + [str(part) for flag in flags.items() for part in flag]
        daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.stdin.close)
        self.assertEqual(daemon.stdout.readline().strip(), "ready")
        self.socket = socket
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the arena can be pinned here
            self.loader = odbd.DataLoader(socket=socket, device="cuda")
        self.addCleanup(self.loader.close)

    def test_the_arena_is_pinned_memory_for_torch(self):
        import odbd

        self.assertTrue(self.loader.pinned)
        self.assertEqual(self.loader.why_not_pinned, "")
        os.environ["ODB_CLIENT_PIN"] = "on"
        self.addCleanup(os.environ.pop, "ODB_CLIENT_PIN")
        with odbd.DataLoader(socket=self.socket, stream="eval") as loader:
            self.assertTrue(next(iter(loader))["input_ids"].is_pinned())

    def test_every_step_has_its_bytes_though_each_is_dropped_at_once(self):
        import torch

        sums = []
        for batch in self.loader:
            self.assertEqual(batch["input_ids"].device, self.loader.device)
            # Weighed by position, so that an exchange of two elements shows.
            weights = torch.arange(1, SAMPLES * LENGTH + 1, device=self.loader.device)
            sums.append((batch["input_ids"].flatten() * weights).sum())
            del batch
        count = SAMPLES * LENGTH
        for index, total in enumerate(sums):
            expected = sum((index * 1000 + i) * (i + 1) for i in range(count))
            self.assertEqual(total.item(), expected)

    def test_the_next_step_is_copied_while_the_stream_is_busy(self):
        import torch

        iterator = iter(self.loader)
        next(iterator)
        torch.cuda.synchronize()
        busy = torch.empty(8192, 8192, device=self.loader.device)
        done = torch.cuda.Event()
        for _ in range(100):
            busy = busy @ busy
        done.record()
        next(iterator)  # its copy does not wait for the products
        copied = self.loader._copies._pending[0][0] if self.loader._copies._pending else None
        if copied is not None:
            copied.synchronize()
        self.assertFalse(done.query())
        torch.cuda.synchronize()


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        print("SKIPPED: " + reason)
        sys.exit(0)
    unittest.main(argv=[sys.argv[0]], verbosity=2)
