#include "aligner/transport/gloo/gloo_transport.h"

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "aligner/transport/gloo/rendezvous_store.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// Gloo rounds down to milliseconds, and 0 would be "no timeout".
std::chrono::milliseconds TimeLeft(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(left)));
}

// "[/build/gloo-x/pair.cc:589] Connection closed by peer" without the bracket.
std::string CleanMessage(absl::string_view message) {
  const size_t end = message.find("] ");
  if (absl::StartsWith(message, "[") && end != absl::string_view::npos &&
      absl::StrContains(message.substr(0, end), ".cc:")) {
    message.remove_prefix(end + 2);
  }
  return std::string(message);
}

absl::Status ToStatus(const std::string& message) {
  if (absl::StrContains(message, "Timed out") || absl::StrContains(message, "timeout")) {
    return absl::DeadlineExceededError(message);
  }
  return absl::UnavailableError(message);
}

}  // namespace

// The Gloo objects of one generation, and what Interrupt needs of them.
class GlooTransport::Mesh {
 public:
  explicit Mesh(const Options& options)
      : options_(options), table_(options.world_size * options.sizes.largest()) {}

  // Throws what Gloo throws.
  void Connect(RendezvousStore* store) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options_.interface.address;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    context_ = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(options_.rank.value()),
                                                           options_.world_size);
    context_->setTimeout(absl::ToChronoMilliseconds(options_.connect_timeout));
    context_->connectFullMesh(*store, device_);
    auto buffer = context_->createUnboundBuffer(table_.data(), table_.size());
    ReadPeerAddresses(store);
    MutexLock lock(&mutex_);
    buffer_ = std::move(buffer);
    slot_ = 0;
  }

  // True: the table is complete. False: interrupted. Throws what Gloo throws.
  bool AllGather(absl::string_view record, absl::Time deadline) {
    const int rank = static_cast<int>(options_.rank.value());
    const int world_size = options_.world_size;
    const size_t size = record.size();
    std::copy(record.begin(), record.end(), table_.begin() + rank * size);
    missing_.clear();
    for (int k = 1; k < world_size; ++k) {
      const int from = (rank + world_size - k) % world_size;
      missing_.insert(from);
      buffer_->recv(from, slot_, from * size, size);
    }
    for (int k = 1; k < world_size; ++k) {
      buffer_->send((rank + k) % world_size, slot_, rank * size, size);
    }
    ++slot_;
    for (int k = 1; k < world_size; ++k) {
      int from = -1;
      if (!buffer_->waitRecv(&from, TimeLeft(deadline))) return false;
      missing_.erase(from);
    }
    for (int k = 1; k < world_size; ++k) {
      if (!buffer_->waitSend(TimeLeft(deadline))) return false;
    }
    return true;
  }

  std::string Table(size_t bytes) const { return std::string(table_.data(), bytes); }

  // The rank that a failure is probably about: the one whose address Gloo names, or the only one
  // that has not sent its record.
  std::optional<Rank> Suspect(const std::string& message) const {
    for (const auto& [address, rank] : peers_) {
      if (absl::StrContains(message, address)) return rank;
    }
    if (missing_.size() == 1) return Rank(*missing_.begin());
    return std::nullopt;
  }

  void Destroy() {
    {
      MutexLock lock(&mutex_);
      buffer_.reset();
    }
    context_.reset();
    device_.reset();
    peers_.clear();
    missing_.clear();
  }

  bool connected() const { return context_ != nullptr; }

  void Interrupt(Generation generation) {
    MutexLock lock(&mutex_);
    if (generation > interrupted_) interrupted_ = generation;
    if (generation < generation_ || buffer_ == nullptr) return;
    buffer_->abortWaitRecv();
    buffer_->abortWaitSend();
  }
  bool Interrupted(Generation generation) {
    MutexLock lock(&mutex_);
    return generation <= interrupted_;
  }
  void set_generation(Generation generation) {
    MutexLock lock(&mutex_);
    generation_ = generation;
  }
  Generation generation() {
    MutexLock lock(&mutex_);
    return generation_;
  }

 private:
  // Gloo's messages name a peer by the address that it published for us.
  void ReadPeerAddresses(RendezvousStore* store) {
    const int rank = static_cast<int>(options_.rank.value());
    for (int peer = 0; peer < options_.world_size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> all = store->get(absl::StrCat(peer));
      const size_t size = all.size() / (options_.world_size - 1);
      const size_t index = rank < peer ? rank : rank - 1;  // a rank has no address for itself
      const std::vector<char> bytes(all.begin() + index * size, all.begin() + (index + 1) * size);
      peers_[gloo::transport::tcp::Address(bytes).str()] = Rank(peer);
    }
  }

  const Options& options_;
  std::vector<char> table_;  // outlives buffer_, which points into it
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::map<std::string, Rank> peers_;  // by address
  std::set<int> missing_;              // who has not sent its record in the present exchange
  uint64_t slot_ = 0;

  Mutex mutex_;
  // Written by the exchanging thread only, under the mutex, which therefore reads it without.
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  Generation interrupted_ ABSL_GUARDED_BY(mutex_);
};

GlooTransport::GlooTransport(Options options, KeyValueStore* store)
    : options_(std::move(options)), store_(store), mesh_(std::make_unique<Mesh>(options_)) {}

GlooTransport::~GlooTransport() { Close(); }

absl::Status GlooTransport::CompareSizes(RendezvousStore* store,
                                         std::optional<Rank>* suspect) const {
  const std::string own =
      absl::StrCat("world size ", options_.world_size, ", record bytes ", options_.sizes.resync,
                   "/", options_.sizes.offer, "/", options_.sizes.confirm);
  RETURN_IF_ERROR(store->Publish(absl::StrCat("sizes_", options_.rank.value()), own));
  for (int peer = 0; peer < options_.world_size; ++peer) {
    const auto value = store->Fetch({absl::StrCat("sizes_", peer)}, store->deadline());
    if (!value.ok() || value->front() != own) *suspect = Rank(peer);
    RETURN_IF_ERROR(value.status());
    if (value->front() == own) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", peer, " has ", value->front(), ", rank ", options_.rank.value(), " has ", own));
  }
  return absl::OkStatus();
}

OpenResult GlooTransport::Open(Generation generation, absl::Time deadline) {
  Close();
  OpenResult result;
  mesh_->set_generation(generation);
  if (options_.world_size > 1) {
    RendezvousStore store(store_, absl::StrCat(options_.key_prefix, "g", generation.value(), "/"),
                          deadline, [this, generation] { return mesh_->Interrupted(generation); });
    result.status = CompareSizes(&store, &result.suspect);
    if (result.status.ok()) {
      try {
        mesh_->Connect(&store);
      } catch (const std::exception& error) {
        const std::string message = CleanMessage(error.what());
        result.suspect = mesh_->Suspect(message);
        result.status = ToStatus(absl::StrCat("connecting the mesh: ", message));
      }
    }
    result.address = {options_.interface.name, options_.interface.address};
  }
  if (mesh_->Interrupted(generation)) result.status = absl::CancelledError("interrupted");
  if (!result.status.ok()) Close();
  return result;
}

ExchangeResult GlooTransport::Exchange(ExchangeKind kind, absl::string_view record,
                                       absl::Time deadline) {
  ExchangeResult result;
  const size_t size = options_.sizes.of(kind);
  if (record.size() != size) {
    result.status = absl::InvalidArgumentError(
        absl::StrCat("a record has ", record.size(), " bytes, not ", size));
    return result;
  }
  if (mesh_->Interrupted(mesh_->generation())) {
    result.status = absl::CancelledError("interrupted");
  } else if (options_.world_size == 1) {
    result.table = std::string(record);
    return result;
  } else if (!mesh_->connected()) {
    result.status = absl::FailedPreconditionError("no mesh is open");
    return result;
  } else {
    try {
      if (mesh_->AllGather(record, deadline)) {
        result.table = mesh_->Table(size * options_.world_size);
        return result;
      }
      result.status = absl::CancelledError("interrupted");
    } catch (const std::exception& error) {
      const std::string message = CleanMessage(error.what());
      result.suspect = mesh_->Suspect(message);
      result.status = ToStatus(message);
    }
  }
  Close();
  return result;
}

void GlooTransport::Close() {
  try {
    mesh_->Destroy();
  } catch (const std::exception&) {
    // Sockets that are broken already: there is nothing left to close.
  }
}

void GlooTransport::Interrupt(Generation generation) {
  mesh_->Interrupt(generation);
  store_->Cancel();
}

}  // namespace odb
