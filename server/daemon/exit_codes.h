#pragma once

namespace odb {

// What odbd's process says to whoever started it; the numbers are part of what odbd promises (see
// `odbd --help`). From 64 on they are those of sysexits.h.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         // an internal error, or ended at once by a second signal
  kExitUsage = 2,          // the command line
  kExitNotRunning = 3,     // odbctl: no daemon at the socket
  kExitDeadline = 4,       // drain_timeout passed; odbctl, odbrun: no answer in time
  kExitDataError = 65,     // the data or the tokenizer cannot be used
  kExitUnavailable = 69,   // another process serves this socket
  kExitTemporary = 75,     // out of descriptors, memory or processes; try again
  kExitNoPermission = 77,  // a file or folder may not be used
  kExitConfig = 78,        // configuration: the file, the environment, values that do not fit
};

// The table as --help shows it.
constexpr char kExitCodesText[] =
    "   0  success\n"
    "   1  failed: internal error, or ended at once by a second signal\n"
    "   2  usage: the command line is wrong\n"
    "   3  not running (odbctl)\n"
    "   4  drain_timeout passed; odbctl: no answer in time; odbrun: no start in time\n"
    "  65  the data or the tokenizer cannot be used\n"
    "  69  the socket is taken by another process\n"
    "  75  out of a resource for now: try again\n"
    "  77  no permission\n"
    "  78  the configuration is wrong\n";

}  // namespace odb
