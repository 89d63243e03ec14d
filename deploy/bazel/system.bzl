"""system_library: a cc_library over a library that Debian installed.

pkg-config's -D become defines (so that they reach dependents), its -I outside
the compiler's default path are symlinked in and become includes, the rest of
--libs becomes linkopts. A missing package fails with the apt-get line to run.
"""

_DEFAULT_INCLUDES = ["/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu"]

def _fail(rctx, why):
    fail("%s is not installed (%s). Run: apt-get install -y --no-install-recommends %s" %
         (rctx.name, why, rctx.attr.apt))

def _pkg_config(rctx, flag):
    if not rctx.attr.pkgs:
        return []
    exe = rctx.which("pkg-config")
    if not exe:
        fail("pkg-config is not installed. Run: apt-get install -y pkgconf")
    r = rctx.execute([exe, flag] + rctx.attr.pkgs, environment = rctx.attr.env)
    if r.return_code != 0:
        _fail(rctx, r.stderr.strip())
    return [x for x in r.stdout.strip().split(" ") if x]

def _impl(rctx):
    for h in rctx.attr.hdrs:
        if not rctx.path("/usr/include/" + h).exists:
            _fail(rctx, "no /usr/include/" + h)
    defines = list(rctx.attr.defines)
    includes = []
    for flag in _pkg_config(rctx, "--cflags"):
        if flag.startswith("-D"):
            defines.append(flag[2:])
        elif flag.startswith("-I"):
            d = flag[2:]
            if d not in _DEFAULT_INCLUDES:
                name = "include%d" % len(includes)
                rctx.symlink(d, name)
                includes.append(name)
    libs = []
    for flag in _pkg_config(rctx, "--libs"):
        if flag not in libs or not flag.startswith("-l"):
            libs.append(flag)
    libs = rctx.attr.linkopts + libs
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name)
    rctx.file("BUILD.bazel", """
cc_library(
    name = %r,
    hdrs = glob(%r, allow_empty = True),
    defines = %r,
    includes = %r,
    linkopts = %r,
    visibility = ["//visibility:public"],
)
""" % (
        rctx.name,
        ["%s/**/*.h" % i for i in includes] + ["%s/**/*.hpp" % i for i in includes],
        defines,
        includes,
        libs,
    ))

system_library = repository_rule(
    implementation = _impl,
    attrs = {
        "pkgs": attr.string_list(doc = "pkg-config modules"),
        "hdrs": attr.string_list(doc = "headers under /usr/include that must exist"),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(doc = "put before pkg-config's --libs"),
        "apt": attr.string(mandatory = True, doc = "Debian packages that bring it"),
        "env": attr.string_dict(doc = "environment of pkg-config"),
    },
    local = True,
    configure = True,
    environ = ["PKG_CONFIG_PATH"],
)
