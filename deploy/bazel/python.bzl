"""system_py_test: a Python test run by /usr/bin/python3 from the workspace root."""

def system_py_test(name, main, data = [], args = [], tags = [], **kwargs):
    native.sh_test(
        name = name,
        srcs = ["//deploy/bazel:run_python.sh"],
        args = ["$(location %s)" % main] + args,
        data = [main] + data,
        # An ASAN-built .so cannot be loaded by an ordinary Python.
        tags = tags + ["no-sanitizer"],
        **kwargs
    )
