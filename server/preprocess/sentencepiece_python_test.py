"""Ids of random texts against those of Debian's python3-sentencepiece: a BPE model as Llama's, and a unigram model that
normalizes its texts.

usage: sentencepiece_python_test.py path/of/tokenizer_ids
"""

import io
import os
import random
import subprocess
import sys

import sentencepiece

MODEL = "server/preprocess/testdata/docstrings.model"
NO_PREFIX = b"\x1a\x02\x18\x00"  # merged into the file's normalizer_spec: add_dummy_prefix = false
MARKERS = ("<|im_start|>", "<|im_end|>")
WORDS = ("return", "the", "a", "list", "of", "self", "None", "def __init__(self, name=None):", "e\u0301", "\ufb01", "\u2581", "\u3000", "\uff21",
         "\u4f60\u597d", "\U0001f600", "<|im_end", "<unk>", "<s>", "<0x0A>", "\u00b4", "\u0301", "x" * 40)


def random_text(source):
    parts = []
    for _ in range(source.randrange(40)):
        kind = source.randrange(6)
        if kind == 0:
            parts.append(chr(source.choice((source.randrange(32, 127), source.randrange(0xA0, 0xD800), source.randrange(0x10000, 0x20000)))))
        elif kind == 1:
            parts.append(source.choice((" ", "  ", "    ", "\n", "\t", "\n\n    ")))
        else:
            parts.append(source.choice((" ", "")) + source.choice(WORDS))
    return "".join(parts)


def texts():
    source = random.Random(11)
    made = [random_text(source) for _ in range(3000)]
    with open(os.__file__, encoding="utf-8") as own:  # real text, with long pieces
        made.append(own.read())
    return [text for text in made if not any(marker in text for marker in MARKERS)]


def our_ids(program, model, wanted):
    request = b"".join(b"%d 0\n" % len(text) + text for text in (t.encode() for t in wanted))
    done = subprocess.run([program, model], input=request, stdout=subprocess.PIPE, check=True, timeout=120)
    return [[int(i) for i in line.split()] for line in done.stdout.decode().split("\n")[:-1]]


def compare(program, path, wanted):
    with open(path, "rb") as file:
        library = sentencepiece.SentencePieceProcessor(model_proto=file.read() + NO_PREFIX)
    got = our_ids(program, path, wanted)
    assert len(got) == len(wanted), "%d texts, %d answers" % (len(wanted), len(got))
    for text, ids in zip(wanted, got):
        assert ids == library.encode(text), "%r: %s, not %s" % (text[:200], ids[:50], library.encode(text)[:50])
    print("%s: %d texts, %d tokens are equal" % (path, len(wanted), sum(map(len, got))))


def unigram_model(folder):
    model = io.BytesIO()
    with open(os.__file__, encoding="utf-8") as own:
        lines = [line for line in own.read().split("\n") if line.strip()]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=600, num_threads=1, minloglevel=2,
                                             model_type="unigram")
    path = os.path.join(folder, "unigram.model")
    with open(path, "wb") as file:
        file.write(model.getvalue())
    return path


def main():
    program, wanted = sys.argv[1], texts()
    compare(program, MODEL, wanted)
    compare(program, unigram_model(os.environ.get("TEST_TMPDIR", ".")), wanted)


main()
