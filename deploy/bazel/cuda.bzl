"""cuda_configure: @cuda, which says whether there is CUDA and brings it.

    @cuda//:defs.bzl   HAVE_CUDA, HAVE_NCCL: a BUILD file loads them and picks its sources
    @cuda//:cudart     the runtime's headers and the static library (only with HAVE_CUDA)
    @cuda//:nccl       NCCL's header; the library is opened at run time (only with HAVE_NCCL)

ODB_CUDA=auto (default): there is CUDA if $CUDA_HOME or /usr/local/cuda has header and library.
ODB_CUDA=1 (--config=cuda): a missing toolkit is an error.
ODB_CUDA=0 (--config=nocuda): as on a machine without it.

No macro is defined: code that has to differ lies in different files. A driver or a GPU is not
looked for here; the static runtime finds them, or not, when the program runs.
"""

_DEFS = """HAVE_CUDA = %s
HAVE_NCCL = %s
"""

_PACKAGE = """package(default_visibility = ["//visibility:public"])
"""

# Not all of include/: thousands of headers for device code would be linked into each sandbox.
_CUDART = """
cc_library(
    name = "cudart",
    srcs = ["lib/libcudart_static.a"],
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
        "include/cccl/nv/**",
        "include/nv/**",
    ], allow_empty = True),
    includes = [
        "include",
        "include/cccl",
    ],
    linkopts = [
        "-ldl",
        "-lrt",
        "-lpthread",
    ],
)
"""

# A header in /usr/include needs no path. The library is opened with dlopen, so that one binary
# runs on machines with and without it.
_NCCL = """
cc_library(
    name = "nccl",
    linkopts = ["-ldl"],
    deps = [":cudart"],
)
"""

def _wanted(rctx):
    want = rctx.os.environ.get("ODB_CUDA", "") or "auto"
    if want not in ["auto", "0", "1"]:
        fail("ODB_CUDA must be auto, 0 or 1, got %r" % want)
    return want

def _impl(rctx):
    want = _wanted(rctx)
    home = rctx.os.environ.get("CUDA_HOME", "") or "/usr/local/cuda"
    header = home + "/include/cuda_runtime_api.h"
    library = home + "/lib64/libcudart_static.a"
    missing = [f for f in [header, library] if not rctx.path(f).exists]
    if want == "1" and missing:
        fail("--config=cuda: there is no %s (install the CUDA Toolkit, or set CUDA_HOME to where it is)" % missing[0])
    have_cuda = want != "0" and not missing
    have_nccl = have_cuda and (rctx.path(home + "/include/nccl.h").exists or
                               rctx.path("/usr/include/nccl.h").exists)

    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name)
    rctx.file("defs.bzl", _DEFS % (have_cuda, have_nccl), executable = False)
    if have_cuda:
        rctx.symlink(home + "/include", "include")
        rctx.symlink(library, "lib/libcudart_static.a")
    rctx.file(
        "BUILD.bazel",
        _PACKAGE + (_CUDART if have_cuda else "") + (_NCCL if have_nccl else ""),
        executable = False,
    )

cuda_configure = repository_rule(
    implementation = _impl,
    local = True,
    configure = True,
    environ = [
        "CUDA_HOME",
        "ODB_CUDA",
    ],
)
