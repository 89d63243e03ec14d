"""cuda_configure: @cuda//:cudart and @cuda//:nccl, real or stub.

ODB_CUDA=auto (default): real when $CUDA_HOME or /usr/local/cuda has the files.
ODB_CUDA=1 (--config=cuda): a missing toolkit is an error.
ODB_CUDA=0 (--config=nocuda): always the stub.
Code tests ODB_HAVE_CUDA / ODB_HAVE_NCCL, which are always defined (0 or 1).
"""

_STUB = """
package(default_visibility = ["//visibility:public"])
cc_library(name = "cudart", defines = ["ODB_HAVE_CUDA=0"])
cc_library(name = "nccl", defines = ["ODB_HAVE_NCCL=0"])
"""

_REAL = """
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "cudart",
    hdrs = glob(["include/**"]),
    defines = ["ODB_HAVE_CUDA=1"],
    includes = ["include"],
    srcs = ["lib/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
)
"""

# NCCL's headers only: libnccl.so.2 is opened with dlopen, so that one binary
# runs on machines with and without it.
_NCCL = """
cc_library(
    name = "nccl",
    hdrs = ["include/nccl.h"],
    defines = ["ODB_HAVE_NCCL=1"],
    includes = ["include"],
    linkopts = ["-ldl"],
    deps = [":cudart"],
)
"""
_NO_NCCL = """
cc_library(name = "nccl", defines = ["ODB_HAVE_NCCL=0"])
"""

def _impl(rctx):
    want = rctx.os.environ.get("ODB_CUDA", "auto")
    home = rctx.os.environ.get("CUDA_HOME", "") or "/usr/local/cuda"
    have = rctx.path(home + "/include/cuda_runtime_api.h").exists and \
           rctx.path(home + "/lib64/libcudart_static.a").exists
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name)
    if want == "1" and not have:
        fail("--config=cuda: no CUDA Toolkit under %s (set CUDA_HOME)" % home)
    if want == "0" or not have:
        rctx.file("BUILD.bazel", _STUB)
        return
    rctx.symlink(home + "/include", "include")
    rctx.symlink(home + "/lib64/libcudart_static.a", "lib/libcudart_static.a")
    has_nccl = rctx.path(home + "/include/nccl.h").exists
    if not has_nccl and rctx.path("/usr/include/nccl.h").exists:
        fail("unsupported: nccl.h outside CUDA_HOME")  # add an include dir for it here
    rctx.file("BUILD.bazel", _REAL + (_NCCL if has_nccl else _NO_NCCL))

cuda_configure = repository_rule(
    implementation = _impl,
    local = True,
    configure = True,
    environ = ["CUDA_HOME", "ODB_CUDA"],
)
