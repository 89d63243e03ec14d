#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace odb {

// The kinds of record that ranks exchange. All records of one kind have one size, on every rank.
enum class ExchangeKind : uint8_t { kResync = 0, kOffer = 1, kConfirm = 2 };

// Bytes of one record of each kind.
struct RecordSizes {
  size_t resync = 0;
  size_t offer = 0;
  size_t confirm = 0;

  size_t of(ExchangeKind kind) const {
    return kind == ExchangeKind::kResync ? resync : kind == ExchangeKind::kOffer ? offer : confirm;
  }
  size_t largest() const {
    const size_t a = resync > offer ? resync : offer;
    return a > confirm ? a : confirm;
  }
};

// Which mesh, and who is where. Equal on all its ranks.
struct MeshSpec {
  Generation generation;
  std::vector<int> node_of_rank;  // by rank; empty: not known
};

// Where this rank's end of a mesh listens.
struct MeshAddress {
  std::string interface;  // "eth0"; empty with one rank, which needs no mesh
  std::string address;    // "10.0.0.5"
};

struct OpenResult {
  absl::Status status;
  std::optional<Rank> suspect;  // the rank that is probably to blame, if not OK
  MeshAddress address;
};

struct ExchangeResult {
  absl::Status status;
  std::optional<Rank> suspect;
  std::string table;  // world_size records in rank order, if OK
};

// All-gather of equal-size records between the ranks of one job, over one mesh at a time.
//
// Lockstep: the n-th Exchange of a mesh is the same one on all ranks and of the same kind. A mesh
// belongs to one generation; after any error it is gone, and the next Open, with a larger
// generation, makes another one.
//
// Threads: one thread calls Open, Exchange and Close; Interrupt may be called from any other.
// Errors (status codes):
//   Unavailable         a peer is gone, or cannot be reached
//   DeadlineExceeded    a peer did not take part in time
//   FailedPrecondition  no mesh; or the ranks disagree on world size, record sizes or nodes
//   InvalidArgument     the interface asked for cannot be used; a record of the wrong size
//   Cancelled           interrupted
class Transport {
 public:
  virtual ~Transport() = default;

  // Drops the present mesh and waits for the others to open the same one too.
  virtual OpenResult Open(const MeshSpec& mesh, absl::Time deadline) = 0;

  virtual ExchangeResult Exchange(ExchangeKind kind, absl::string_view record,
                                  absl::Time deadline) = 0;

  virtual void Close() = 0;

  // Calls that run now, or come later, for `generation` or an older one end with Cancelled soon.
  virtual void Interrupt(Generation generation) = 0;
};

}  // namespace odb
