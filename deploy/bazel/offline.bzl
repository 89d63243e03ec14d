"""Repositories that Bazel itself wants, taken from Debian's bazel-* packages.

Debian ships Bazel 4.2.3 (bazel-bootstrap). A C++ workspace needs three
repositories that a stock Bazel would download:
  * rules_cc: Debian's 0.0.4 loads symbols that Bazel 4.2.3 lacks, so @rules_cc
    is a file of re-exports of the native rules;
  * remote_coverage_tools is not packaged, so it is an empty filegroup (every
    test rule has an implicit dependency on it);
  * rules_java: bazel_tools loads it; the package bazel-rules-java has it.
"""

_RULES_CC_DEFS = """
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
"""

def _stub_impl(rctx):
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name)
    for path, text in rctx.attr.files.items():
        rctx.file(path, text, executable = False)

_stub_repository = repository_rule(
    implementation = _stub_impl,
    attrs = {"files": attr.string_dict()},
)

def offline_bazel_repositories():
    _stub_repository(
        name = "rules_cc",
        files = {
            "BUILD.bazel": "",
            "cc/BUILD.bazel": "",
            "cc/defs.bzl": _RULES_CC_DEFS,
        },
    )
    _stub_repository(
        name = "remote_coverage_tools",
        files = {"BUILD.bazel": """
filegroup(name = "coverage_report_generator", visibility = ["//visibility:public"])
filegroup(name = "lcov_merger", visibility = ["//visibility:public"])
"""},
    )
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
