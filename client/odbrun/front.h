#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/odbrun/arguments.h"

namespace odb {

// The outer process of odbrun, the one that was started: starts the keeper (the same program
// again), passes signals on, and leaves nothing behind when the keeper has ended or died. See
// keeper.h for why there are two.
//
// `raw_arguments` are given to the keeper as they came. Threads: one (and the spawner's). Returns
// odbrun's exit status; prints reasons.
int RunFront(const RunArguments& arguments, const std::vector<std::string>& raw_arguments);

// What the front tells the keeper, as the keeper's first arguments; raw_arguments follow them.
struct KeeperHandoff {
  std::string socket;
  std::string private_directory;  // to remove; empty = none
  pid_t terminal_group = 0;
};
inline constexpr size_t kHandoffArguments = 3;
std::vector<std::string> EncodeHandoff(const KeeperHandoff& handoff);
KeeperHandoff DecodeHandoff(const std::vector<std::string>& arguments);

// The signals that go to the command; both processes block them.
std::vector<int> ForwardedSignals();

}  // namespace odb
