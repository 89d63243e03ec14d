"""Trains with collectives and evaluates in the middle: streams_trainer.py OUT OPTIONS(json). Rank r writes OUT.<r>.json.

Options: eval_at (training steps before the evaluation), eval_ranks (who evaluates), stream ("eval").
"""

import json
import os
import sys

import odbd
import torch
import torch.distributed as dist


def evaluate(stream):
    """One epoch of another stream, beside the loader that is open."""
    with odbd.DataLoader(stream=stream, timeout=100) as loader:
        steps = [{"ids": [list(i) for i in batch.sample_ids], "stand_in": batch.is_stand_in, "dp_size": batch.step.dp_size,
                  "loss_scale": batch.step.loss_scale, "local": list(batch.step.local), "global": list(batch.step.global_)}
                 for batch in loader]
        return {"records": loader.records, "steps": steps}


def all_reduced(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return int(total)


def train(loader, rank, options):
    steps = []
    evaluation = None
    for batch in loader:
        assert all_reduced(len(batch.sample_ids)) == batch.step.global_.samples, "the ranks are at different steps"
        steps.append([list(i) for i in batch.sample_ids])
        if len(steps) == options["eval_at"] and rank in options["eval_ranks"]:
            evaluation = evaluate(options.get("stream", "eval"))
    return {"rank": rank, "train": steps, "evaluation": evaluation}


def main():
    out, options = sys.argv[1], json.loads(sys.argv[2])
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    with odbd.DataLoader(timeout=100, connect_timeout=30) as loader:
        record = train(loader, rank, options)
    with open("%s.%d.json" % (out, rank), "w", encoding="utf-8") as handle:
        json.dump(record, handle)


main()
