"""@shared_data: third-party test data that lies beside the checkout.

The folder is ../shared of the workspace, or $ODB_CONFORMANCE_DIR. Where there
is none the repository is empty and the tests that read it say so and skip.
`@shared_data//:path.txt` holds the absolute path (or nothing): inside the
sandbox a relative path would not exist, an absolute one does.
"""

def _impl(rctx):
    root = rctx.path(Label("//:WORKSPACE")).dirname
    where = rctx.os.environ.get("ODB_CONFORMANCE_DIR", "") or "%s/../shared" % root
    found = rctx.path(where)
    have = found.exists and rctx.path("%s/conformance" % where).exists
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name)
    rctx.file("path.txt", str(found) if have else "")
    rctx.file("shared_data.h", """#pragma once
// Absolute path of the third-party test data, or "" where there is none.
#define ODB_SHARED_DATA_DIR %s
""" % repr(str(found) if have else "").replace("'", '"'))
    rctx.file("BUILD.bazel", """
package(default_visibility = ["//visibility:public"])
exports_files(["path.txt"])
cc_library(name = "shared_data", hdrs = ["shared_data.h"], includes = ["."])
""")

shared_data = repository_rule(
    implementation = _impl,
    local = True,
    configure = True,
    environ = ["ODB_CONFORMANCE_DIR"],
)
