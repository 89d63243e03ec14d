"""What matters of the benchmarks' JSON files, beside the targets: the end of deploy/bench.sh.

usage: bench_table.py FOLDER

A benchmark without a file, because it failed, is left out.
"""

import json
import os
import sys


def read(folder, name):
    try:
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def planning_rows(found):
    targets = (("grouping curve", 2000), ("one plan, 8 ranks", 300), ("one plan, 1024 ranks", 20000))
    for row in found:
        if row["bench"] != "planning_time":
            continue
        target = next((us for words, us in targets if row["what"].startswith(words)), None)
        yield "planning: " + row["what"], "%.0f us" % row["us"], "< %d us" % target if target else ""


def rounds_rows(found):
    for world in found["worlds"]:
        yield ("round, %d ranks: to two bare exchanges (time)" % world["ranks"],
               "%.2f (%.0f us)" % (world["round_to_bare"], world["round_us"]), "<= 2 (2 ranks: < 1000 us)")


def delivery_rows(found):
    for transport in found["transports"]:
        medians = ", ".join("%s %.1f us" % (key[:-3], value) for key, value in transport.items()
                            if key.endswith("_us") and not key.endswith(("_p90_us", "_p99_us", "_cpu_us")))
        where = {1: "on one CPU", 2: "between two CPUs"}.get(transport["cpus"], "%s CPUs" % transport["cpus"])
        yield "small step by %s, %s" % (transport["transport"], where), medians, "< 30 us" if "ring" in transport["transport"] else ""


def memory_rows(rows):
    """odbd's peak beside the least of a DataLoader that has as many bytes prefetched."""
    for row in rows:
        others = [other["peak_pss_without_files_bytes"] for other in rows if not other["side"].startswith("odbd")
                  and (other["lengths"], other["ranks"]) == (row["lengths"], row["ranks"])
                  and other["prefetched_bytes"] >= row["prefetched_bytes"]]
        if row["side"].startswith("odbd") and others:
            yield ("%s, %d ranks, %s: peak memory" % (row["lengths"], row["ranks"], row["side"]),
                   "%.0f MB" % (row["peak_pss_without_files_bytes"] / 1e6), "<= %.0f MB" % (min(others) / 1e6))


def loader_rows(found):
    yield from memory_rows([row for row in found["results"] if "prefetched_bytes" in row])
    for row in found["results"]:
        if not row["side"].startswith("odbd") or "prefetched_bytes" in row:
            continue
        name = "%s, %d rank%s, %s: " % (row["lengths"], row["ranks"], "" if row["ranks"] == 1 else "s", row["side"])
        if "of_best" in row:
            yield name + "samples/s", "x %.2f of DataLoader's best" % row["of_best"], ">= 2" if row["lengths"] == "conversations" else ">= 1"
            yield name + "loader's CPU per step", "x %.2f of DataLoader's best" % row["loader_cpu_of_best"], "<= 0.10"
        if row["lengths"] == "conversations":
            continue
        yield name + "bytes", "%.2f of memcpy" % row["of_memcpy"], ">= 0.5" if row["lengths"].startswith("64 MB") else ">= 0.3"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = []
    for name, rows_of in (("planning", planning_rows), ("rounds", rounds_rows), ("delivery", delivery_rows), ("loader", loader_rows)):
        found = read(sys.argv[1], name)
        if found is not None:
            rows += rows_of(found)
    rows.insert(0, ("what", "found", "target"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    print("JSON: " + sys.argv[1])


main()
