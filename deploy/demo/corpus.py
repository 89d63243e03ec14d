"""Conversations out of the documentation strings of Python's standard library.

Question: a signature; answer: its docstring. Found on every machine that has Python, in one
language, with the long tail of lengths that real fine-tuning data has.
"""

import ast
import json
import os
import random
import sysconfig

# What odbd's byte tokenizer gives: bytes, and three special tokens.
PAD, IM_START, IM_END = 256, 257, 258
IGNORED = -100


def _signature(node):
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return "class %s(%s)" % (node.name, bases)
    return "def %s(%s)" % (node.name, ast.unparse(node.args))


def _documented(path):
    try:
        with open(path, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            answer = ast.get_docstring(node)
            if answer:
                yield _signature(node), answer


def collect(max_tokens):
    """All distinct conversations of at most max_tokens tokens, in an order that never changes."""
    root = sysconfig.get_path("stdlib")
    found = set()
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if n not in ("dist-packages", "site-packages", "test", "tests", "__pycache__")]
        for name in files:
            if name.endswith(".py"):
                found.update(_documented(os.path.join(folder, name)))
    pairs = [pair for pair in sorted(found) if len(encode(*pair)[0]) <= max_tokens]
    random.Random(7).shuffle(pairs)
    return pairs


def write(pairs, path):
    with open(path, "w", encoding="utf-8") as out:
        for question, answer in pairs:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [tuple(turn["content"] for turn in json.loads(line)["messages"]) for line in lines]


def encode(question, answer):
    """ids and labels exactly as odbd makes them: ChatML, bytes, the loss on the answer only."""
    ids, labels = [], []
    for role, text, trained in (("user", question, False), ("assistant", answer, True)):
        head = [IM_START, *(role + "\n").encode()]
        body = [*text.encode(), IM_END]
        tail = list(b"\n")
        ids += head + body + tail
        labels += [IGNORED] * len(head) + (body if trained else [IGNORED] * len(body)) + [IGNORED] * len(tail)
    return ids, labels
