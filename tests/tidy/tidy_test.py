"""Checks what Bazel and the compiler cannot: who may include what, and the rules of the house.

Every rule is a function that yields complaints; each has a self-test that shows that it can fail.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.realpath(os.environ.get("ODB_TIDY_WORKSPACE", "WORKSPACE")))
SKIPPED_FOLDERS = {".git", "out", "testdata", "__pycache__", "node_modules"}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)

# Our own folders that a folder may include. The longest matching prefix of a file decides.
ALLOWED = {
    "base": ["base"],
    "base/os": ["base"],
    "batching": ["base", "batching"],
    "proto/wire": ["base", "batching", "proto/wire"],
    "aligner/protocol": ["base", "batching", "aligner/protocol"],
    "aligner/transport": ["base", "batching", "proto", "aligner/protocol", "aligner/transport"],
    "aligner/daemon": ["base", "batching", "proto", "aligner"],
    "server/sources": ["base", "batching", "proto", "server/sources"],
    "server/preprocess": ["base", "batching", "proto", "server/sources", "server/preprocess"],
    "server/pipeline": ["base", "batching", "proto", "server/sources", "server/preprocess", "server/pipeline"],
    "server/delivery": ["base", "batching", "proto", "server/sources", "server/preprocess", "server/pipeline",
                        "server/delivery"],
    "server/metrics": ["base", "batching", "proto", "server"],
    "server/service": ["base", "batching", "proto", "server"],
    "server/daemon": ["base", "batching", "proto", "server"],
    "client": ["base", "proto", "client"],
}
# Foreign headers that only some folders may see.
ONLY_IN = [
    (re.compile(r"^gloo/"), ["aligner/transport/gloo", "tests"]),
    (re.compile(r"^(cuda|nccl)"), ["client/cuda", "tests"]),
    (re.compile(r"^prometheus/"), ["server/metrics"]),
    (re.compile(r"^grpc(pp)?/"), ["aligner", "server/service", "server/daemon", "client", "tests"]),
    (re.compile(r"^spdlog/"), ["aligner/transport", "aligner/daemon", "server", "client", "tests"]),
]
PURE = ("batching/", "aligner/protocol/")
IMPURE_HEADERS = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|atomic|future|chrono|fstream|iostream|filesystem|random|"
    r"ctime|unistd\.h|pthread\.h|base/os/.*|base/clock\.h|absl/time/clock\.h|absl/synchronization/.*)$")
IMPURE_WORDS = re.compile(r"\b(std::shuffle|std::hash|std::unordered_\w+|absl::flat_hash_\w+|absl::Now|rand\(|time\(nullptr)")
FLOATING = re.compile(r"\b(float|double)\b")
FLOAT_FILES = ("batching/loss_scale",)  # a factor for the trainer, not a decision


def source_files():
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS and not n.startswith("bazel-"))
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if not path.startswith("."):
                yield path


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as handle:
        return handle.read()


def code_of(text):
    """The text without comments and string literals, good enough for word rules."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.DOTALL)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def is_test(path):
    return path.startswith("tests/") or "/testing/" in path or re.search(r"_test\.(cc|c|py)$", path) is not None


def home_of(path):
    return max((p for p in ALLOWED if path.startswith(p + "/")), key=len, default=None)


def check_includes(path, text):
    if is_test(path):
        return
    home = home_of(path)
    for _, header in INCLUDE.findall(text):
        top = header.split("/")[0]
        if home and top in ("base", "batching", "aligner", "server", "client", "proto", "tests"):
            if not any(header.startswith(a + "/") for a in ALLOWED[home]):
                yield "%s: %s may not include %s" % (path, home, header)
        if home == "base" and header.startswith("base/os/"):
            yield "%s: base may not include base/os, got %s" % (path, header)
        for pattern, folders in ONLY_IN:
            if pattern.match(header) and not any(path.startswith(f + "/") for f in folders):
                yield "%s: %s may be included in %s only" % (path, header, ", ".join(folders))


def check_purity(path, text):
    if not path.startswith(PURE) or is_test(path):
        return
    for _, header in INCLUDE.findall(text):
        if IMPURE_HEADERS.match(header):
            yield "%s: a decision may not see %s" % (path, header)
    code = code_of(text)
    for match in IMPURE_WORDS.finditer(code):
        yield "%s: a decision may not use %s" % (path, match.group(0))
    if not path.startswith(FLOAT_FILES) and FLOATING.search(code):
        yield "%s: floating point may not decide" % path


def check_words(path, text):
    code = code_of(text)
    if re.search(r"#\s*if(def)?\b.*ODB_HAVE_", text) and not path.startswith(("client/cuda/", "tests/")):
        yield "%s: CUDA and NCCL are chosen by the build, not by #if in shared code" % path
    if is_test(path) and path != "tests/support/wait_until.h" and re.search(r"\b(sleep_for|sleep_until|usleep|nanosleep|absl::SleepFor)\b", code):
        yield "%s: tests wait for something, they do not sleep" % path
    if not path.startswith("base/os/mutex") and re.search(r"\babsl::(Mutex|CondVar)\b", code):
        yield "%s: locks are base/os/mutex.h (ThreadSanitizer cannot see absl::Mutex)" % path


def check_header(path, text):
    if path.endswith(".h") and not text.lstrip().startswith(("#pragma once", "//", "#ifndef", "/*")):
        yield "%s: a header begins with #pragma once or its comment" % path


def check_readmes(paths):
    folders = {}
    for path in paths:
        if path.endswith((".cc", ".h", ".py", ".proto")):
            folders.setdefault(os.path.dirname(path), []).append(path)
    for folder, files in sorted(folders.items()):
        while folder and not os.path.exists(os.path.join(ROOT, folder, "README.md")):
            parent = os.path.dirname(folder)
            if len(files) > 3 and parent in ("", "server", "aligner", "client", "base", "tests"):
                yield "%s: no README.md" % folder
                break
            folder = parent


def check_configuration(path, text):
    """Every field of Config stands in the page for users, as a key in backquotes."""
    message = re.search(r"message Config \{(.*?)\n\}", read("proto/odb/v1/config.proto"), re.DOTALL).group(1)
    for field in re.findall(r"^  (?:optional|repeated) \w+ (\w+) = \d+;", message, re.MULTILINE):
        if not re.search(r"^\| `%s` \|" % field, text, re.MULTILINE):
            yield "%s: no row for the key %s of config.proto" % (path, field)


def check_metrics(path, text):
    """Every name that Prometheus is given stands in the page for operators."""
    source = read("server/metrics/metric_families.cc")
    for names in re.findall(r'(?:Gauge|States)\(\s*"(\w+)"|MetricType::\w+,\s*"(\w+)"', source):
        name = "odbd_" + "".join(names)
        if "`%s`" % name not in text:
            yield "%s: no word on %s" % (path, name)


SELF_TESTS = [
    (check_metrics, "docs/operations.md", "| `odbd_info` |\n"),
    (check_configuration, "docs/configuration.md", "| `data` | |\n"),
    (check_includes, "server/pipeline/a.cc", '#include "aligner/protocol/alignment_machine.h"\n'),
    (check_includes, "client/a.cc", '#include "batching/plan.h"\n'),
    (check_includes, "server/daemon/a.cc", "#include <gloo/context.h>\n"),
    (check_includes, "base/a.h", '#include "base/os/mutex.h"\n'),
    (check_purity, "batching/a.cc", "#include <mutex>\n"),
    (check_purity, "batching/a.cc", "double x;\n"),
    (check_purity, "aligner/protocol/a.cc", "std::unordered_map<int, int> m;\n"),
    (check_words, "server/a.cc", "#if ODB_HAVE_CUDA\n"),
    (check_words, "server/a_test.cc", "std::this_thread::sleep_for(x);\n"),
    (check_words, "server/a.cc", "absl::Mutex m;\n"),
    (check_header, "base/a.h", "int x;\n"),
]


def main():
    complaints = []
    for rule, path, text in SELF_TESTS:
        if not list(rule(path, text)):
            complaints.append("%s cannot fail: it accepts %r in %s" % (rule.__name__, text, path))
    paths = list(source_files())
    checked = 0
    for path in paths:
        if not path.endswith((".cc", ".h", ".c")):
            continue
        checked += 1
        text = read(path)
        for rule in (check_includes, check_purity, check_words, check_header):
            complaints.extend(rule(path, text))
    complaints.extend(check_configuration("docs/configuration.md", read("docs/configuration.md")))
    complaints.extend(check_metrics("docs/operations.md", read("docs/operations.md")))
    complaints.extend(check_readmes(paths))
    for complaint in complaints:
        print(complaint)
    print("tidy: %d files checked, %d complaints" % (checked, len(complaints)))
    return 1 if complaints or checked == 0 else 0


sys.exit(main())
