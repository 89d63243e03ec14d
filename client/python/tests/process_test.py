"""What happens to processes: fork, Ctrl-C, a dead daemon, a failed session, the end of Python."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import support  # first: sets the path and the environment

import odbd


def run_python(program, *arguments):
    """Starts a Python process with the package on its path."""
    return subprocess.Popen(
        [sys.executable, "-B", "-c", program, *arguments],
        env=dict(os.environ, PYTHONPATH=support.PACKAGE_ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class ForkTest(support.DaemonTest):
    PROGRAM = """
import os, sys, odbd
loader = odbd.DataLoader(socket=sys.argv[1], tensors="numpy")
iterator = iter(loader)
held = next(iterator)
child = os.fork()
if child == 0:
    try:
        next(iterator)
    except odbd.Error as error:
        assert "was forked" in str(error), error
    else:
        sys.exit("the child's loader gave a batch")
    try:
        iter(loader)
    except odbd.Error as error:
        assert error.code == "FAILED_PRECONDITION"
    assert held["input_ids"][0, 1] == 1
    del held
    loader.close()
    sys.exit(5)                       # runs atexit handlers and destructors
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
print("child ended", flush=True)
assert held["input_ids"][0, 1] == 1
del held
print(sum(1 for _ in iterator))
"""

    def test_the_child_is_told_and_the_parent_goes_on(self):
        daemon = self.daemon(steps=5)
        process = run_python(self.PROGRAM, daemon.socket)
        out, err = process.communicate(timeout=support.DEADLINE)
        self.assertEqual((process.returncode, out), (0, "child ended\n4\n"), err)
        # One session, closed once, by the parent, at its end.
        daemon.wait_for("close 5")
        self.assertEqual(daemon.drain().count("close 5"), 1)
        self.assertEqual(sum(line.startswith("open") for line in daemon.log), 1)


class ThreadTest(support.DaemonTest):
    PROGRAM = """
import os, sys, numpy, odbd  # NumPy first: it has threads of its own
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
loader = odbd.DataLoader(socket=sys.argv[1], tensors="numpy")
batches = iter(loader)
next(batches)
print(loader.transport, threads() - before)
"""

    def test_a_ring_leaves_no_thread_in_the_trainer(self):
        daemon = self.daemon()
        process = run_python(self.PROGRAM, daemon.socket)
        out, err = process.communicate(timeout=support.DEADLINE)
        self.assertEqual(process.returncode, 0, err)
        transport, threads = out.split()
        self.assertEqual(transport, support.TRANSPORT)
        if transport == "ring":
            self.assertEqual(int(threads), 0)
        else:
            self.assertGreaterEqual(int(threads), 2)  # what a ring saves


class InterruptTest(support.DaemonTest):
    def interrupt(self, program, socket):
        """Sends SIGINT when the program says so; returns seconds until it noticed, and its stderr."""
        process = run_python(program, socket)
        self.assertEqual(process.stdout.readline(), "waiting\n")
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=support.DEADLINE)
        self.assertEqual(process.returncode, 0, err)
        return float(out) - sent

    def test_ctrl_c_arrives_while_waiting_for_a_step(self):
        daemon = self.daemon(hang_at=0)
        delay = self.interrupt(
            """
import sys, time, odbd
loader = odbd.DataLoader(socket=sys.argv[1], tensors="numpy")
iterator = iter(loader)
try:
    print("waiting", flush=True)
    next(iterator)
except KeyboardInterrupt:
    print(time.monotonic())
""",
            daemon.socket,
        )
        # A wait is cut into slices of 0.1 s; the machine may be busy, and for ever is what must not be.
        self.assertLess(delay, support.DEADLINE / 2)

    def test_ctrl_c_arrives_while_waiting_for_the_daemon(self):
        delay = self.interrupt(
            """
import sys, time, odbd
try:
    print("waiting", flush=True)
    odbd.DataLoader(socket=sys.argv[1], connect_timeout=60)
except KeyboardInterrupt:
    print(time.monotonic())
""",
            "/tmp/odb-nobody-is-here.sock",
        )
        self.assertLess(delay, support.DEADLINE / 2)


class DeadDaemonTest(support.DaemonTest):
    def test_no_daemon_is_one_error_with_the_path(self):
        with self.assertRaises(odbd.Error) as caught:
            odbd.DataLoader(socket="/tmp/odb-nobody-is-here.sock", connect_timeout=0)
        self.assertIn("no odbd answers at /tmp/odb-nobody-is-here.sock", str(caught.exception))
        self.assertEqual(caught.exception.code, "NOT_FOUND")

    def test_a_killed_daemon_is_one_error_with_the_path(self):
        daemon = self.daemon(hang_at=1)
        loader = odbd.DataLoader(socket=daemon.socket)
        self.addCleanup(loader.close)
        iterator = iter(loader)
        batch = next(iterator)
        daemon.kill()
        for _ in range(2):
            with self.assertRaises(odbd.Error) as caught:
                next(iterator)
            self.assertIn(f"odbd at {daemon.socket}", str(caught.exception))
            self.assertIn("is gone", str(caught.exception))
            self.assertEqual(caught.exception.code, "UNAVAILABLE")
        with self.assertRaisesRegex(odbd.Error, "is gone"):
            iter(loader)
        self.assertEqual(batch["input_ids"][0, 1].item(), 1)

    def test_a_daemon_that_has_no_time_is_waited_for(self):
        daemon = self.daemon(steps=1)
        daemon.process.send_signal(signal.SIGSTOP)
        resume = threading.Timer(1.0, daemon.process.send_signal, [signal.SIGCONT])
        resume.start()
        self.addCleanup(resume.join)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            self.assertEqual(sum(1 for _ in loader), 1)

    def test_a_refused_session_repeats_the_daemons_words(self):
        daemon = self.daemon(refuse="the daemon drains")
        with self.assertRaisesRegex(odbd.Error, "the daemon drains"):
            odbd.DataLoader(socket=daemon.socket)

    def test_a_failed_session_is_the_same_error_for_every_call(self):
        daemon = self.daemon(fail_at=1)
        loader = odbd.DataLoader(socket=daemon.socket)
        self.addCleanup(loader.close)
        iterator = iter(loader)
        next(iterator)
        for _ in range(2):
            with self.assertRaisesRegex(odbd.Error, r"rank 2 \(pid 17\) died after step 3"):
                next(iterator)
        with self.assertRaisesRegex(odbd.Error, r"rank 2 \(pid 17\) died after step 3"):
            iter(loader)

    def test_a_broken_stream_is_attached_again(self):
        daemon = self.daemon(steps=6, cut_at=3)
        with odbd.DataLoader(socket=daemon.socket) as loader:
            self.assertEqual([batch.step.index for batch in loader], [0, 1, 2, 3, 4, 5])
        self.assertEqual(sum(line.startswith("attach") for line in daemon.drain()), 2)

    def test_a_timeout_repeats_the_daemons_reason(self):
        daemon = self.daemon(hang_at=0)
        with odbd.DataLoader(socket=daemon.socket, timeout=1) as loader:
            with self.assertRaises(odbd.Error) as caught:
                next(iter(loader))
        self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
        self.assertIn("round 1 waits for rank 3: pool starved", str(caught.exception))


class ExitTest(support.DaemonTest):
    def test_a_program_that_ends_closes_its_session(self):
        daemon = self.daemon(steps=5)
        process = run_python(
            """
import sys, odbd
loader = odbd.DataLoader(socket=sys.argv[1], tensors="numpy")
for batch in loader:
    kept = batch["input_ids"]
    if batch.step.index == 1:
        break
""",
            daemon.socket,
        )
        out, err = process.communicate(timeout=support.DEADLINE)
        self.assertEqual((process.returncode, out, err), (0, "", ""))
        daemon.wait_for("end_iteration 0 2")
        daemon.wait_for("close 2")

    def test_proxies_are_not_asked(self):
        daemon = self.daemon(steps=1)
        names = ("http_proxy", "https_proxy", "grpc_proxy")
        os.environ.update({name: "http://127.0.0.1:1" for name in names})
        self.addCleanup(lambda: [os.environ.pop(name) for name in names])
        with odbd.DataLoader(socket=daemon.socket) as loader:
            self.assertEqual(sum(1 for _ in loader), 1)


if __name__ == "__main__":
    support.main()
