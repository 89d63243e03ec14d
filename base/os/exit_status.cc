#include "base/os/exit_status.h"

#include <string.h>

#include "absl/strings/str_cat.h"

namespace odb {

std::string ExitStatus::ToString() const {
  if (signal == 0) return absl::StrCat("exited with status ", code);
  const char* const name = ::sigdescr_np(signal);  // thread-safe, unlike strsignal
  return absl::StrCat("was killed by signal ", signal, name == nullptr ? "" : " (",
                      name == nullptr ? "" : name, name == nullptr ? "" : ")");
}

}  // namespace odb
