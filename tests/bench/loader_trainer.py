"""A trainer that only reads: the Python consumer of the loader benchmark (loader.py).

usage: loader_trainer.py '{"kind": "odbd" | "fixed" | "sorted", "epochs": 2, ...}'

The last epoch is measured. Prints `begin` when that begins, and one line of JSON when it is over, as loader_consumer.cc does.
"""

import json
import os
import random
import sys
import time

import numpy
import torch

IGNORED_LABEL = -100


class Corpus(torch.utils.data.Dataset):
    """The same memory-mapped file that odbd reads."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.offsets = numpy.load(prefix + ".offsets.npy")
        self.ids = None

    def __len__(self):
        return len(self.offsets) - 1

    def lengths(self):
        return self.offsets[1:] - self.offsets[:-1]

    def __getitem__(self, index):
        if self.ids is None:  # in the worker that uses it
            self.ids = numpy.memmap(self.prefix + ".bin", dtype=numpy.int32, mode="r")
        return torch.from_numpy(self.ids[self.offsets[index]:self.offsets[index + 1]].astype(numpy.int64))


def collate(samples):
    longest = max(len(sample) for sample in samples)
    ids = torch.zeros((len(samples), longest), dtype=torch.int64)
    labels = torch.full((len(samples), longest), IGNORED_LABEL, dtype=torch.int64)
    mask = torch.zeros((len(samples), longest), dtype=torch.int64)
    for row, sample in enumerate(samples):
        count = len(sample)
        ids[row, :count] = sample
        labels[row, :count] = sample
        mask[row, :count] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


class Batches:
    """The batches of one rank: of a fixed number of samples at random, or cut from the samples sorted by length."""

    def __init__(self, lengths, kind, budget, rank, world_size):
        self.lengths, self.kind, self.budget, self.rank, self.world_size = lengths, kind, budget, rank, world_size
        self.epoch = 0

    def all(self):
        source = random.Random(self.epoch)
        order = list(range(len(self.lengths)))
        if self.kind == "fixed":
            source.shuffle(order)
            size = max(1, self.budget // int(self.lengths.max()))
            return [order[i:i + size] for i in range(0, len(order), size)]
        order.sort(key=lambda i: self.lengths[i])
        batches, batch = [], []
        for index in order:
            if batch and (len(batch) + 1) * int(self.lengths[index]) > self.budget:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
        source.shuffle(batches)
        return batches

    def __iter__(self):
        batches = self.all()
        batches = batches[: len(batches) // self.world_size * self.world_size]  # as many on every rank
        return iter(batches[self.rank::self.world_size])

    def __len__(self):
        return len(self.all()) // self.world_size


def torch_epochs(options):
    corpus = Corpus(options["prefix"])
    batches = Batches(corpus.lengths(), options["kind"], options["budget"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    workers = options["workers"]
    loader = torch.utils.data.DataLoader(corpus, batch_sampler=batches, num_workers=workers, collate_fn=collate,
                                         persistent_workers=workers > 0)
    for epoch in range(options["epochs"]):
        batches.epoch = epoch
        yield iter(loader), lambda batch: int(batch["attention_mask"].sum())


def odbd_epochs(options):
    import odbd

    with odbd.DataLoader(connect_timeout=60, timeout=120) as loader:
        for epoch in range(options["epochs"]):
            loader.set_epoch(epoch)
            yield iter(loader), lambda batch: batch.step.local.tokens


def read_every_line(tensor):
    """One element of every 64 bytes; returns the bytes of the tensor."""
    flat = tensor.view(-1)
    flat[:: max(1, 64 // flat.element_size())].sum()
    return flat.numel() * flat.element_size()


def measure(iterator, tokens_of):
    said = {"begin": time.monotonic(), "loader_cpu": 0.0, "samples": 0, "tokens": 0, "padded": 0, "bytes": 0, "idle": 0, "waits": []}
    batch = None
    while True:
        wall, cpu = time.monotonic(), time.thread_time()
        batch = None  # its memory goes back, or is freed, as part of the loader's work
        batch = next(iterator, None)
        said["loader_cpu"] += time.thread_time() - cpu
        if batch is None:
            break
        said["waits"].append(time.monotonic() - wall)
        read = sum(read_every_line(batch[name]) for name in ("input_ids", "labels", "attention_mask"))
        if hasattr(batch, "step") and batch.step.idle:
            said["idle"] += 1
            continue
        said["bytes"] += read
        said["samples"] += batch["input_ids"].shape[0]
        said["padded"] += batch["input_ids"].numel()
        said["tokens"] += tokens_of(batch)
    said["end"] = time.monotonic()
    return said


def main():
    options = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    epochs = odbd_epochs(options) if options["kind"] == "odbd" else torch_epochs(options)
    for number, (iterator, tokens_of) in enumerate(epochs):
        last = number + 1 == options["epochs"]
        if last:
            print("begin", flush=True)
        said = measure(iterator, tokens_of)
        if last:
            print(json.dumps(said), flush=True)


main()
