"""What the end-to-end tests share: data, processes, and the checks on what trainers saw.

Everything runs for real: odbrun, odbd, odb-aligner, sockets, shared memory. Trainers are small Python processes
(worker.py), started by torchrun where torch matters, else by launch.py, which sets the same variables. Every wait has a
deadline; whatever a test starts is killed with it.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.sax.saxutils

HERE = os.path.dirname(os.path.abspath(__file__))
# Bazel starts tests in the root of their runfiles. Python follows the links there, so __file__ leads to the sources.
ROOT = os.environ.get("ODB_E2E_ROOT") or (os.getcwd() if "TEST_SRCDIR" in os.environ else os.path.dirname(os.path.dirname(HERE)))
PYTHON = "/usr/bin/python3"
DEADLINE_S = 150
TORCHRUN_FLAGS = ["-r", "9:3", "-t", "9:3"]  # Debian's PyTorch 1.13 on Python 3.11 crashes without


def program(name):
    return os.path.join(ROOT, {
        "odbd": "server/daemon/odbd",
        "odb-aligner": "aligner/daemon/odb-aligner",
        "odbctl": "client/odbctl/odbctl",
        "odbrun": "client/odbrun/odbrun",
    }[name])


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ODB_", "TORCHELASTIC_"))}
    env.update(PYTHONPATH=os.path.join(ROOT, "client", "python"), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1",
               ODB_CLIENT_LIBRARY=os.path.join(ROOT, "client", "c_api", "libodb_client.so"), **extra)
    return env


def write_corpus(path, count, seed=1, longest=400, prompt=True):
    """`count` conversations with log-normal lengths, different in every record."""
    source = random.Random(seed)
    with open(path, "w", encoding="utf-8") as out:
        for i in range(count):
            length = max(1, min(longest, int(source.lognormvariate(3.5, 0.8))))
            text = "".join(source.choice("abcdefghij ") for _ in range(length))
            messages = [{"role": "user", "content": "q%d" % i}] if prompt else []
            out.write(json.dumps({"messages": messages + [{"role": "assistant", "content": "%d %s" % (i, text)}]}) + "\n")


def processes_with(variable):
    """Pids of living processes whose environment names `variable`; zombies do not count."""
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % pid, "rb") as handle:
                if variable.encode() not in handle.read():
                    continue
            with open("/proc/%s/stat" % pid, encoding="utf-8") as handle:
                if handle.read().rsplit(")", 1)[1].split()[0] in ("Z", "X"):
                    continue
        except OSError:
            continue
        found.append(int(pid))
    return found


def children_named(mark, name):
    found = []
    for pid in processes_with(mark):
        try:
            with open("/proc/%d/comm" % pid, encoding="utf-8") as handle:
                if handle.read().strip() == name[:15]:
                    found.append(pid)
        except OSError:
            continue
    return found


def arenas_of(pid):
    """Shared memory that a process maps and that has no name in the file system."""
    with open("/proc/%d/maps" % pid, encoding="utf-8") as maps:
        return [line for line in maps if "/memfd:" in line]


def wait_until(what, condition, seconds=30):
    """Polls `condition` until it gives something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s" % (seconds, what))
        time.sleep(0.02)


class Case(unittest.TestCase):
    """A test with a folder of its own, a mark in the environment of all its processes, and no leftovers."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="odb", dir="/tmp")
        self.mark = "ODB_TEST_MARK_" + os.path.basename(self.dir)
        self.running = []

    def tearDown(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait(30)
        for pid in processes_with(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def env(self, **extra):
        return environment(**{self.mark: "1", "TEST_MARK": self.mark, **extra})

    def start(self, command, env=None, log="log", **kwargs):
        with open(self.path(log), "ab") as out:
            process = subprocess.Popen(command, env=env or self.env(), stdout=out, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, **kwargs)
        self.running.append(process)
        return process

    def log(self, name="log"):
        with open(self.path(name), encoding="utf-8", errors="replace") as handle:
            return handle.read()

    def finish(self, process, expect=0, log="log", seconds=DEADLINE_S):
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail("no end after %d s; log:\n%s" % (seconds, self.log(log)[-8000:]))
        if expect is not None:
            self.assertEqual(code, expect, self.log(log)[-8000:])
        return code

    def odbrun(self, flags, command):
        """The command line; rank logs and results go to this test's folder."""
        return [program("odbrun"), *flags, "--", *command]

    def launcher(self, world, options, nodes=1, node=0, out="out", torch=False, script="worker.py", extra=()):
        """Command that starts this node's share of `world` trainers; rank r writes <out>.<r>.json."""
        worker = [os.path.join(HERE, script), self.path(out), json.dumps(options)]
        if torch:
            return ["torchrun", "--standalone", "--nproc_per_node=%d" % world, *TORCHRUN_FLAGS, *worker]
        return [PYTHON, "-B", os.path.join(HERE, "launch.py"), "--world=%d" % world, "--nodes=%d" % nodes,
                "--node=%d" % node, *extra, "--", *worker]

    def results(self, world, out="out"):
        found = []
        for rank in range(world):
            with open(self.path("%s.%d.json" % (out, rank)), encoding="utf-8") as handle:
                found.append(json.load(handle))
        return found

    def train(self, world, flags, options=None, out="out", torch=False, log="log"):
        """One whole run under odbrun; returns what each rank recorded."""
        process = self.start(self.odbrun(flags, self.launcher(world, options or {}, out=out, torch=torch)), log=log)
        self.finish(process, log=log)
        return self.results(world, out)

    def odbctl(self, socket, *arguments, expect=0):
        done = subprocess.run([program("odbctl"), "--socket", socket, *arguments], env=self.env(), check=False,
                              capture_output=True, text=True, timeout=30)
        if expect is not None:
            self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    # --- Claims ---------------------------------------------------------------------------------

    def assert_same_steps(self, ranks, epoch=0):
        """Every rank saw the same number of steps with the same totals; returns that number."""
        totals = [[(s["index"], s["global"]) for s in r["epochs"][epoch]["steps"]] for r in ranks]
        for rank, seen in enumerate(totals):
            self.assertEqual(seen, totals[0], "rank %d differs from rank 0" % rank)
        for step in range(len(totals[0])):
            local = [r["epochs"][epoch]["steps"][step]["local"] for r in ranks]
            summed = [sum(counts[i] for counts in local) for i in range(len(local[0]))]
            self.assertEqual(summed, totals[0][step][1], "totals of step %d" % step)
        return len(totals[0])

    def ids(self, ranks, epoch=0):
        return [tuple(i) for r in ranks for s in r["epochs"][epoch]["steps"] for i in s["ids"]]

    def assert_each_once(self, ranks, count, epoch=0):
        found = self.ids(ranks, epoch)
        self.assertEqual(len(found), count)
        self.assertEqual(len(set(found)), count)

    def assert_nothing_left(self, seconds=30):
        wait_until("no process left, got %s" % processes_with(self.mark), lambda: not processes_with(self.mark), seconds)


class _Xml(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self._begin = time.monotonic()

    def stopTest(self, test):
        bad = [text for case, text in self.failures + self.errors if case is test]
        self.cases.append((test.id(), time.monotonic() - self._begin, bad))
        super().stopTest(test)


def main():
    """unittest.main with one <testcase> per test in Bazel's test.xml; --test_filter works."""
    pattern = os.environ.get("TESTBRIDGE_TEST_ONLY")
    argv = sys.argv[:1] + (["-k", pattern] if pattern else []) + sys.argv[1:]
    runner = unittest.TextTestRunner(resultclass=_Xml, verbosity=2)
    outcome = unittest.main(module="__main__", argv=argv, testRunner=runner, exit=False).result
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        with open(path, "w", encoding="utf-8") as out:
            out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites><testsuite name="e2e">\n')
            for name, seconds, bad in outcome.cases:
                inner = "".join("<failure>%s</failure>" % xml.sax.saxutils.escape(text) for text in bad)
                out.write("<testcase name=%s time=\"%.2f\">%s</testcase>\n" % (
                    xml.sax.saxutils.quoteattr(name), seconds, inner))
            out.write("</testsuite></testsuites>\n")
    sys.exit(0 if outcome.wasSuccessful() and outcome.testsRun else 1)
