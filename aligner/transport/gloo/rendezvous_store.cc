#include "aligner/transport/gloo/rendezvous_store.h"

#include <gloo/common/error.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace odb {
namespace {

// Longest wait in one piece, so that an interruption between two calls is noticed as well.
constexpr absl::Duration kSlice = absl::Milliseconds(500);

}  // namespace

absl::Status RendezvousStore::Publish(const std::string& key, const std::string& value) {
  if (interrupted_()) return absl::CancelledError("interrupted");
  return store_->Set(prefix_ + key, value, deadline_);
}

absl::StatusOr<std::vector<std::string>> RendezvousStore::Fetch(
    const std::vector<std::string>& keys, absl::Time deadline) {
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(prefix_ + key);
  while (true) {
    if (interrupted_()) return absl::CancelledError("interrupted");
    auto values = store_->Get(names, std::min(deadline, absl::Now() + kSlice));
    if (values.ok() || !absl::IsDeadlineExceeded(values.status())) return values;
    if (absl::Now() < deadline) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("waiting for ", absl::StrJoin(names, ", "), ": ", values.status().message()));
  }
}

void RendezvousStore::set(const std::string& key, const std::vector<char>& data) {
  const absl::Status status = Publish(key, std::string(data.begin(), data.end()));
  if (!status.ok()) throw gloo::IoException(std::string(status.message()));
}

std::vector<char> RendezvousStore::get(const std::string& key) {
  const std::string value = FetchOrThrow({key}, deadline_).front();
  return std::vector<char>(value.begin(), value.end());
}

void RendezvousStore::wait(const std::vector<std::string>& keys) { FetchOrThrow(keys, deadline_); }

void RendezvousStore::wait(const std::vector<std::string>& keys,
                           const std::chrono::milliseconds& timeout) {
  FetchOrThrow(keys, std::min(deadline_, absl::Now() + absl::FromChrono(timeout)));
}

std::vector<std::string> RendezvousStore::FetchOrThrow(const std::vector<std::string>& keys,
                                                       absl::Time deadline) {
  absl::StatusOr<std::vector<std::string>> values = Fetch(keys, deadline);
  if (!values.ok()) throw gloo::IoException(std::string(values.status().message()));
  return *std::move(values);
}

}  // namespace odb
