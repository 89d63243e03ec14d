#pragma once

namespace odb {

// What odbrun adds to the statuses of the command; from 64 on they are those of sysexits.h.
enum RunExitCode : int {
  kRunFailed = 1,
  kRunUsage = 2,
  kRunDeadline = 4,
  kRunUnavailable = 69,
  kRunNotExecutable = 126,
  kRunNotFound = 127,
};

// The table as --help shows it.
inline constexpr char kRunExitCodesText[] =
    "  that of the command; 128 + N if signal N ended it. Otherwise\n"
    "    1  odbrun failed: the reason is on stderr\n"
    "    2  usage: the command line is wrong\n"
    "    4  odbd did not accept sessions within --start-timeout\n"
    "   69  odbd was not found, or ended before the command did\n"
    "  126  the command cannot be executed\n"
    "  127  the command was not found\n"
    "  If odbd refuses to start, its own status: 65, 75, 77, 78 ... (odbd --help)\n";

}  // namespace odb
