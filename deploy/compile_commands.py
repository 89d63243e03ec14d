#!/usr/bin/python3
"""Writes compile_commands.json for clangd and clang-tidy from bazel aquery."""
import json
import os
import subprocess
import sys

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
flags = sys.argv[1:]


def bazel(*args):
    return subprocess.run(["bazel", *args], cwd=root, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout


base = bazel("info", "output_base").strip()
out = json.loads(bazel("aquery", *flags, "--output=jsonproto", 'mnemonic("CppCompile", deps(//...))'))
frags = {f["id"]: f for f in out["pathFragments"]}


def path(i):
    parts = []
    while i:
        f = frags[i]
        parts.append(f["label"])
        i = f.get("parentId")
    return "/".join(reversed(parts))


arts = {a["id"]: path(a["pathFragmentId"]) for a in out["artifacts"]}
entries = {}
for action in out["actions"]:
    args = action["arguments"]
    if "-c" not in args:
        continue
    src = args[args.index("-c") + 1]
    if src.startswith("external/"):
        continue
    # external/ lives in the output base, not in the workspace
    args = [a if not a.startswith("external/") else os.path.join(base, a) for a in args]
    args = [a for a in args if a not in ("-fno-canonical-system-headers",)]
    if src not in entries or "-exec-" not in args[args.index("-o") + 1]:
        entries[src] = {"directory": root, "file": src, "arguments": args}
with open(os.path.join(root, "compile_commands.json"), "w") as f:
    json.dump(list(entries.values()), f, indent=1)
print("%d entries" % len(entries))
