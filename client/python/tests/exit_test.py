"""How programs end: exit code and last words are Python's own, and nothing touches a client that is gone.

Every program runs as a process whose library calls are watched: using a client after it was freed ends
the process with code 77, whatever the allocator would have made of it.
"""

import os
import subprocess
import sys
import unittest

import support  # first: sets the path and the environment

WATCH = """
import os, sys, odbd
from odbd import _library

def watch():
    library, end, say = _library.load(), os._exit, os.write
    freed, running = set(), []
    def watched(name, function):
        def call(*arguments):
            client = arguments[0] if arguments else None
            if name.startswith("odb_client_") and client in freed:
                say(2, name.encode() + b" with a client that was freed\\n")
                end(77)
            if name == "odb_client_free":
                freed.add(client)
                if client in running:
                    say(2, b"a client was freed during a call\\n")
                    end(77)
            running.append(client)
            result = function(*arguments)
            running.remove(client)
            return result
        return call
    for name in _library._SIGNATURES:
        setattr(library, name, watched(name, getattr(library, name)))
watch()
socket = sys.argv[1]
"""


class EndTest(support.DaemonTest):
    def end(self, program, code, **flags):
        """Runs the program to its end; what it wrote to stderr."""
        self.fake = self.daemon(**flags)
        # Freed memory is overwritten, so that even an unwatched use of it shows.
        environment = dict(os.environ, PYTHONPATH=support.PACKAGE_ROOT, MALLOC_PERTURB_="85")
        process = subprocess.run(
            [sys.executable, "-B", "-c", WATCH + program, self.fake.socket],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=support.DEADLINE, check=False,
        )  # fmt: skip
        self.assertEqual(process.returncode, code, process.stderr)
        return process.stderr

    def last_line(self, text):
        return text.rstrip("\n").rsplit("\n", 1)[-1]

    def test_a_failed_session_ends_the_program_with_a_traceback(self):
        program = """
loader = odbd.DataLoader(socket=socket, tensors="numpy")
for batch in loader:
    pass
"""
        said = self.end(program, 1, fail_at=2)
        self.assertEqual(said.count("Traceback (most recent call last)"), 1, said)
        self.assertEqual(self.last_line(said), "odbd._errors.Error: rank 2 (pid 17) died after step 3")

    def test_so_does_one_that_fails_inside_a_function(self):
        program = """
def train():
    held = []
    for batch in odbd.DataLoader(socket=socket, tensors="numpy"):
        held.append(batch)
train()
"""
        said = self.end(program, 1, fail_at=2)
        self.assertEqual(self.last_line(said), "odbd._errors.Error: rank 2 (pid 17) died after step 3")

    def test_an_exception_of_the_program_ends_it_and_closes_the_session(self):
        program = """
loader = odbd.DataLoader(socket=socket, tensors="numpy")
for batch in loader:
    if batch.step.index == 1:
        1 / 0
"""
        said = self.end(program, 1)
        self.assertEqual(self.last_line(said), "ZeroDivisionError: division by zero")
        self.fake.wait_for("close 2")

    def test_sys_exit_in_the_loop_keeps_its_code_and_closes_the_session(self):
        program = """
for batch in odbd.DataLoader(socket=socket, tensors="numpy"):
    sys.exit(5)
"""
        self.assertEqual(self.end(program, 5), "")
        self.fake.wait_for("close 1")

    def test_an_iterator_may_be_left_to_the_end_of_python(self):
        program = """
loader = odbd.DataLoader(socket=socket, tensors="numpy")
iterator = iter(loader)
batch = next(iterator)
sys.kept = iterator, batch      # dies after everything else
"""
        self.assertEqual(self.end(program, 0), "")
        self.fake.wait_for("close 1")

    def test_a_handler_that_runs_after_the_loader_was_closed_is_told_so(self):
        program = """
import atexit
def after():                    # registered first, runs last
    for use in (lambda: next(iterator), lambda: iter(loader)):
        try:
            use()
        except odbd.Error as error:
            assert error.code == "FAILED_PRECONDITION" and "closed" in str(error), error
            print(error, file=sys.stderr)
    iterator.close()
    loader.close()
atexit.register(after)
loader = odbd.DataLoader(socket=socket, tensors="numpy")
iterator = iter(loader)
next(iterator)
"""
        self.assertEqual(self.end(program, 0).count("closed"), 2)
        self.fake.wait_for("close 1")

    def test_a_thread_that_still_waits_for_a_step_does_not_matter(self):
        program = """
import threading
def wait():
    try:
        for batch in loader:
            taken.set()
    except odbd.Error as error:
        assert "closed" in str(error), error
taken = threading.Event()
loader = odbd.DataLoader(socket=socket, tensors="numpy")
threading.Thread(target=wait, daemon=True).start()
taken.wait()
"""
        self.assertEqual(self.end(program, 0, hang_at=1), "")
        self.fake.wait_for("close 1")

    def test_nor_does_a_thread_that_still_waits_for_the_daemon(self):
        program = """
import threading
began = threading.Event()
def open_and_say(client, really=_library.load().odb_client_open):
    began.set()
    return really(client)
_library.load().odb_client_open = open_and_say
threading.Thread(target=lambda: odbd.DataLoader(socket=socket + ".none"), daemon=True).start()
began.wait()
"""
        self.assertEqual(self.end(program, 0), "")

    def test_an_interrupt_while_the_daemon_does_not_answer_ends_the_program(self):
        program = """
import signal, socket as sockets, threading
silent = sockets.socket(sockets.AF_UNIX)
silent.bind(socket + ".silent")
silent.listen()
def interrupt():
    silent.accept()             # the client's probe
    silent.accept()             # gRPC's connection
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    odbd.DataLoader(socket=socket + ".silent")
except KeyboardInterrupt:
    sys.exit(6)
"""
        self.assertEqual(self.end(program, 6), "")


if __name__ == "__main__":
    support.main()
