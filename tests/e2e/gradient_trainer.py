"""Trains nothing: gradient_trainer.py OUT OPTIONS sums the gradients of an epoch under real DDP, in float64.

The model shifts labels as Hugging Face's do. Writes, on rank 0, OUT.0.json with the norm-wise relative difference of each
step's DDP gradient to the one of a single process on the same samples, and what kinds of steps were seen.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import odbd

VOCABULARY, WIDTH = 259, 16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.mix = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, labels, reduction="mean"):
        logits = self.head(self.mix(self.embedding(ids))[0])[:, :-1]
        return functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), ignore_index=-100,
                                        reduction=reduction)


def gradient(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def main():
    out, options = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model, alone = Model(), Model()
    alone.load_state_dict(model.state_dict())
    parallel = DistributedDataParallel(model)
    worst, steps, idle = 0.0, 0, 0
    with odbd.DataLoader() as loader:
        for batch in loader:
            model.zero_grad()
            (parallel(batch["input_ids"], batch["labels"]) * batch.step.loss_scale).backward()
            everything = [None] * world
            mine = None if batch.step.idle else (batch["input_ids"].clone(), batch["labels"].clone())
            dist.all_gather_object(everything, mine)
            steps, idle = steps + 1, idle + any(e is None for e in everything)
            if rank != 0:
                continue
            alone.zero_grad()
            total, counted = 0.0, 0
            for ids, labels in (e for e in everything if e is not None):
                total = total + alone(ids, labels, reduction="sum")
                counted += int((labels[:, 1:] != -100).sum())
            assert counted == batch.step.global_.loss_tokens
            (total / counted).backward()
            expected = gradient(alone)
            worst = max(worst, float((gradient(model) - expected).norm() / expected.norm()))
            if options.get("max_steps") == steps:
                break
    if rank == 0:
        with open(out + ".0.json", "w", encoding="utf-8") as handle:
            json.dump({"worst": worst, "steps": steps, "idle_steps": idle}, handle)
    dist.barrier()


main()
