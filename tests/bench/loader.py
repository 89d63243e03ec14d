"""How fast steps reach a trainer: odbd against PyTorch's DataLoader, in turns, over the same file.

usage: bazel run -c opt //tests/bench:loader -- [--quick] [--json FILE] [--part samples|preprocess|payload|memory] [--ranks 1,2,4] [--turns N]

samples: log-normal and bimodal lengths, 100 000 samples that were tokenized before (int32), a budget of 16 384 padded tokens;
  DataLoader with 0, 1, 2, 4 persistent workers and fixed or length-sorted batches, of which the best counts; odbd read
  from C++ and from Python.
preprocess: conversations in JSON Lines, ChatML with label masks, one SentencePiece model; DataLoader's Dataset does the same
  with python3-sentencepiece. All sides must give the same ids and labels. 1 and 2 ranks.
payload: steps of 64 MB, as a share of memcpy.
memory: peak memory beside DataLoader's with as many bytes prefetched.
A DataLoader that in the first turn has less than half of the best one's samples/s is not run again.
All give int64 input_ids, labels and attention_mask; the consumer reads every cache line. An epoch warms up, the next one is
measured. All processes of all sides share the same processors.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time

import numpy

sys.path.insert(0, os.path.join(os.getcwd(), "tests", "bench"))
from loader_data import LENGTHS, LONGEST, last_level_cache_bytes, lengths_beyond_the_cache, lengths_of, write_conversations, write_corpus  # noqa: E402
from loader_run import PREFETCH_STEPS, take_turns  # noqa: E402

ODBD = [("odbd C++", 0), ("odbd Python", 0)]


def name_of(side):
    kind, workers = side
    return kind if kind.startswith("odbd") else "%s, %d workers" % (kind, workers)


def against_the_best(sides, flags, source, ranks, name):
    """Rows of one file at one number of ranks, beside the DataLoader's best."""
    results = take_turns(sides, flags.turns, source, ranks)
    best = max((side for side in sides if not side[0].startswith("odbd")), key=lambda side: results[side]["samples_per_s"])
    for side in sides:
        result = results[side]
        yield dict(result, lengths=name, ranks=ranks, side=name_of(side), best=side == best, file_bytes=source["file_bytes"],
                   of_best=result["samples_per_s"] / results[best]["samples_per_s"],
                   fill=result["tokens_per_s"] * result["seconds"] / (result["steps"] * source["budget"]),
                   loader_cpu_of_best=result["loader_cpu_us_per_step"] / results[best]["loader_cpu_us_per_step"])


def samples_part(flags, folder):
    sides = ODBD + [(kind, workers) for kind in ("fixed", "sorted") for workers in flags.workers]
    for name in flags.lengths:
        prefix = os.path.join(folder, name.replace(" ", "_"))
        lengths = lengths_of(name, flags.samples) if flags.quick else lengths_beyond_the_cache(name, flags.samples)
        source = {"data": prefix + ".idx", "prefix": prefix, "budget": flags.budget, "file_bytes": write_corpus(prefix, lengths),
                  "flags": ["--window", str(flags.window)]}
        for ranks in flags.ranks:
            yield from against_the_best(sides, flags, source, ranks, name)
        os.remove(prefix + ".bin")


def preprocess_part(flags, folder):
    sides = ODBD[flags.quick:] + [("fixed", workers) for workers in flags.workers]
    prefix = os.path.join(folder, "conversations")
    write_conversations(prefix, 1500 if flags.quick else 12000)
    source = {"data": prefix + ".jsonl", "prefix": prefix, "budget": flags.budget, "checked": True, "tokenizer": prefix + ".model",
              "flags": ["--tokenizer", prefix + ".model"], "file_bytes": os.path.getsize(prefix + ".jsonl")}
    for ranks in (count for count in flags.ranks if count <= 2):
        yield from against_the_best(sides, flags, source, ranks, "conversations")


def payload_part(flags, folder):
    """Steps of 64 MB: three int64 tensors."""
    prefix = os.path.join(folder, "payload")
    budget = (64 << 20) // (3 * 8)
    file_bytes = write_corpus(prefix, numpy.full(3000 if flags.quick else 12000, LONGEST))
    # A large arena is touched in the background, at a few hundred megabytes a second: one epoch is not enough to be warm.
    source = {"data": prefix + ".idx", "prefix": prefix, "budget": budget, "warm_up": 4, "flags": ["--window", "1024"]}
    for ranks in flags.ranks:
        for side, result in take_turns(ODBD, flags.turns, source, ranks).items():
            yield dict(result, lengths="64 MB steps", ranks=ranks, side=name_of(side), file_bytes=file_bytes)


def memory_part(flags, folder):
    """Peak memory with as many bytes prefetched: DataLoader's workers as many batches as odbd holds of steps, and of samples on their
    way into steps. Trainers take their time over a step, or a DataLoader with few workers would have prefetched nothing. Few samples:
    Python's lists of them are not what is asked about. One set of lengths, one turn: memory hardly varies."""
    for name in flags.lengths[:1]:
        prefix = os.path.join(folder, name.replace(" ", "_"))
        source = {"data": prefix + ".idx", "prefix": prefix, "budget": flags.budget, "file_bytes": write_corpus(prefix, lengths_of(name, 6000)),
                  "think_s": 0.02, "read_ahead": True}
        for ranks in flags.ranks:
            found = {}
            for kind, window in (("odbd Python", 256), ("odbd Python", 1024)):
                side = "%s, window %d" % (kind, window)
                found[side] = take_turns([(kind, 0)], 1, dict(source, flags=["--window", str(window)]), ranks)[(kind, 0)]
                # Per rank: the steps that are ready, and what is on its way.
                step = found[side]["bytes_per_s"] * found[side]["seconds"] / found[side]["steps"]
                found[side]["prefetched_bytes"] = PREFETCH_STEPS * step + found[side]["read_ahead_bytes"] / ranks
            held = found["odbd Python, window 256"]["prefetched_bytes"]
            for workers in (count for count in flags.workers if count > 0):
                for batches in (PREFETCH_STEPS, None):
                    batch = flags.budget * 3 * 8
                    prefetch = batches or -(-int(held) // (batch * workers)) * workers
                    side = "sorted, %d workers, %d batches" % (workers, prefetch)
                    found[side] = take_turns([("sorted", workers)], 1, dict(source, prefetch=prefetch), ranks)[("sorted", workers)]
                    found[side]["prefetched_bytes"] = prefetch * batch
            for side, result in found.items():
                yield dict(result, lengths=name, ranks=ranks, side=side, file_bytes=source["file_bytes"])
        os.remove(prefix + ".bin")


def show(row):
    print("%-16s ranks %d  %-18s %9.0f samples/s  %s  %5.2f of memcpy  real %5.1f %%  CPU %6.3f s/Mtoken (loader's thread %6.1f us/step)"
          "  wait p50 %7.0f p99 %7.0f us  first %5.2f s  %5.0f MB  (memcpy %4.1f GB/s)"
          % (row["lengths"], row["ranks"], row["side"], row["samples_per_s"],
             "x %5.2f of the best" % row["of_best"] if "of_best" in row else " " * 18, row["of_memcpy"], 100 * row["real_share"],
             row["cpu_s_per_mtoken"], row["loader_cpu_us_per_step"], row["wait_p50_us"], row["wait_p99_us"], row["first_batch_s"],
             row["peak_pss_without_files_bytes"] / 1e6, row["memcpy_bytes_per_s"] / 1e9)
          + ("  prefetched %.1f MB per rank" % (row["prefetched_bytes"] / 1e6) if "prefetched_bytes" in row else ""), flush=True)


PARTS = {"samples": samples_part, "preprocess": preprocess_part, "payload": payload_part, "memory": memory_part}


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one distribution, few samples, one turn: under a minute")
    parser.add_argument("--json", help="write the results here as well")
    parser.add_argument("--part", choices=list(PARTS), help="only this part")
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4])
    parser.add_argument("--workers", type=numbers, default=[0, 1, 2, 4], help="of the DataLoader, per rank")
    parser.add_argument("--lengths", default=",".join(LENGTHS))
    parser.add_argument("--samples", type=int, default=100000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--budget", type=int, default=16384)
    parser.add_argument("--window", type=int, default=1024, help="odbd's, in part samples")
    flags = parser.parse_args()
    flags.lengths = flags.lengths.split(",")
    if flags.quick:
        flags.ranks, flags.workers, flags.lengths, flags.samples, flags.turns = [2], [0, 2], flags.lengths[:1], 4000, 1
    print("%s, %d CPUs" % (processor(), len(os.sched_getaffinity(0))), flush=True)
    folder = tempfile.mkdtemp(prefix="odbbench")
    results = []
    try:
        for part in [flags.part] if flags.part else PARTS:
            for row in PARTS[part](flags, folder):
                results.append(row)
                show(row)
    finally:
        shutil.rmtree(folder)
    if flags.json:
        path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), flags.json)
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"benchmark": "loader", "machine": processor(), "quick": flags.quick,
                       "cpus": len(os.sched_getaffinity(0)), "last_level_cache_bytes": last_level_cache_bytes(), "budget": flags.budget,
                       "results": results}, out, indent=1)


sys.exit(main())
