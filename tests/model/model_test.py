"""Checks round_protocol.pml with spin: every world in full, and that each defect put in is found.

A world is searched to its last state. Anything less (a limit of memory, depth or time) is a failure, as is a point of
death that the search never came to. Run by hand, from the root of the source tree:

    /usr/bin/python3 -B tests/model/model_test.py                       all
    /usr/bin/python3 -B tests/model/model_test.py --only "join, 3 ranks"  those whose name has these words
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.sax.saxutils

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "round_protocol.pml")
MEMORY_MB = 900  # of one search; two run at a time
DEPTH_MAX = 50000
SEARCH_S = 900  # takes seconds on an idle machine
TRAIL_LINES = 120
NUM_DEATHS = 12  # points at which the model's aligner may die


class World:
    """One search. `find`: a defect is in it, and spin's report must have these words."""

    def __init__(self, name, defines, cycles=False, find=None):
        values = {"WINDOW": 2, "STEPS_MAX": 1, "CRASHES": 1, "LOSSES": 0, "HEARTBEATS": 1}
        values.update(item.partition("=")[::2] for item in defines.split())
        self.name = name
        self.defines = ["-D%s" % key if value == "" else "-D%s=%s" % (key, value) for key, value in values.items()]
        self.all_deaths = int(values["CRASHES"]) > 0 and "ERROR" not in values
        self.cycles = cycles
        self.find = find


TWO = "RANKS=2 VIEW_0=2 VIEW_1=1 "
THREE = "RANKS=3 VIEW_0=2 VIEW_1=1 VIEW_2=1 "
BREAK = "EPOCHS=2 BREAK_0=1 BREAK_1=1 "

WORLDS = [
    World("join, 3 ranks, 1 death", THREE + "HEARTBEATS=0"),
    World("join, 2 ranks, 2 deaths", TWO + "CRASHES=2"),
    World("join, 2 ranks, 1 death and 1 lost exchange", TWO + "LOSSES=1"),
    World("join, 2 ranks, 1 death, heartbeats without limit", TWO + "HEARTBEATS=255"),
    World("join, 2 ranks, 1 death, two epochs, one rank dry early", "RANKS=2 VIEW_0=3 VIEW_1=1 EPOCHS=2"),
    World("join, 2 ranks, 1 death, two steps in a round", "RANKS=2 VIEW_0=3 VIEW_1=3 STEPS_MAX=2"),
    World("non-join, 2 ranks, 2 deaths", "RANKS=2 VIEW_0=3 VIEW_1=2 QUOTA=4 CRASHES=2"),
    World("non-join, 3 ranks, 1 lost exchange", "RANKS=3 VIEW_0=2 VIEW_1=2 VIEW_2=1 QUOTA=4 CRASHES=0 LOSSES=1"),
    World("abandon, 2 ranks, 1 death, another epoch follows", TWO + BREAK),
    World("abandon, 3 ranks, another epoch follows", THREE + BREAK + "BREAK_2=1 CRASHES=0"),
    World("different steps at a break, 2 ranks, 1 death: one error", TWO + "BREAK_0=1 ERROR=1 HEARTBEATS=0"),
    World("different plans, 2 ranks, 1 death: one error", TWO + "DIVERGENCE ERROR=1"),
    World("no endless run: join, 2 ranks, 1 death and 1 lost exchange", TWO + "LOSSES=1", cycles=True),
    World("no endless run: abandon, 2 ranks, 1 death", TWO + BREAK + " HEARTBEATS=0", cycles=True),
    World("no endless run: join, 3 ranks, 1 lost exchange", THREE + "CRASHES=0 LOSSES=1", cycles=True),
    # --- defects ---
    World("defect found: released before it is confirmed", TWO + "RELEASE_BEFORE_CONFIRM", find="gathered[x]==2"),
    World("defect found: resync goes on after the latest round", TWO + "RESYNC_TAKES_LATEST", find="assertion violated"),
    World("defect found: resync repeats no offers", TWO + "RESYNC_WITHOUT_REDO", find="assertion violated"),
    World("defect found: the planned offer is not kept", TWO + "FORGET_PLANNED", find="posted_keeps_planned"),
    World("defect found: a rank ahead offers its window again", TWO + "REDO_OFFERS_WINDOW", find="assertion violated"),
    World("defect found: a rank behind offers its new state", TWO + BREAK + "REDO_OFFERS_STATE", find="redo[r]"),
    World("defect found: odbd listens to an old generation", TWO + "NO_FENCE", find="invalid end state"),
    World("defect found: a repeated round is released again", TWO + "DOUBLE_ON_REDO", find="(got[r]&plan_own)==0"),
    World("defect found: confirm ignores digests", TWO + "DIVERGENCE ERROR=1 IGNORE_DIGESTS", find="gathered_digest[x]"),
    World("defect found: a window that is not full is offered", "RANKS=2 VIEW_0=3 VIEW_1=1 PARTIAL_WINDOW",
          find="expected[epoch_round[r]]"),
    World("defect found: a rank ahead waits for a plan", TWO + "AHEAD_WAITS", find="invalid end state"),
    World("defect found: heartbeats without end", TWO + "HEARTBEATS=255", cycles=True, find="non-progress cycle"),
]


def run(command, where, seconds):
    done = subprocess.run(command, cwd=where, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=seconds)
    return done.returncode, done.stdout


def number(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    return int(float(match.group(1))) if match else -1


def judge(world, report):
    """What is wrong with pan's report; empty: nothing. Takes only a search that ended by itself as one."""
    complaints = []
    for sign in ("Search not completed", "max search depth too small", "reached -DMEMLIM", "out of memory",
                 "Search was not exhaustive", "hash-compact", "Bit statespace"):
        if sign in report and not (sign == "Search not completed" and world.find):
            complaints.append("the search is not complete: " + sign)
    errors = number(r"errors: (\d+)", report)
    if errors < 0 or number(r"^\s*([\d.e+]+) states, stored", report) < 1:
        return complaints + ["no result"]
    if world.cycles and "non-progress cycles" not in report:
        complaints.append("cycles were not looked for")
    if not world.cycles and not re.search(r"invalid end states\s*\+", report):
        complaints.append("end states were not looked at")
    if world.find:
        if errors == 0:
            complaints.append("the defect was not found")
        elif world.find not in report:
            complaints.append("an error was found, but not '%s'" % world.find)
        return complaints
    if errors != 0:
        complaints.append("an error was found: %s" % "; ".join(re.findall(r"^pan:\d+: (.*)$", report, re.MULTILINE)))
    elif world.all_deaths and not world.cycles:
        unreached = report.partition("unreached in proctype rank")[2].partition("unreached in init")[0]
        never = len(re.findall(r"D_STEP", unreached))
        if never or "states)" not in unreached:
            complaints.append("the search never came to %d of %d points of death" % (never, NUM_DEATHS))
    return complaints


def check(world, folder):
    """Returns (line for the log, complaints, how an error came about)."""
    os.makedirs(folder)
    shutil.copy(MODEL, folder)
    name = os.path.basename(MODEL)
    code, text = run(["spin", *world.defines, "-a", name], folder, 60)
    if code != 0 or not os.path.exists(os.path.join(folder, "pan.c")):
        return "", ["spin -a failed:\n" + text], ""
    kind = "-DNP" if world.cycles else "-DSAFETY"
    # Optimizing takes longer than it saves, and a defect is found soon. No partial order reduction: every order is tried.
    command = ["gcc", "-O0" if world.find else "-O1", "-w", kind, "-DNOREDUCE", "-DMEMLIM=%d" % MEMORY_MB, "-o", "pan", "pan.c"]
    code, text = run(command, folder, 300)
    if code != 0:
        return "", ["gcc failed:\n" + text], ""
    _, report = run(["./pan", "-m%d" % DEPTH_MAX, "-w20", *(["-l"] if world.cycles else [])], folder, SEARCH_S)
    complaints = judge(world, report)
    found = re.findall(r"^pan:\d+: (.*?) \(at depth", report, re.MULTILINE)
    verdict = "found: " + "; ".join(found) if found else "no error"
    line = "%9d states, depth %4d, %4d MB, %s" % (
        number(r"^\s*([\d.e+]+) states, stored", report), number(r"depth reached (\d+)", report),
        number(r"([\d.]+)\s+total actual memory", report), verdict)
    trail = ""
    if complaints:
        trail = report[-3000:]
        if os.path.exists(os.path.join(folder, name + ".trail")):
            _, story = run(["spin", *world.defines, "-T", "-B", "-t", name], folder, 60)
            trail = "\n".join(story.splitlines()[-TRAIL_LINES:])
    return line, complaints, trail


def self_tests():
    """judge() must not take less than a whole search for one."""
    good = ("invalid end states\t+\nState-vector 8 byte, depth reached 9, errors: 0\n  5 states, stored\n"
            "unreached in proctype rank\n\t(0 of 9 states)\nunreached in init\n")
    world = World("", "RANKS=2")
    yield "a whole search", judge(world, good) == []
    yield "a search cut off", judge(world, "pan: reached -DMEMLIM bound\nSearch not completed\n" + good) != []
    yield "a depth too small", judge(world, "error: max search depth too small\n" + good) != []
    yield "an error", judge(world, good.replace("errors: 0", "errors: 1")) != []
    yield "a death not come to", judge(world, good.replace("\t(0", '\tx.pml:1, state 1, "D_STEP1"\n\t(1')) != []
    yield "a defect not found", judge(World("", "", find="assertion violated"), good) != []
    yield "no output", judge(world, "") != []


def write_xml(cases):
    path = os.environ.get("XML_OUTPUT_FILE")
    if not path:
        return
    with open(path, "w", encoding="utf-8") as out:
        out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites><testsuite name="model">\n')
        for name, seconds, complaints in cases:
            inner = "".join("<failure>%s</failure>" % xml.sax.saxutils.escape(text) for text in complaints)
            out.write("<testcase name=%s time=\"%.2f\">%s</testcase>\n" % (xml.sax.saxutils.quoteattr(name), seconds, inner))
        out.write("</testsuite></testsuites>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=os.environ.get("TESTBRIDGE_TEST_ONLY", ""), help="words of a world's name")
    only = parser.parse_args().only
    worlds = [world for world in WORLDS if only in world.name]
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            sys.exit("model_test: %s is not installed; sh deploy/setup.sh installs it" % tool)
    cases = [("judge: " + name, 0.0, [] if passed else ["judged wrongly"]) for name, passed in self_tests()]

    def timed(number_and_world):
        at, world = number_and_world
        begin = time.monotonic()
        try:
            outcome = check(world, os.path.join(scratch, str(at)))
        except subprocess.TimeoutExpired as late:
            outcome = ("", ["not within %d s: %s" % (late.timeout, late.cmd[0])], "")
        return (world, time.monotonic() - begin, *outcome)

    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for world, seconds, line, complaints, trail in pool.map(timed, enumerate(worlds)):
            cases.append((world.name, seconds, complaints))
            print("%-6s %-62s %s (%.0f s)" % ("FAILED" if complaints else "ok", world.name, line, seconds), flush=True)
            if complaints:
                print("\n".join(complaints), trail, "repeat it: /usr/bin/python3 -B tests/model/model_test.py --only '%s'" %
                      world.name, sep="\n", flush=True)
    failed = [name for name, _, complaints in cases if complaints]
    write_xml(cases)
    used = os.times()
    print("model: %d cases, %d failed, %.0f s of processor time" % (
        len(cases), len(failed), used.children_user + used.children_system))
    return 1 if failed or not worlds else 0


if __name__ == "__main__":
    sys.exit(main())
