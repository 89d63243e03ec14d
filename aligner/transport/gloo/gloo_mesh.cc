#include "aligner/transport/gloo/gloo_mesh.h"

#include <gloo/transport/tcp/address.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace odb {
namespace {

// Gloo rounds down to milliseconds, and 0 would be "no timeout".
std::chrono::milliseconds TimeLeft(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(left)));
}

}  // namespace

void GlooMesh::Connect(const Options& options, RendezvousStore* store) {
  members_ = options.members;
  bytes_ = options.buffer;
  peers_.clear();
  awaited_.clear();
  unreceived_ = 0;
  unsent_ = 0;
  called_for_ = -1;
  const int own =
      static_cast<int>(std::find(members_.begin(), members_.end(), options.own) - members_.begin());
  context_ = std::make_shared<gloo::rendezvous::Context>(own, static_cast<int>(members_.size()));
  context_->setTimeout(absl::ToChronoMilliseconds(options.connect_timeout));
  auto device = options.device;
  context_->connectFullMesh(*store, device);
  auto buffer = context_->createUnboundBuffer(options.buffer.data(), options.buffer.size());
  ReadPeerAddresses(own, store);
  MutexLock lock(&mutex_);
  buffer_ = std::move(buffer);
}

void GlooMesh::Destroy() {
  {
    MutexLock lock(&mutex_);
    buffer_.reset();
  }
  context_.reset();
}

void GlooMesh::Receive(int from, const Part& part) {
  awaited_.push_back({from, part});
  ++unreceived_;
  called_for_ = from;
  buffer_->recv(from, part.slot, part.offset, part.size);
  called_for_ = -1;
}

void GlooMesh::Send(int to, const Part& part) {
  ++unsent_;
  called_for_ = to;
  buffer_->send(to, part.slot, part.offset, part.size);
  called_for_ = -1;
}

bool GlooMesh::WaitReceived(absl::Time deadline) {
  for (; unreceived_ > 0; --unreceived_) {
    if (!buffer_->waitRecv(TimeLeft(deadline))) return false;
  }
  awaited_.clear();
  return true;
}

bool GlooMesh::WaitSent(absl::Time deadline) {
  for (; unsent_ > 0; --unsent_) {
    if (!buffer_->waitSend(TimeLeft(deadline))) return false;
  }
  return true;
}

std::optional<Rank> GlooMesh::Suspect(const std::string& message) const {
  for (const auto& [address, rank] : peers_) {
    if (absl::StrContains(message, address)) return rank;
  }
  if (called_for_ >= 0) return members_[called_for_];
  std::optional<Rank> missing;
  for (const Awaited& one : awaited_) {
    if (HasArrived(one.part)) continue;
    if (missing.has_value()) return std::nullopt;
    missing = members_[one.from];
  }
  return missing;
}

bool GlooMesh::HasArrived(const Part& part) const {
  uint64_t stamp = 0;
  if (part.stamp == 0) return false;
  std::memcpy(&stamp, bytes_.data() + part.offset + part.size - sizeof stamp, sizeof stamp);
  return stamp == part.stamp;
}

void GlooMesh::Abort() {
  MutexLock lock(&mutex_);
  if (buffer_ == nullptr) return;
  buffer_->abortWaitRecv();
  buffer_->abortWaitSend();
}

// Gloo's messages name a peer by the address that it published for us.
void GlooMesh::ReadPeerAddresses(int own, RendezvousStore* store) {
  const int size = static_cast<int>(members_.size());
  for (int peer = 0; peer < size; ++peer) {
    if (peer == own) continue;
    const std::vector<char> all = store->get(absl::StrCat(peer));
    const size_t bytes = all.size() / (size - 1);
    const size_t index = own < peer ? own : own - 1;  // a member has no address for itself
    const std::vector<char> address(all.begin() + index * bytes, all.begin() + (index + 1) * bytes);
    peers_[gloo::transport::tcp::Address(address).str()] = members_[peer];
  }
}

}  // namespace odb
