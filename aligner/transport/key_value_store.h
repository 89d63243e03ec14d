#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace odb {

// Where the ranks of a mesh find each other: RendezvousService in odb-aligner, a map in tests.
//
// Threads: thread-safe. Errors: DeadlineExceeded if a key did not appear in time, Cancelled after
// Cancel, else what the store answered.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  virtual absl::Status Set(const std::string& key, const std::string& value,
                           absl::Time deadline) = 0;

  // The values of `keys`, in order, as soon as all of them exist.
  virtual absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys,
                                                       absl::Time deadline) = 0;

  // Ends the calls that run now.
  virtual void Cancel() = 0;
};

}  // namespace odb
