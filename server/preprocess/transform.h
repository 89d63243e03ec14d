#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "server/preprocess/sample.h"
#include "server/sources/dataset.h"

namespace odb {

// Raw record to sample (design §6).
//
// Pure per sample: the result depends on the arguments and the transform's own constants, and on
// nothing else; `sample_seed` (base/hash.h SampleSeed) is the only randomness. Threads: Apply may
// be called from any number of threads at once. Errors: values; a QuarantineEntry carries id, line
// and byte of `ref`, its file stays empty.
class Transform {
 public:
  virtual ~Transform() = default;

  // `raw` may be anything: not JSON, not UTF-8.
  virtual SampleResult Apply(const RecordRef& ref, absl::string_view raw,
                             uint64_t sample_seed) const = 0;

  // The same sample of a `raw` that stays where it is for as long as the sample, which may then
  // point into it.
  virtual SampleResult ApplyInPlace(const RecordRef& ref, absl::string_view raw,
                                    uint64_t sample_seed) const {
    return Apply(ref, raw, sample_seed);
  }

  // Of all options that decide what comes out; part of the configuration digest of design §2.
  virtual uint64_t digest() const = 0;
};

// An entry for the record at `ref`; the file is left empty.
QuarantineEntry Quarantined(const RecordRef& ref, QuarantineReason reason, std::string detail);

// Reads record `index` of `dataset`, applies the transform and names the file in an entry.
// `buffer` is scratch space. This is what the pool's threads, `lint` and `preview` do per record.
SampleResult Preprocess(const Dataset& dataset, const Transform& transform, int64_t index,
                        uint64_t seed, Epoch epoch, std::string* buffer);

// The same result; where the dataset is mapped (Dataset::View) without a copy of what is read, and
// perhaps of the ids (Sample::mapped_ids).
SampleResult PreprocessInPlace(const Dataset& dataset, const Transform& transform, int64_t index,
                               uint64_t seed, Epoch epoch, std::string* buffer);

}  // namespace odb
