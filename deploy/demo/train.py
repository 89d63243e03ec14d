"""Trains a small causal transformer on one rank of a torchrun job; see demo.py.

    train.py MODE CORPUS HELD_OUT RESULT       MODE: fixed | grouped | odbd
"""

import json
import math
import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import corpus

BUDGET = int(os.environ.get("DEMO_BUDGET", "4096"))
WIDTH, LAYERS, HEADS, VOCABULARY = 32, 2, 2, 259
BASE_RATE, BASE_SAMPLES = 1.5e-3, 8  # the rate grows with the square root of the samples in a step
EVALUATIONS = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, causal):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        mixed = scores.masked_fill(causal, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Padding stands on the right, so a causal mask is all the masking it needs."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(4096, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, labels, reduction="mean"):
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.positions(torch.arange(length))
        for block in self.blocks:
            x = block(x, causal)
        logits = self.head(self.norm(x))[:, :-1]  # position i predicts label i + 1, as Hugging Face's models do
        return functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1),
                                        ignore_index=corpus.IGNORED, reduction=reduction)


class Conversations(torch.utils.data.Dataset):
    def __init__(self, path):
        self.samples = [corpus.encode(*pair) for pair in corpus.read(path)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collate(samples):
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.full((len(samples), longest), corpus.PAD)
    labels = torch.full((len(samples), longest), corpus.IGNORED)
    for row, (sample_ids, sample_labels) in enumerate(samples):
        ids[row, :len(sample_ids)] = torch.tensor(sample_ids)
        labels[row, :len(sample_labels)] = torch.tensor(sample_labels)
    return {"input_ids": ids, "labels": labels, "tokens": sum(len(s[0]) for s in samples)}


def fixed_batches(lengths, grouped, rank, world):
    """Batches of the largest fixed size that respects the budget; every rank has as many."""
    size = max(1, BUDGET // max(lengths))
    order = list(range(len(lengths)))
    random.Random(1).shuffle(order)
    if grouped:  # neighbours in length share a batch; the batches come in random order
        order.sort(key=lambda i: lengths[i])
    batches = [order[i:i + size] for i in range(0, len(order), size)]
    random.Random(2).shuffle(batches)
    mine = batches[rank::world]
    while len(mine) < math.ceil(len(batches) / world):
        mine.append(batches[0])  # what DistributedSampler does: repeat until ranks are equal
    return mine


def steps_of_torch(path, grouped, rank, world):
    """(ids, labels, loss scale, samples and real and padded tokens of all ranks, idle) per step."""
    data = Conversations(path)
    batches = fixed_batches([len(ids) for ids, _ in data.samples], grouped, rank, world)
    for batch in torch.utils.data.DataLoader(data, batch_sampler=batches, collate_fn=collate):
        counts = torch.tensor([batch["input_ids"].shape[0], batch["tokens"], batch["input_ids"].numel()])
        dist.all_reduce(counts)
        yield batch["input_ids"], batch["labels"], 1.0, counts.tolist(), 0


def steps_of_odbd(_path, _rank, _world):
    import odbd

    with odbd.DataLoader() as loader:
        loader.set_epoch(0)
        for batch in loader:
            step = batch.step
            counts = [step.global_.samples, step.global_.tokens, step.global_.padded_tokens]
            yield batch["input_ids"], batch["labels"], step.loss_scale, counts, int(step.idle)


def held_out_loss(model, batches):
    """Mean over all counted tokens of the held-out conversations."""
    with torch.no_grad():
        total = sum(model(b["input_ids"], b["labels"], reduction="sum").item() for b in batches)
    counted = sum((b["labels"][:, 1:] != corpus.IGNORED).sum().item() for b in batches)
    return total / counted


def main():
    mode, corpus_path, held_out_path, result_path = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Transformer()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=BASE_RATE)
    held_out = sorted(Conversations(held_out_path).samples, key=lambda s: len(s[0]))
    held_out = [collate(held_out[i:i + 16]) for i in range(0, len(held_out), 16)]
    total = sum(1 for _ in open(corpus_path, encoding="utf-8"))

    steps = steps_of_odbd(corpus_path, rank, world) if mode == "odbd" else steps_of_torch(
        corpus_path, mode == "grouped", rank, world)
    seen, idle, seconds, history, losses = 0, 0, 0.0, [], []
    begin = time.monotonic()
    for ids, labels, scale, counts, is_idle in steps:
        for group in optimizer.param_groups:
            group["lr"] = BASE_RATE * math.sqrt(counts[0] / BASE_SAMPLES) * max(0.05, 1 - seen / total)
        (parallel(ids, labels) * scale).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen, idle = seen + counts[0], idle + is_idle
        history.append(counts)
        if seen * EVALUATIONS >= total * (len(losses) + 1):
            seconds += time.monotonic() - begin  # evaluation does not count
            if rank == 0:
                losses.append([seen, held_out_loss(model, held_out)])
            else:
                losses.append(None)
            dist.barrier()
            begin = time.monotonic()
    seconds += time.monotonic() - begin
    idle = torch.tensor([idle])
    dist.all_reduce(idle)
    if rank == 0:
        if losses and losses[-1][0] != seen:
            losses.append([seen, held_out_loss(model, held_out)])
        with open(result_path, "w", encoding="utf-8") as out:
            json.dump({"mode": mode, "seconds": seconds, "samples": seen, "steps": len(history), "world": world,
                       "idle": int(idle), "history": history, "losses": losses, "budget": BUDGET}, out)
    dist.barrier()
    dist.destroy_process_group()


main()
