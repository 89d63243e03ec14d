"""Starts fake daemons for the tests.

A test is run as: test.py <libodb_client.so> <fake_daemon_main> <ring|stream|tcp>.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

LIBRARY, FAKE_DAEMON = (os.path.abspath(path) for path in sys.argv[1:3])
OVER_TCP = sys.argv[3] == "tcp"
TRANSPORT = "stream" if OVER_TCP else sys.argv[3]
os.environ["ODB_CLIENT_LIBRARY"] = LIBRARY
os.environ["ODB_CLIENT_TRANSPORT"] = TRANSPORT
for _name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "ODB_SOCKET"):
    os.environ.pop(_name, None)
# Where the test was started from, which has the compiled module too; not where a link to this file leads.
PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
sys.path.insert(0, PACKAGE_ROOT)

DEADLINE = 30.0  # of every wait; far more than any should take


class Daemon:
    """A fake daemon process and its log."""

    def __init__(self, **flags):
        self._folder = tempfile.mkdtemp(prefix="odb", dir="/tmp")
        self.socket = os.path.join(self._folder, "odbd.sock")
        command = [FAKE_DAEMON, "--socket", self.socket] + ["--tcp"] * OVER_TCP
        for name, value in flags.items():
            flag = "--" + name.replace("_", "-")
            command += [flag] if value is True else [flag, str(value)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines = queue.Queue()
        self.log = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for("ready")
        if OVER_TCP:
            self.socket = self.log[0]

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def drain(self):
        """All lines so far."""
        while True:
            try:
                self.log.append(self._lines.get_nowait())
            except queue.Empty:
                return self.log

    def wait_for(self, line):
        """Waits until the daemon has logged `line`."""
        end = time.monotonic() + DEADLINE
        while line not in self.log:
            try:
                self.log.append(self._lines.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no {line!r} in {self.log}") from None

    def returned(self):
        """The numbers of the steps that came back."""
        return [
            int(number)
            for line in self.drain()
            if line.startswith("returned ")
            for number in line.split()[1:]
        ]

    def wait_returned(self, *numbers):
        end = time.monotonic() + DEADLINE
        while not set(numbers) <= set(self.returned()):
            try:
                self.log.append(self._lines.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"{numbers} not returned in {self.log}") from None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=DEADLINE)
        self._reader.join(timeout=DEADLINE)
        self.process.stdout.close()
        shutil.rmtree(self._folder)


class DaemonTest(unittest.TestCase):
    def daemon(self, **flags):
        daemon = Daemon(**flags)
        self.addCleanup(daemon.close)
        return daemon


def main():
    unittest.main(argv=[sys.argv[0]], verbosity=2)
