"""VECTORISED: copts of the few files whose loops run over every token or byte of the payload.

gcc 12 vectorises loops of unknown length only from -O3 on; -c opt means -O2. Measured on the machine of docs/benchmarks.md: int32 ids to
int64 tensors in the cache 7 -> 21 GB/s.
"""

VECTORISED = select({
    "//deploy/bazel:optimized": ["-O3"],
    "//conditions:default": [],
})
