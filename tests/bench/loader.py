"""How fast steps reach a trainer: odbd against PyTorch's DataLoader, in turns, over the same file.

usage: bazel run -c opt //tests/bench:loader -- [--quick] [--json FILE] [--part samples|payload] [--ranks 1,2,4] [--turns N]

samples: log-normal and bimodal lengths, 20 000 samples that were tokenized before (int32), a budget of 16 384 padded tokens;
  DataLoader with 0, 1, 2, 4 persistent workers and fixed or length-sorted batches, of which the best counts; odbd read from
  C++ and from Python. payload: steps of 64 MB, as a share of memcpy. Both sides give int64 input_ids, labels and
  attention_mask; the consumer reads every cache line. An epoch warms up, the next one is measured.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import numpy

ROOT = os.getcwd()  # bazel run starts it in the root of its runfiles
PYTHON = "/usr/bin/python3"
LONGEST = 8192
DEADLINE_S = 300
# name: mean length, coefficient of variation
LENGTHS = {
    "log-normal 0.48": (1000, 0.48),
    "log-normal 0.29": (600, 0.29),
    "log-normal 1.00": (1500, 1.00),
    "bimodal 0.80": (400, 0.80),
}
TICK = os.sysconf("SC_CLK_TCK")


def lengths_of(name, count):
    source = numpy.random.default_rng(1)
    mean, cv = LENGTHS[name]
    if name.startswith("bimodal"):  # two normal humps around mean * (1 -+ cv)
        side = source.integers(0, 2, count) * 2 - 1
        drawn = mean * (1 + side * cv) + source.normal(0, mean * 0.1, count)
    else:
        sigma = numpy.sqrt(numpy.log(1 + cv * cv))
        drawn = source.lognormal(numpy.log(mean) - sigma * sigma / 2, sigma, count)
    return numpy.clip(drawn.astype(numpy.int64), 2, LONGEST)


def write_corpus(prefix, lengths):
    """An indexed corpus, as Megatron-LM writes it, and its offsets for the DataLoader."""
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    ids = numpy.random.default_rng(2).integers(0, 50000, int(offsets[-1]), dtype=numpy.int32)
    ids.tofile(prefix + ".bin")
    with open(prefix + ".idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(lengths), 2))
        index.write(lengths.astype("<i4").tobytes() + (offsets[:-1] * 4).astype("<i8").tobytes())
        index.write(numpy.array([0, len(lengths)], dtype="<i8").tobytes())
    numpy.save(prefix + ".offsets.npy", offsets)
    return ids.nbytes


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
    for pid, (parent, cpu) in table.items():
        walk, seen = pid, set()
        while walk in table and walk not in seen:
            seen.add(walk)
            if walk in roots:
                below[pid] = cpu
                break
            walk = table[walk][0]
    return below


def proportional_bytes(pids):
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/smaps_rollup" % pid, encoding="utf-8") as rollup:
                total += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
        except OSError:
            pass  # it has ended
    return total


class Run:
    """One side over one corpus: starts its processes, reads what they say."""

    def __init__(self, side, prefix, budget, ranks, workers=0):
        self.side, self.prefix, self.budget, self.ranks, self.workers = side, prefix, budget, ranks, workers
        self.folder = tempfile.mkdtemp(prefix="odbbench")
        self.processes = []
        self.peak = 0
        self.cpu = {}

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
        log = open(os.path.join(self.folder, "odbd.log"), "wb")
        self.start(os.path.join(ROOT, "server/daemon/odbd"), "--data", self.prefix + ".idx",
                   "--socket", os.path.join(self.folder, "odbd.sock"), "--token-budget", str(self.budget),
                   "--max-length", str(LONGEST), "--max-samples-per-group", "4096",
                   "--aligner-path", os.path.join(ROOT, "aligner/daemon/odb-aligner"),
                   stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin"})

    def trainer(self, rank):
        if self.side == "odbd C++":
            command = [os.path.join(ROOT, "tests/bench/loader_consumer"), "2"]
        else:
            kind = "odbd" if self.side == "odbd Python" else self.side
            options = {"kind": kind, "epochs": 2, "prefix": self.prefix, "budget": self.budget, "workers": self.workers}
            command = [PYTHON, os.path.join(ROOT, "tests/bench/loader_trainer.py"), json.dumps(options)]
        return self.start(*command, stdout=subprocess.PIPE, env=self.environment(rank), text=True)

    def watch_memory(self, over):
        while not over.wait(0.3):
            self.peak = max(self.peak, proportional_bytes(tree({p.pid for p in self.processes})))

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
        try:
            if trainers[0].stdout.readline() != "begin\n":
                raise RuntimeError("%s: no measured epoch within %d s; see %s" % (self.side, DEADLINE_S, self.folder))
            before = self.cpu_now()
            watcher.start()
            said = [json.loads(trainer.stdout.readline() if rank == 0 else last_line(trainer)) for rank, trainer in enumerate(trainers)]
            after = self.cpu_now()
        finally:
            timer.cancel()
            over.set()
            self.kill()
        watcher.join()
        shutil.rmtree(self.folder)
        cpu = sum(value - before.get(pid, 0) for pid, value in after.items())
        return summary(said, cpu, self.peak, time.monotonic() - began)

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


def last_line(process):
    line = process.stdout.readline()
    return process.stdout.readline() if line == "begin\n" else line


def summary(said, cpu, peak, whole):
    seconds = max(one["end"] for one in said) - min(one["begin"] for one in said)
    total = {key: sum(one[key] for one in said) for key in ("samples", "tokens", "padded", "bytes", "idle", "loader_cpu")}
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
        "wait_p50_us": waits[len(waits) // 2] * 1e6,
        "wait_p99_us": waits[int(len(waits) * 0.99)] * 1e6,
        "peak_pss_bytes": peak,
        "seconds": seconds,
    }


def median_of(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def take_turns(sides, turns, prefix, budget, ranks):
    """Every side once per turn, so that all see the same weather; medians."""
    results = {side: [] for side in sides}
    for _ in range(turns):
        for side in sides:
            kind, workers = side
            results[side].append(Run(kind, prefix, budget, ranks, workers).measure())
    return {side: median_of(runs) for side, runs in results.items()}


def name_of(side):
    kind, workers = side
    return kind if kind.startswith("odbd") else "%s, %d workers" % (kind, workers)


def samples_part(flags, folder, memcpy):
    found = []
    sides = [("odbd C++", 0), ("odbd Python", 0)] + [(kind, workers) for kind in ("fixed", "sorted") for workers in flags.workers]
    for name in flags.lengths:
        prefix = os.path.join(folder, name.replace(" ", "_"))
        write_corpus(prefix, lengths_of(name, flags.samples))
        for ranks in flags.ranks:
            results = take_turns(sides, flags.turns, prefix, flags.budget, ranks)
            best = max((side for side in sides if not side[0].startswith("odbd")), key=lambda side: results[side]["samples_per_s"])
            for side in sides:
                row = dict(results[side], lengths=name, ranks=ranks, side=name_of(side), best=side == best,
                           of_best=results[side]["samples_per_s"] / results[best]["samples_per_s"],
                           of_memcpy=results[side]["bytes_per_s"] / memcpy,
                           fill=results[side]["tokens_per_s"] * results[side]["seconds"] / (results[side]["steps"] * flags.budget),
                           loader_cpu_of_best=results[side]["loader_cpu_us_per_step"] / results[best]["loader_cpu_us_per_step"])
                found.append(row)
                show(row)
        os.remove(prefix + ".bin")
    return found


def payload_part(flags, folder, memcpy):
    """Steps of 64 MB: three int64 tensors."""
    found = []
    prefix = os.path.join(folder, "payload")
    budget = (64 << 20) // (3 * 8)
    write_corpus(prefix, numpy.full(1500 if flags.quick else 6000, LONGEST))
    for ranks in flags.ranks:
        results = take_turns([("odbd C++", 0), ("odbd Python", 0)], flags.turns, prefix, budget, ranks)
        for side, result in results.items():
            row = dict(result, lengths="64 MB steps", ranks=ranks, side=name_of(side), of_memcpy=result["bytes_per_s"] / memcpy)
            found.append(row)
            show(row)
    return found


def show(row):
    print("%-16s ranks %d  %-18s %9.0f samples/s  %s  %5.2f of memcpy  real %5.1f %%  CPU %6.3f s/Mtoken (loader's thread %6.1f us/step)"
          "  wait p50 %7.0f p99 %7.0f us  %5.0f MB"
          % (row["lengths"], row["ranks"], row["side"], row["samples_per_s"],
             "x %5.2f of the best" % row["of_best"] if "of_best" in row else " " * 18, row["of_memcpy"], 100 * row["real_share"],
             row["cpu_s_per_mtoken"], row["loader_cpu_us_per_step"], row["wait_p50_us"], row["wait_p99_us"],
             row["peak_pss_bytes"] / 1e6), flush=True)


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one distribution, few samples, one turn: under a minute")
    parser.add_argument("--json", help="write the results here as well")
    parser.add_argument("--part", choices=["samples", "payload"], help="only this part")
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4])
    parser.add_argument("--workers", type=numbers, default=[0, 1, 2, 4], help="of the DataLoader")
    parser.add_argument("--lengths", default=",".join(LENGTHS))
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--budget", type=int, default=16384)
    flags = parser.parse_args()
    flags.lengths = flags.lengths.split(",")
    if flags.quick:
        flags.ranks, flags.workers, flags.lengths, flags.samples, flags.turns = [2], [0, 2], flags.lengths[:1], 4000, 1
    memcpy = memcpy_bytes_per_second()
    print("memcpy on one core: %.1f GB/s; %d CPUs" % (memcpy / 1e9, len(os.sched_getaffinity(0))), flush=True)
    folder = tempfile.mkdtemp(prefix="odbbench")
    results = []
    try:
        if flags.part != "payload":
            results += samples_part(flags, folder, memcpy)
        if flags.part != "samples":
            results += payload_part(flags, folder, memcpy)
    finally:
        shutil.rmtree(folder)
    if flags.json:
        path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), flags.json)
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"benchmark": "loader", "machine": platform.processor() or platform.machine(), "quick": flags.quick,
                       "budget": flags.budget, "memcpy_bytes_per_s": memcpy, "results": results}, out, indent=1)


sys.exit(main())
