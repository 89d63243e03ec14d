#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/status.pb.h"
#include "server/preprocess/quarantine.h"

namespace odb {

// The states of all samples of one daemon; the only place where they change, and what status reads.
//
// Every call moves samples from one state to another as a whole, so in every snapshot
//   read = in_flight + emitted + quarantined + abandoned.
// Coverage by epoch is in coverage.h.
//
// Ownership: the daemon's; one for all its jobs. Threads: thread-safe. Errors: CheckBadShare.
// Memory: 1 bit per record, and the first kQuarantineKept entries of the quarantine list.
class Ledger {
 public:
  struct Options {
    int64_t num_records = 0;     // of the dataset
    double max_bad_share = 1.0;  // of the records read so far; 1 = never stop
  };
  static constexpr int64_t kQuarantineKept = 10'000;
  static constexpr int64_t kShareCheckedFrom = 1'000;  // records read, or the end of an epoch
  static constexpr int64_t kEntriesInMessage = 5;

  explicit Ledger(const Options& options);

  // `samples` came out of preprocessing: they are in flight now.
  void Read(int64_t samples);
  // Record `index` came out as `entry`. The list holds each record once, however many epochs read
  // it; what `Snapshot` counts is every reading of it.
  void ReadBad(int64_t index, const QuarantineEntry& entry);
  // The trainer took a step with `samples`, or samples in flight will not be delivered any more.
  void Emit(int64_t samples);
  void Abandon(int64_t samples);

  // Whether too many records are bad: checked once kShareCheckedFrom records were read, and at the
  // end of an epoch. Errors: DataLoss with counts and the first entries of the list.
  absl::Status CheckBadShare(bool epoch_end) const;

  v1::Ledger Snapshot() const;

  // The first `limit` entries (0 = 100), the number of distinct bad records, and by reason.
  v1::ListQuarantineReply ListQuarantine(int32_t limit) const;

 private:
  const Options options_;

  mutable Mutex mutex_;  // guards all below
  int64_t read_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t emitted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t quarantined_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t abandoned_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<bool> is_bad_ ABSL_GUARDED_BY(mutex_);                           // by record
  int64_t num_bad_ ABSL_GUARDED_BY(mutex_) = 0;                                // distinct
  std::map<QuarantineReason, int64_t> bad_by_reason_ ABSL_GUARDED_BY(mutex_);  // distinct
  std::vector<QuarantineEntry> entries_ ABSL_GUARDED_BY(mutex_);               // the first ones
};

}  // namespace odb
