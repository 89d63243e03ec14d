#include "server/service/rendezvous_keys.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::Duration kSlice = absl::Milliseconds(200);

}  // namespace

absl::Status RendezvousKeys::CheckKeyLocked(const std::string& key) const {
  if (closed_) return absl::CancelledError("the job has ended");
  absl::string_view rest = key;
  int64_t generation = 0;
  const size_t slash = rest.find('/');
  if (slash == absl::string_view::npos || !absl::ConsumePrefix(&rest, "g") ||
      !absl::SimpleAtoi(rest.substr(0, slash - 1), &generation) || generation < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key is g<generation>/<name>, got \"", key.substr(0, kKeyBytes), "\""));
  }
  if (Generation(generation) == generation_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("generation ", generation, " is not the present one (",
                                         generation_.value(), ")"));
}

absl::Status RendezvousKeys::Set(const std::string& key, const std::string& value) {
  const size_t value_max = kValueBytes + kValueBytesPerRank * world_size_;
  if (key.size() > kKeyBytes || value.size() > value_max) {
    return absl::ResourceExhaustedError(absl::StrCat("key of ", key.size(), " bytes (at most ",
                                                     kKeyBytes, ") with a value of ", value.size(),
                                                     " bytes (at most ", value_max, ")"));
  }
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckKeyLocked(key));
  const size_t keys_max = static_cast<size_t>(kKeysPerRank) * world_size_;
  if (values_.count(key) == 0 && values_.size() >= keys_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("at most ", keys_max, " keys for ", world_size_, " ranks"));
  }
  values_[key] = value;
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> RendezvousKeys::Get(
    const std::vector<std::string>& keys, absl::Time deadline,
    const std::function<bool()>& cancelled) {
  std::vector<std::string> values;
  MutexLock lock(&mutex_);
  for (const std::string& key : keys) {
    while (true) {
      RETURN_IF_ERROR(CheckKeyLocked(key));
      const auto found = values_.find(key);
      if (found != values_.end()) {
        values.push_back(found->second);
        break;
      }
      if (cancelled()) return absl::CancelledError("the call was cancelled");
      const absl::Time now = absl::Now();
      if (now >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("nobody has set ", key));
      }
      changed_.WaitUntil(&mutex_, std::min(deadline, now + kSlice));
    }
  }
  return values;
}

void RendezvousKeys::BeginGeneration(Generation generation) {
  MutexLock lock(&mutex_);
  if (generation <= generation_) return;
  generation_ = generation;
  values_.clear();
  changed_.NotifyAll();
}

void RendezvousKeys::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  values_.clear();
  changed_.NotifyAll();
}

size_t RendezvousKeys::size() const {
  MutexLock lock(&mutex_);
  return values_.size();
}

}  // namespace odb
