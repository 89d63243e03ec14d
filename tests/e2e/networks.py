"""Two network namespaces with a cable between them, as two machines would have; needs no privileges.

Each namespace lives as long as a `cat` that holds it, and that as long as its standard input, which this process has
open: nothing is left, however a test ends.
"""

import os
import shutil
import subprocess

import harness

SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin"
ADDRESSES = ("10.83.0.1", "10.83.0.2")
CABLE = ("odb0", "odb1")  # the two ends


class Unavailable(Exception):
    """Says why there can be no namespaces here."""


def _tool(name):
    found = shutil.which(name, path=SEARCH)
    if not found:
        raise Unavailable("there is no `%s` here (packages iproute2 and util-linux)" % name)
    return found


def connections_over_cable(pid):
    """The established TCP connections between the two addresses that the namespace of process `pid` has, as pairs of
    (local port, remote port)."""
    def place(text):
        address, port = text.split(":")
        return ".".join(str(byte) for byte in reversed(bytes.fromhex(address))), int(port, 16)
    found = set()
    with open("/proc/%d/net/tcp" % pid, encoding="ascii") as lines:
        for line in list(lines)[1:]:
            _, local, remote, state = line.split()[:4]
            (here, port), (there, its_port) = place(local), place(remote)
            if state == "01" and {here, there} == set(ADDRESSES):
                found.add((port, its_port))
    return found


class TwoNetworks:
    """Namespaces 0 and 1. Raises Unavailable where the kernel or its settings allow none."""

    def __init__(self, env):
        self._env = env
        self._holders = []
        try:
            self._hold([_tool("unshare"), "--user", "--map-root-user", "--net", "cat"])
            self._hold([*self.inside(0), _tool("unshare"), "--net", "cat"])
            self._ip(0, "link", "add", CABLE[0], "type", "veth", "peer", "name", CABLE[1], "netns",
                     str(self._holders[1].pid))
            for number in range(2):
                self._ip(number, "link", "set", "lo", "up")
                self._ip(number, "address", "add", ADDRESSES[number] + "/24", "dev", CABLE[number])
                self._ip(number, "link", "set", CABLE[number], "up")
        except Exception:
            self.close()
            raise

    def inside(self, number):
        """What to put before a command that is to run in namespace `number`."""
        return [_tool("nsenter"), "--preserve-credentials", "--user", "--net", "--target", str(self._holders[number].pid)]

    def cut(self):
        self._ip(0, "link", "set", CABLE[0], "down")

    def restore(self):
        self._ip(0, "link", "set", CABLE[0], "up")

    def close(self):
        for holder in self._holders:
            holder.stdin.close()
        for holder in self._holders:
            holder.wait(30)
            holder.stderr.close()

    def _hold(self, command):
        holder = subprocess.Popen(command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        self._holders.append(holder)

        def settled():
            if holder.poll() is not None:
                raise Unavailable("namespaces cannot be made: " + holder.stderr.read().decode(errors="replace").strip())
            with open("/proc/%d/comm" % holder.pid, encoding="utf-8") as comm:
                return comm.read().strip() == "cat"
        harness.wait_until("a process that holds a namespace", settled)

    def _ip(self, number, *arguments):
        done = subprocess.run([*self.inside(number), _tool("ip"), *arguments], env=self._env, check=False,
                              capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Unavailable("ip %s: %s" % (" ".join(arguments), done.stderr.strip()))
