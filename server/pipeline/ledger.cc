#include "server/pipeline/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace odb {

Ledger::Ledger(const Options& options)
    : options_(options), is_bad_(static_cast<size_t>(options.num_records), false) {}

void Ledger::Read(int64_t samples) {
  MutexLock lock(&mutex_);
  read_ += samples;
  in_flight_ += samples;
}

void Ledger::ReadBad(int64_t index, const QuarantineEntry& entry) {
  MutexLock lock(&mutex_);
  INVARIANT(index >= 0 && index < options_.num_records, "a bad record outside the dataset");
  ++read_;
  ++quarantined_;
  if (is_bad_[static_cast<size_t>(index)]) return;
  is_bad_[static_cast<size_t>(index)] = true;
  ++num_bad_;
  ++bad_by_reason_[entry.reason];
  if (static_cast<int64_t>(entries_.size()) < kQuarantineKept) entries_.push_back(entry);
}

void Ledger::Emit(int64_t samples) {
  MutexLock lock(&mutex_);
  INVARIANT(samples >= 0 && samples <= in_flight_, "more samples emitted than were in flight");
  in_flight_ -= samples;
  emitted_ += samples;
}

void Ledger::Abandon(int64_t samples) {
  MutexLock lock(&mutex_);
  INVARIANT(samples >= 0 && samples <= in_flight_, "more samples abandoned than were in flight");
  in_flight_ -= samples;
  abandoned_ += samples;
}

absl::Status Ledger::CheckBadShare(bool epoch_end) const {
  MutexLock lock(&mutex_);
  if (read_ == 0 || (read_ < kShareCheckedFrom && !epoch_end)) return absl::OkStatus();
  const double share = static_cast<double>(quarantined_) / static_cast<double>(read_);
  if (share <= options_.max_bad_share) return absl::OkStatus();

  std::string text = absl::StrFormat(
      "%d of %d records read are bad (%.1f %%), more than max_bad_share %.4g allows; the first:",
      quarantined_, read_, 100 * share, options_.max_bad_share);
  const size_t shown = std::min(entries_.size(), static_cast<size_t>(kEntriesInMessage));
  for (size_t i = 0; i < shown; ++i) absl::StrAppend(&text, "\n  ", entries_[i].ToString());
  return absl::DataLossError(text);
}

v1::Ledger Ledger::Snapshot() const {
  MutexLock lock(&mutex_);
  v1::Ledger ledger;
  ledger.set_read(read_);
  ledger.set_emitted(emitted_);
  ledger.set_quarantined(quarantined_);
  ledger.set_in_flight(in_flight_);
  ledger.set_abandoned(abandoned_);
  return ledger;
}

v1::ListQuarantineReply Ledger::ListQuarantine(int32_t limit) const {
  MutexLock lock(&mutex_);
  v1::ListQuarantineReply reply;
  reply.set_total(num_bad_);
  for (const auto& [reason, count] : bad_by_reason_) {
    v1::ReasonCount* entry = reply.add_by_reason();
    entry->set_reason(std::string(QuarantineReasonName(reason)));
    entry->set_count(count);
  }
  const size_t shown = std::min(entries_.size(), static_cast<size_t>(limit <= 0 ? 100 : limit));
  for (size_t i = 0; i < shown; ++i) {
    const QuarantineEntry& entry = entries_[i];
    v1::QuarantineItem* const item = reply.add_items();
    item->set_file(entry.file);
    item->set_line(entry.line);
    item->set_byte(entry.byte);
    item->set_reason(std::string(QuarantineReasonName(entry.reason)));
    item->set_detail(entry.detail);
    item->set_source(entry.id.source);
  }
  return reply;
}

}  // namespace odb
