"""What the loader benchmark reads: lengths as published, indexed corpora, conversations with a tokenizer of their own."""

import json
import os
import random
import struct
import sys

import numpy

ROOT = os.getcwd()  # bazel run starts it in the root of its runfiles
LONGEST = 8192
# name: mean length, coefficient of variation
LENGTHS = {
    "log-normal 0.48": (1000, 0.48),
    "log-normal 0.29": (600, 0.29),
    "log-normal 1.00": (1500, 1.00),
    "bimodal 0.80": (400, 0.80),
}
MARKERS = ("<|im_start|>", "<|im_end|>")


def last_level_cache_bytes():
    """Of one processor; 0 where the kernel does not say."""
    largest = 0
    folder = "/sys/devices/system/cpu/cpu0/cache"
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            with open(os.path.join(folder, name, "size"), encoding="utf-8") as size:
                largest = max(largest, int(size.read().strip().rstrip("K")) * 1024)
        except (OSError, ValueError):
            continue
    return largest


def lengths_of(name, count):
    source = numpy.random.default_rng(1)
    mean, cv = LENGTHS[name]
    if name.startswith("bimodal"):  # two normal humps around mean * (1 -+ cv)
        side = source.integers(0, 2, count) * 2 - 1
        drawn = mean * (1 + side * cv) + source.normal(0, mean * 0.1, count)
    else:
        sigma = numpy.sqrt(numpy.log(1 + cv * cv))
        drawn = source.lognormal(numpy.log(mean) - sigma * sigma / 2, sigma, count)
    return numpy.clip(drawn.astype(numpy.int64), 2, LONGEST)


def lengths_beyond_the_cache(name, count):
    """At least `count` of them, and so many that their file (4 bytes a token) is larger than the last-level cache."""
    while True:
        lengths = lengths_of(name, count)
        short = last_level_cache_bytes() * 5 // 4 - 4 * int(lengths.sum())
        if short <= 0:
            return lengths
        count += short // (4 * LENGTHS[name][0]) + 1000


def write_corpus(prefix, lengths):
    """An indexed corpus, as Megatron-LM writes it, and its offsets for the DataLoader."""
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    ids = numpy.random.default_rng(2).integers(0, 50000, int(offsets[-1]), dtype=numpy.int32)
    ids.tofile(prefix + ".bin")
    with open(prefix + ".idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(lengths), 2))
        index.write(lengths.astype("<i4").tobytes() + (offsets[:-1] * 4).astype("<i8").tobytes())
        index.write(numpy.array([0, len(lengths)], dtype="<i8").tobytes())
    numpy.save(prefix + ".offsets.npy", offsets)
    return ids.nbytes


def write_conversations(prefix, count):
    """Conversations of one to six turns out of Python's documentation strings, as the demo's, and the line offsets; trains
    the tokenizer beside them. No two are alike, but each turn comes back in others."""
    sys.path.insert(0, os.path.join(ROOT, "deploy", "demo"))
    import corpus

    pairs = corpus.collect(LONGEST)
    source = random.Random(3)
    offsets = [0]
    with open(prefix + ".jsonl", "wb") as out:
        for _ in range(count):
            messages = []
            for question, answer in source.sample(pairs, source.choice((1, 1, 2, 3, 4, 6))):
                messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            out.write(json.dumps({"messages": messages}, ensure_ascii=False).encode() + b"\n")
            offsets.append(out.tell())
    numpy.save(prefix + ".offsets.npy", numpy.array(offsets))
    train_tokenizer(prefix + ".model", pairs)


def train_tokenizer(path, pairs):
    """As Llama's: BPE, byte fallback, no normalization."""
    import io
    import sentencepiece

    model = io.BytesIO()
    lines = (line for pair in pairs[:2000] for line in "\n".join(pair).split("\n") if line)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, vocab_size=4000, model_type="bpe", byte_fallback=True,
                                             normalization_rule_name="identity", remove_extra_whitespaces=False, pad_id=3, num_threads=1,
                                             user_defined_symbols=list(MARKERS), minloglevel=2)
    with open(path, "wb") as out:
        out.write(model.getvalue())
