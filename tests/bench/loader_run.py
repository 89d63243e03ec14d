"""One side of the loader benchmark over one file: its processes, their processor time and memory, and what they say."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import numpy

from loader_data import LONGEST, ROOT

PYTHON = "/usr/bin/python3"
DEADLINE_S = 300
PREFETCH_STEPS = 8  # odbd's default; the DataLoader's workers prefetch as many batches in all
TICK = os.sysconf("SC_CLK_TCK")


def parents():
    found = {}
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open("/proc/%s/stat" % pid, encoding="utf-8") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            found[int(pid)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK)
    return found


def tree(roots):
    """Of these processes and all below them: pid to seconds of processor time."""
    table = parents()
    below = {}
    for pid, (_, cpu) in table.items():
        walk, seen = pid, set()
        while walk in table and walk not in seen:
            seen.add(walk)
            if walk in roots:
                below[pid] = cpu
                break
            walk = table[walk][0]
    return below


def proportional_bytes(pids):
    """Memory of these processes by themselves, what they share counted once, without shared memory: with pages of files, and without."""
    total, of_files = 0, 0
    for pid in pids:
        try:
            with open("/proc/%d/smaps_rollup" % pid, encoding="utf-8") as rollup:
                for line in rollup:
                    bytes_of = int(line.split()[1]) * 1024 if line.startswith("Pss") else 0
                    total += bytes_of if line.startswith(("Pss_Anon:", "Pss_File:")) else 0
                    of_files += bytes_of if line.startswith("Pss_File:") else 0
        except OSError:
            pass  # it has ended
    return total, total - of_files


def shared_bytes():
    """Shared memory of the whole machine, mapped by somebody or not: a DataLoader's batches are in files without a name, on their way from
    one process to the other, and in nobody's address space until they are taken."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))


class Run:
    """Starts one side's processes, waits for them and ends them. `source`: where the data is, and how it is read."""

    def __init__(self, side, source, ranks):
        (self.side, self.workers), self.source, self.ranks = side, source, ranks
        self.epochs = source.get("warm_up", 1) + 1  # the last is measured
        self.folder = tempfile.mkdtemp(prefix="odbbench")
        self.processes = []
        self.peak = (0, 0)
        self.shared_before = shared_bytes()
        self.read_ahead = 0

    def environment(self, rank):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ODB_", "TORCHELASTIC_"))}
        env.update(PYTHONPATH=os.path.join(ROOT, "client", "python"), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
                   ODB_CLIENT_LIBRARY=os.path.join(ROOT, "client", "c_api", "libodb_client.so"),
                   ODB_SOCKET=os.path.join(self.folder, "odbd.sock"), RANK=str(rank), WORLD_SIZE=str(self.ranks),
                   LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(self.ranks), GROUP_RANK="0", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT="1")
        return env

    def start(self, *command, **kwargs):
        process = subprocess.Popen(command, start_new_session=True, **kwargs)
        self.processes.append(process)
        return process

    def start_daemon(self):
        with open(os.path.join(self.folder, "odbd.log"), "wb") as log:
            self.start(os.path.join(ROOT, "server/daemon/odbd"), "--data", self.source["data"],
                       "--socket", os.path.join(self.folder, "odbd.sock"), "--token-budget", str(self.source["budget"]),
                       "--max-length", str(LONGEST), "--max-samples-per-group", "4096", "--prefetch-steps", str(PREFETCH_STEPS),
                       "--workers", str(len(os.sched_getaffinity(0))),
                       "--aligner-path", os.path.join(ROOT, "aligner/daemon/odb-aligner"), *self.source.get("flags", ()),
                       stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin"})

    def trainer(self, rank):
        if self.side == "odbd C++":
            command = [os.path.join(ROOT, "tests/bench/loader_consumer"), str(self.epochs)]
        else:
            kind = "odbd" if self.side == "odbd Python" else self.side
            options = dict(dict(prefetch=PREFETCH_STEPS), **self.source, kind=kind, epochs=self.epochs, workers=self.workers)
            command = [PYTHON, os.path.join(ROOT, "tests/bench/loader_trainer.py"), json.dumps(options)]
        return self.start(*command, stdout=subprocess.PIPE, env=self.environment(rank), text=True)

    def look_at_memory(self):
        shared = max(0, shared_bytes() - self.shared_before)
        now = (bytes_of + shared for bytes_of in proportional_bytes(tree({p.pid for p in self.processes})))
        self.peak = tuple(max(pair) for pair in zip(self.peak, now))

    def look_at_read_ahead(self):
        """Bytes of samples in odbd's windows: preprocessed and in no step yet."""
        said = subprocess.run([os.path.join(ROOT, "client/odbctl/odbctl"), "--socket", os.path.join(self.folder, "odbd.sock"), "status", "-w", "json"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if said.returncode == 0:
            # What is within preprocessing is left out: the status has only an upper bound of it.
            self.read_ahead = max(self.read_ahead, int(json.loads(said.stdout).get("memory", {}).get("windows", 0)))

    def watch_memory(self, over):
        while not over.wait(0.3):
            self.look_at_memory()
            if self.side.startswith("odbd") and self.source.get("read_ahead"):
                self.look_at_read_ahead()

    def cpu_now(self):
        return tree({p.pid for p in self.processes})

    def measure(self):
        began = time.monotonic()
        if self.side.startswith("odbd"):
            self.start_daemon()
        trainers = [self.trainer(rank) for rank in range(self.ranks)]
        timer = threading.Timer(DEADLINE_S, self.kill)
        timer.start()
        over = threading.Event()
        watcher = threading.Thread(target=self.watch_memory, args=(over,))
        watcher.start()
        try:
            for trainer in trainers:
                if trainer.stdout.readline() != "begin\n":
                    raise RuntimeError("%s: no measured epoch within %d s; see %s" % (self.side, DEADLINE_S, self.folder))
            before = self.cpu_now()
            # To look at memory takes a fifth of a processor: it is done while the sides warm up, and at the end.
            over.set()
            said = [json.loads(trainer.stdout.readline()) for trainer in trainers]
            after = self.cpu_now()
            self.look_at_memory()
        finally:
            timer.cancel()
            over.set()
            self.kill()
            watcher.join()
        shutil.rmtree(self.folder)
        cpu = sum(value - before.get(pid, 0) for pid, value in after.items())
        result = summary(said, cpu)
        result.update(peak_pss_bytes=self.peak[0], peak_pss_without_files_bytes=self.peak[1],
                      first_batch_s=max(one["first"] for one in said) - began, read_ahead_bytes=self.read_ahead)
        return result

    def kill(self):
        for process in self.processes:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    break
                try:
                    process.wait(5)
                    break
                except subprocess.TimeoutExpired:
                    continue


def summary(said, cpu):
    seconds = max(one["end"] for one in said) - min(one["begin"] for one in said)
    total = {key: sum(one[key] for one in said) for key in ("samples", "tokens", "padded", "bytes", "idle", "loader_cpu", "checksum")}
    waits = sorted(wait for one in said for wait in one["waits"])
    return {
        "samples_per_s": total["samples"] / seconds,
        "tokens_per_s": total["tokens"] / seconds,
        "bytes_per_s": total["bytes"] / seconds,
        "cpu_s_per_mtoken": cpu / total["tokens"] * 1e6,
        "loader_cpu_us_per_step": total["loader_cpu"] / len(waits) * 1e6,
        "loader_cpu_s_per_mtoken": total["loader_cpu"] / total["tokens"] * 1e6,
        "real_share": total["tokens"] / total["padded"],
        "steps": len(waits),
        "idle": total["idle"],
        "samples": total["samples"],
        "checksum": total["checksum"],
        "wait_p50_us": waits[len(waits) // 2] * 1e6,
        "wait_p99_us": waits[int(len(waits) * 0.99)] * 1e6,
        "seconds": seconds,
    }


def median_of(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0] if key != "checksum"}


def memcpy_bytes_per_second():
    """One core, more than fits into the caches."""
    source = numpy.ones(1 << 28, dtype=numpy.uint8)
    target = numpy.zeros_like(source)
    times = []
    for _ in range(5):
        begin = time.monotonic()
        target[:] = source
        times.append(time.monotonic() - begin)
    return source.nbytes / statistics.median(times)


def take_turns(sides, turns, source, ranks):
    """Every side once per turn, so that all see the same weather; medians. Where the source wants it, all sides must have
    given the same ids and labels in every turn. What a copy costs is measured in every turn, too. A DataLoader that in the first turn
    has not half of what the best one has is not asked again: it is nobody's best."""
    memcpy = []
    results = {side: [] for side in sides}
    contenders = list(sides)
    for _ in range(turns):
        memcpy.append(memcpy_bytes_per_second())
        for side in contenders:
            results[side].append(Run(side, source, ranks).measure())
        others = [side for side in contenders if not side[0].startswith("odbd")]
        best = max((results[side][0]["samples_per_s"] for side in others), default=0)
        contenders = [side for side in contenders if side not in others or results[side][0]["samples_per_s"] > best / 2]
    if source.get("checked"):
        sums = {side: {run["checksum"] for run in runs} for side, runs in results.items() if side[0] != "odbd C++"}
        if len(set.union(*sums.values())) != 1:
            raise RuntimeError("ids or labels differ: %s" % sums)
    copied = statistics.median(memcpy)
    medians = {side: dict(median_of(runs), turns=len(runs)) for side, runs in results.items()}
    return {side: dict(result, memcpy_bytes_per_s=copied, of_memcpy=result["bytes_per_s"] / copied) for side, result in medians.items()}
