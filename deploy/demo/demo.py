"""The demo: the same conversations, the same model and the same token budget, three ways of forming batches.

Two torchrun ranks on CPU train with (1) PyTorch's DataLoader and the largest fixed batch that respects the budget, (2) the
same with samples of similar length together, (3) odbd. Writes out/demo/*.json and out/demo/demo.png.
"""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(ROOT, "out", "demo")
BIN = os.path.join(ROOT, "out", "bin")
BUDGET, MAX_TOKENS, TRAIN, HELD_OUT, DEADLINE_S = 4096, 1024, 2000, 128, 600
NAMES = {"fixed": "DataLoader, fixed batch", "grouped": "DataLoader, grouped by length", "odbd": "odbd"}

sys.path.insert(0, HERE)
import corpus  # noqa: E402


def torchrun(mode, train, held_out, result):
    # Debian's torchrun (PyTorch 1.13 on Python 3.11) needs -r and -t: without them it crashes at start.
    return ["torchrun", "--standalone", "--nproc_per_node=2", "-r", "9:3", "-t", "9:3", os.path.join(HERE, "train.py"),
            mode, train, held_out, result]


def run(mode, train, held_out):
    result = os.path.join(OUT, mode + ".json")
    coverage = os.path.join(OUT, "coverage.json")
    env = dict(os.environ, DEMO_BUDGET=str(BUDGET), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
               PYTHONPATH=os.path.join(ROOT, "out", "python"),
               ODB_CLIENT_LIBRARY=os.path.join(ROOT, "out", "lib", "libodb_client.so"))
    command = torchrun(mode, train, held_out, result)
    if mode == "odbd":
        ask = 'odbctl=$1; out=$2; shift 2; "$@" && "$odbctl" coverage -w json > "$out" && "$odbctl" coverage'
        command = [os.path.join(BIN, "odbrun"), "--data", train, "--token-budget", str(BUDGET), "--max-length",
                   str(MAX_TOKENS), "--window", "256", "--log-level", "warn", "--",
                   "sh", "-c", ask, "sh", os.path.join(BIN, "odbctl"), coverage, *command]
    print("\n--- %s" % NAMES[mode], flush=True)
    log_path = os.path.join(OUT, mode + ".log")
    begin = time.monotonic()
    with open(log_path, "w", encoding="utf-8") as log:
        try:
            code = subprocess.run(command, env=env, stdout=log, stderr=subprocess.STDOUT, timeout=DEADLINE_S,
                                  check=False).returncode
        except subprocess.TimeoutExpired:
            code = "no end after %d s" % DEADLINE_S
    if code != 0:
        with open(log_path, encoding="utf-8", errors="replace") as log:
            print("".join(log.readlines()[-40:]), file=sys.stderr)
        sys.exit("demo: %s failed (%s); its last lines are above, all of them in %s" % (mode, code, log_path))
    with open(result, encoding="utf-8") as handle:
        found = json.load(handle)
    found["wall"] = time.monotonic() - begin
    if mode == "odbd":
        with open(coverage, encoding="utf-8") as handle:
            found["coverage"] = json.load(handle)
    print("    %.0f samples/s, %d steps, %.0f s" % (found["samples"] / found["seconds"], found["steps"], found["wall"]))
    return found


def coverage_text(found, total):
    if "coverage" not in found:
        return "%d (last batch repeated)" % found["samples"] if found["samples"] != total else "%d of %d" % (total, total)
    said = found["coverage"]
    emitted, doubled = int(said.get("emitted", 0)), int(said.get("duplicates", 0))
    return "%d of %d, %s" % (emitted, total, "each once" if emitted == total and doubled == 0 else "%d doubled" % doubled)


def table(results, total):
    rows = [["", *(NAMES[r["mode"]] for r in results)]]
    real = [sum(h[1] for h in r["history"]) for r in results]
    padded = [sum(h[2] for h in r["history"]) for r in results]
    rows.append(["samples/s", *("%.0f" % (r["samples"] / r["seconds"]) for r in results)])
    rows.append(["real tokens/s", *("%.0f" % (t / r["seconds"]) for r, t in zip(results, real))])
    rows.append(["share of real tokens", *("%.1f %%" % (100 * t / p) for t, p in zip(real, padded))])
    rows.append(["fill of the budget", *("%.1f %%" % (100 * t / (r["steps"] * r["world"] * BUDGET))
                                         for r, t in zip(results, real))])
    rows.append(["optimizer steps", *(str(r["steps"]) for r in results)])
    rows.append(["IDLE", *(str(r["idle"]) if r["mode"] == "odbd" else "-" for r in results)])
    for quarter in range(4):
        row = ["held-out loss at %d %%" % (25 * (quarter + 1))]
        for r in results:
            losses = r["losses"][-1] if quarter == 3 else r["losses"][quarter]
            row.append("%.3f" % losses[1])
        rows.append(row)
    rows.append(["coverage", *(coverage_text(r, total) for r in results)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]).rstrip())


def picture(results, lengths, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    left.hist(lengths, bins=60, color="#4c72b0")
    left.set(title="Lengths of %d conversations" % len(lengths), xlabel="tokens", ylabel="conversations", yscale="log")
    for result, color in zip(results, ("#c44e52", "#dd8452", "#55a868")):
        share = [100 * (1 - h[1] / h[2]) for h in result["history"]]
        progress = [100 * (i + 1) / len(share) for i in range(len(share))]
        right.plot(progress, share, ".", markersize=3, color=color,
                   label="%s: %d steps" % (NAMES[result["mode"]], len(share)))
    right.set(title="Padding per step", xlabel="part of the epoch, %", ylabel="padding, % of the tokens computed",
              ylim=(-2, 100))
    right.legend(markerscale=4)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    os.makedirs(OUT, exist_ok=True)
    pairs = corpus.collect(MAX_TOKENS)
    train_pairs, held_out_pairs = pairs[HELD_OUT:HELD_OUT + TRAIN], pairs[:HELD_OUT]
    train, held_out = os.path.join(OUT, "train.jsonl"), os.path.join(OUT, "held_out.jsonl")
    corpus.write(train_pairs, train)
    corpus.write(held_out_pairs, held_out)
    lengths = [len(corpus.encode(*pair)[0]) for pair in train_pairs]
    print("%d conversations from Python's documentation strings, %d to %d tokens, mean %.0f; budget %d tokens a rank, "
          "fixed batch %d" % (len(lengths), min(lengths), max(lengths), sum(lengths) / len(lengths), BUDGET,
                              BUDGET // max(lengths)))
    results = [run(mode, train, held_out) for mode in ("fixed", "grouped", "odbd")]
    print("\nOne epoch, two ranks, the same model; loss at equal samples seen, rate scaled with the root of the batch:\n")
    table(results, len(lengths))
    path = os.path.join(OUT, "demo.png")
    picture(results, lengths, path)
    print("\nPicture: %s" % os.path.relpath(path, ROOT))


main()
