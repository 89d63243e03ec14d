// What the tests of this folder start as another process. It ends when it is killed, or by its
// lifeline.
//   test_process listen PATH      listens at PATH, prints "ready"
//   test_process parent           starts a child with a Spawner of its own, prints the child's pid
//   test_process surviving-child  the same, but the child watches its lifeline instead of dying at
//   once

#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/os/lifeline.h"
#include "base/os/spawner.h"
#include "base/os/unix_listener.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "test_process: %s\n", status.ToString().c_str());
  return 1;
}

int Listen(const std::string& path) {
  const auto listener = odb::UnixListener::Listen(path, {});
  if (!listener.ok()) return Fail(listener.status());
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}

int BeParent(bool die_with_parent) {
  const auto spawner = odb::Spawner::Start({});
  if (!spawner.ok()) return Fail(spawner.status());
  odb::Command command;
  command.die_with_parent = die_with_parent;
  command.arguments = {"sh", "-c",
                       die_with_parent ? "trap '' TERM HUP INT; while :; do sleep 1; done"
                                       : "cat /dev/fd/$ODB_LIFELINE_FD"};
  const auto child = (*spawner)->Spawn(command);
  if (!child.ok()) return Fail(child.status());
  std::printf("%d\n", (*child)->pid());
  std::fflush(stdout);
  while (true) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  absl::StatusOr<odb::FileDescriptor> lifeline = odb::TakeLifeline();
  if (!lifeline.ok()) return Fail(lifeline.status());
  const auto watch = odb::LifelineWatch::Start(*std::move(lifeline), odb::ExitAsParentIsGone);
  if (!watch.ok()) return Fail(watch.status());
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "listen" && argc == 3) return Listen(argv[2]);
  if (role == "parent") return BeParent(/*die_with_parent=*/true);
  if (role == "surviving-child") return BeParent(/*die_with_parent=*/false);
  std::fprintf(stderr, "usage: test_process listen PATH | parent | surviving-child\n");
  return 2;
}
