#include "server/pipeline/view_reader.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace odb {
namespace {

FeedOptions FeedOptionsOf(const ViewReader::Options& options) {
  FeedOptions feed;
  feed.dataset = options.dataset;
  feed.transform = options.transform;
  feed.record_at = options.record_at;
  feed.num_records = options.num_records;
  feed.seed = options.seed;
  feed.epoch = options.epoch;
  feed.max_in_flight = options.samples_ahead;
  return feed;
}

}  // namespace

ViewReader::ViewReader(const Options& options, PreprocessPool* pool, Ledger* ledger,
                       CoverageTracker* coverage, ByteMeter* memory)
    : options_(options),
      ledger_(ledger),
      coverage_(coverage),
      memory_(memory),
      feed_(pool->OpenFeed(FeedOptionsOf(options))) {}

absl::Status ViewReader::Fill(Window* window, absl::Time deadline) {
  while (!window->full() && !at_end_) {
    taken_.clear();
    RETURN_IF_ERROR(feed_->Take(window->capacity() - window->size(), deadline, &taken_));
    if (taken_.empty()) at_end_ = true;
    RETURN_IF_ERROR(TakeAll(window));
  }
  return absl::OkStatus();
}

absl::Status ViewReader::TakeAll(Window* window) {
  for (FeedResult& taken : taken_) {
    ++position_;
    if (const auto* entry = std::get_if<QuarantineEntry>(&taken.result)) {
      ++dropped_;
      lengths_.push_back(0);
      ledger_->ReadBad(taken.record, *entry);
      Count();
      RETURN_IF_ERROR(ledger_->CheckBadShare(/*epoch_end=*/false));
      continue;
    }
    WindowSample sample;
    sample.sample = std::get<Sample>(std::move(taken.result));
    sample.record = taken.record;
    sample.id_hash = HashSampleId(sample.sample.id);
    sample.charge = ByteCharge(memory_, SampleBytes(sample.sample));
    INVARIANT(sample.sample.length() > 0, "a sample without tokens came out of preprocessing");
    lengths_.push_back(sample.sample.length());
    window->Add(std::move(sample));
    const absl::Status fits = CheckMemory();
    if (fits.ok()) continue;
    Count();
    return fits;
  }
  Count();
  return absl::OkStatus();
}

absl::Status ViewReader::CheckMemory() const {
  if (memory_ == nullptr || !memory_->is_over()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the samples in the windows and planned steps of this node take ",
                   memory_->bytes(), " bytes, and memory_limit leaves them ", memory_->limit(),
                   ": lower window or max_steps_per_round, or raise memory_limit"));
}

void ViewReader::Count() {
  const auto num_bad = std::count(lengths_.begin(), lengths_.end(), 0);
  ledger_->Read(static_cast<int64_t>(lengths_.size()) - num_bad);
  coverage_->Read(options_.iterator, options_.rank, lengths_);
  lengths_.clear();
}

}  // namespace odb
