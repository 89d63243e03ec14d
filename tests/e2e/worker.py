"""A trainer that records what it was given: worker.py OUT OPTIONS(json). Rank r writes OUT.<r>.json.

Options: epochs (1), replicas (1), idle ("stand-in"), max_steps, max_samples, pause_at (step index) with pause_s and pause_rank,
random_sleep_ms (only while the file slow_while exists, if given), break_at ({rank: taken}), hold (batches kept), mark_at (step at
which OUT.<r>.mark is written and the rank stops itself until it gets SIGCONT), expect_error (record the error instead of failing),
content (hash the tensors; default true), look_ahead ({rank: true}: looks at the next step before it breaks, as who copies it to a
GPU does).
"""

import ctypes
import hashlib
import json
import os
import random
import signal
import sys
import time

import odbd


def describe(batch, with_content):
    step = batch.step
    said = {
        "index": step.index, "idle": step.idle, "round": step.round, "ids": [list(i) for i in step.sample_ids],
        "local": list(step.local), "global": list(step.global_), "loss_scale": step.loss_scale,
        "progress": [step.emitted_samples, step.total_samples], "window": [step.window_index, step.window_steps],
        "window_global": list(step.window_global),
    }
    if with_content:
        digest = hashlib.sha256()
        for name in sorted(batch):
            array = batch[name]
            digest.update(name.encode() + str(array.shape).encode() + array.tobytes())
        said["content"] = digest.hexdigest()
        if not step.idle:
            ids, labels, mask = batch["input_ids"], batch["labels"], batch["attention_mask"]
            assert ids.shape == labels.shape == mask.shape, "shapes differ"
            assert int(mask.sum()) == step.local.tokens, "attention_mask does not count the tokens"
            assert int((labels[:, 1:] != -100).sum()) == step.local.loss_tokens, "labels do not count the loss tokens"
            assert ids.size == step.local.padded_tokens, "padded tokens"
    return said


def look_ahead(loader):
    handle, end = ctypes.c_void_p(), time.monotonic() + 60
    while loader._client.call(loader._library.odb_client_peek, ctypes.byref(handle)) != 0:
        assert time.monotonic() < end, "no step to look at"
    loader._maker.release(handle.value)


def main():
    out, options = sys.argv[1], json.loads(sys.argv[2])
    rank = int(os.environ["RANK"])
    sleeper = random.Random(rank + options.get("sleep_seed", 0))
    record = {"rank": rank, "epochs": [], "pid": os.getpid()}
    path = "%s.%d.json" % (out, rank)
    loader = None
    try:
        loader = odbd.DataLoader(tensors="numpy", idle=options.get("idle", "stand-in"), replicas=options.get("replicas"),
                                 max_steps=options.get("max_steps"), max_samples=options.get("max_samples"),
                                 timeout=options.get("timeout", 100), connect_timeout=30)
        record["estimated_steps"] = loader.estimated_steps
        held = []
        for epoch in range(options.get("epochs", 1)):
            loader.set_epoch(epoch)
            steps = []
            record["epochs"].append({"steps": steps})
            stop = options.get("break_at", {}).get(str(rank), 0) if epoch == 0 else 0
            for batch in loader:
                steps.append(describe(batch, options.get("content", True)))
                if options.get("hold"):
                    held = (held + [batch])[-options["hold"]:]
                if options.get("random_sleep_ms") and os.path.exists(options.get("slow_while", "/")):
                    time.sleep(sleeper.random() * options["random_sleep_ms"] / 1000)
                if options.get("pause_rank") == rank and len(steps) == options.get("pause_at"):
                    time.sleep(options["pause_s"])
                if len(steps) == options.get("mark_at"):
                    with open("%s.%d.mark" % (out, rank), "w", encoding="utf-8") as mark:
                        mark.write(str(os.getpid()))
                    if not options.get("run_on"):
                        os.kill(os.getpid(), signal.SIGSTOP)
                if stop and len(steps) == stop:
                    if options.get("look_ahead", {}).get(str(rank)):
                        look_ahead(loader)
                    break
        held.clear()
        loader.close()
    except odbd.Error as error:
        record["error"] = {"code": error.code, "text": str(error)}
        if not options.get("expect_error"):
            raise
    finally:
        with open(path + ".tmp", "w", encoding="utf-8") as handle:
            json.dump(record, handle)
        os.rename(path + ".tmp", path)


main()
