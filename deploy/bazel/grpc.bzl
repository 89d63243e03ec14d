"""cc_grpc_library: protoc and grpc_cpp_plugin of the system, in one genrule."""

def cc_grpc_library(name, srcs, deps = [], grpc = True, visibility = None):
    """A cc_library of the .proto files in srcs.

    Import paths are relative to the workspace root, as are the C++ includes:
    proto/feed.proto becomes #include "proto/feed.pb.h".
    """
    outs_h = []
    outs_cc = []
    for s in srcs:
        base = s[:-len(".proto")]
        for ext in [".pb"] + ([".grpc.pb"] if grpc else []):
            outs_h.append(base + ext + ".h")
            outs_cc.append(base + ext + ".cc")
    native.filegroup(name = name + "_protos", srcs = srcs + [d + "_protos" for d in deps])
    native.genrule(
        name = name + "_gen",
        srcs = srcs + [d + "_protos" for d in deps],
        outs = outs_h + outs_cc,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR)" +
              (" --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR) " if grpc else " ") +
              " ".join(["$(location %s)" % s for s in srcs]),
        message = "protoc",
    )
    native.cc_library(
        name = name,
        srcs = outs_cc,
        hdrs = outs_h,
        copts = ["-w"],
        deps = deps + ["@grpc"],
        visibility = visibility,
    )
