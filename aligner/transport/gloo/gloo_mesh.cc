#include "aligner/transport/gloo/gloo_mesh.h"

#include <gloo/transport/tcp/address.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace odb {
namespace {

// Gloo rounds down to milliseconds, and 0 would be "no timeout".
std::chrono::milliseconds TimeLeft(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(left)));
}

// What Gloo asked for in the store, with the answers: a mesh that cannot be built still knows by
// which address each member was to be reached.
class RecordingStore final : public gloo::rendezvous::Store {
 public:
  explicit RecordingStore(RendezvousStore* store) : store_(store) {}

  const std::map<std::string, std::vector<char>>& answers() const { return answers_; }

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(key, data);
  }
  std::vector<char> get(const std::string& key) override {
    return answers_[key] = store_->get(key);
  }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }

 private:
  RendezvousStore* const store_;
  std::map<std::string, std::vector<char>> answers_;
};

// True if `message` names `address`, and not one that only begins like it.
bool Names(const std::string& message, const std::string& address) {
  for (size_t at = message.find(address); at != std::string::npos;
       at = message.find(address, at + 1)) {
    const size_t end = at + address.size();
    if (end == message.size() || !absl::ascii_isdigit(static_cast<unsigned char>(message[end]))) {
      return true;
    }
  }
  return false;
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
  RecordingStore recording(store);
  const auto read_peers = absl::MakeCleanup([&] { ReadPeerAddresses(own, recording.answers()); });
  context_->connectFullMesh(recording, device);
  auto buffer = context_->createUnboundBuffer(options.buffer.data(), options.buffer.size());
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
    if (Names(message, address)) return rank;
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
void GlooMesh::ReadPeerAddresses(int own,
                                 const std::map<std::string, std::vector<char>>& published) {
  const size_t others = members_.size() - 1;
  const size_t bytes = gloo::transport::tcp::Address().bytes().size();
  for (size_t peer = 0; peer < members_.size(); ++peer) {
    const auto all = published.find(absl::StrCat(peer));
    // Gloo did not come to it, or will not take it.
    if (all == published.end() || all->second.size() != others * bytes) continue;
    const auto place = static_cast<size_t>(own);
    const size_t index = place < peer ? place : place - 1;  // no member has an address for itself
    const auto begin = all->second.begin() + static_cast<ptrdiff_t>(index * bytes);
    const std::vector<char> address(begin, begin + static_cast<ptrdiff_t>(bytes));
    peers_[gloo::transport::tcp::Address(address).str()] = members_[peer];
  }
}

}  // namespace odb
