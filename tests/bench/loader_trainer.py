"""A trainer that only reads: the Python consumer of the loader benchmark (loader.py).

usage: loader_trainer.py '{"kind": "odbd" | "fixed" | "sorted", "epochs": 2, ...}'

The last epoch is measured. Prints `begin` when that begins, and one line of JSON when it is over, as loader_consumer.cc does.
With "think_s" it sleeps so many seconds over each step. With "checked", the epoch before adds up a checksum of the ids and labels of all its samples.
"""

import json
import os
import random
import sys
import time
import zlib

import numpy
import torch

IGNORED_LABEL = -100
FEW_SAMPLES = 20000
NO_PREFIX = b"\x1a\x02\x18\x00"  # behind a .model file: add_dummy_prefix = false, as odbd has it


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
        ids = torch.from_numpy(self.ids[self.offsets[index]:self.offsets[index + 1]].astype(numpy.int64))
        return ids, ids


class Conversations(torch.utils.data.Dataset):
    """The same conversations, template, masks and tokenizer as odbd's."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.offsets = numpy.load(prefix + ".offsets.npy")
        self.lines = None

    def __len__(self):
        return len(self.offsets) - 1

    def open(self):
        import sentencepiece

        self.lines = numpy.memmap(self.prefix + ".jsonl", dtype=numpy.uint8, mode="r")
        with open(self.prefix + ".model", "rb") as model:
            tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.read() + NO_PREFIX)
        self.encode = tokenizer.encode
        self.start, self.end = tokenizer.piece_to_id("<|im_start|>"), tokenizer.piece_to_id("<|im_end|>")
        self.line_break, self.assistant = self.encode("\n"), self.encode("assistant\n")

    def __getitem__(self, index):
        if self.lines is None:  # in the worker that uses it
            self.open()
        record = json.loads(self.lines[self.offsets[index]:self.offsets[index + 1]].tobytes())
        ids, labels = [], []
        for message in record["messages"]:
            if message["role"] == "assistant":
                answer = self.encode(message["content"]) + [self.end]
                ids += [self.start] + self.assistant + answer + self.line_break
                labels += [IGNORED_LABEL] * (1 + len(self.assistant)) + answer + [IGNORED_LABEL] * len(self.line_break)
            else:
                turn = [self.start] + self.encode(message["role"] + "\n" + message["content"]) + [self.end] + self.line_break
                ids += turn
                labels += [IGNORED_LABEL] * len(turn)
        return torch.tensor(ids, dtype=torch.int64), torch.tensor(labels, dtype=torch.int64)


def collate(samples):
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.zeros((len(samples), longest), dtype=torch.int64)
    labels = torch.full((len(samples), longest), IGNORED_LABEL, dtype=torch.int64)
    mask = torch.zeros((len(samples), longest), dtype=torch.int64)
    for row, (sample_ids, sample_labels) in enumerate(samples):
        count = len(sample_ids)
        ids[row, :count] = sample_ids
        labels[row, :count] = sample_labels
        mask[row, :count] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


class Batches:
    """The batches of one rank: of a fixed number of samples at random, or cut from the samples sorted by length."""

    def __init__(self, count, lengths, options):
        self.count, self.lengths, self.kind, self.budget = count, lengths, options["kind"], options["budget"]
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.uneven = options.get("checked", False)  # then every sample of the epoch is wanted
        self.epoch = 0

    def all(self):
        source = random.Random(self.epoch)
        order = list(range(self.count))
        if self.kind == "fixed":
            source.shuffle(order)
            # Where lengths are not known before: 16, as people write.
            size = 16 if self.lengths is None else max(1, self.budget // int(self.lengths.max()))
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
        if not self.uneven:
            batches = batches[: len(batches) // self.world_size * self.world_size]  # as many on every rank
        return iter(batches[self.rank::self.world_size])

    def __len__(self):
        return len(self.all()) // self.world_size


def torch_epochs(options):
    data = Conversations(options["prefix"]) if "tokenizer" in options else Corpus(options["prefix"])
    workers = options["workers"]
    count, lengths = len(data), data.lengths() if isinstance(data, Corpus) else None
    if workers and lengths is not None:  # a tenth as fast: a rate needs no longer epoch
        count = min(count, FEW_SAMPLES)
        lengths = lengths[:count]
    batches = Batches(count, lengths, options)
    prefetch = {"prefetch_factor": max(1, options["prefetch"] // workers)} if workers else {}
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches, num_workers=workers, collate_fn=collate,
                                         persistent_workers=workers > 0, **prefetch)
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


def is_idle(batch):
    return hasattr(batch, "step") and batch.step.idle


def checksum_of(batch):
    """The sum over the samples of one that is each one's own, whatever its batch and padding."""
    total = 0
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    for row, length in enumerate(lengths):
        ids = batch["input_ids"][row, :length].numpy()
        total += zlib.crc32(batch["labels"][row, :length].numpy().tobytes(), zlib.crc32(ids.tobytes()))
    return total


def measure(iterator, tokens_of, checked, think_s):
    said = {"begin": time.monotonic(), "loader_cpu": 0.0, "samples": 0, "tokens": 0, "padded": 0, "bytes": 0, "idle": 0, "checksum": 0,
            "waits": []}
    batch = None
    while True:
        wall, cpu = time.monotonic(), time.thread_time()
        batch = None  # its memory goes back, or is freed, as part of the loader's work
        batch = next(iterator, None)
        said["loader_cpu"] += time.thread_time() - cpu
        if batch is None:
            break
        now = time.monotonic()
        said["waits"].append(now - wall)
        said.setdefault("first", now)
        read = sum(read_every_line(batch[name]) for name in ("input_ids", "labels", "attention_mask"))
        if is_idle(batch):
            said["idle"] += 1
            continue
        said["bytes"] += read
        said["samples"] += batch["input_ids"].shape[0]
        said["padded"] += batch["input_ids"].numel()
        said["tokens"] += tokens_of(batch)
        if checked:
            said["checksum"] += checksum_of(batch)
        if think_s:
            time.sleep(think_s)
    said["end"] = time.monotonic()
    return said


def main():
    options = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    epochs = odbd_epochs(options) if options["kind"] == "odbd" else torch_epochs(options)
    first, checksum = None, 0
    for number, (iterator, tokens_of) in enumerate(epochs):
        last = number + 1 == options["epochs"]
        if last:
            print("begin", flush=True)
        said = measure(iterator, tokens_of, checked=options.get("checked", False) and not last,
                       think_s=options.get("think_s", 0))
        first = first or said["first"]
        checksum += said["checksum"]
        if last:
            print(json.dumps(dict(said, first=first, checksum=checksum)), flush=True)


main()
