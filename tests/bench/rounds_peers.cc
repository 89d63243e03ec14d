#include "tests/bench/rounds_peers.h"

#include <gloo/allgather.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aligner/transport/gloo/gloo_transport.h"
#include "aligner/transport/key_value_store.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// A KeyValueStore of files.
class FolderStore final : public KeyValueStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Set(const std::string& key, const std::string& value, absl::Time) override {
    const std::string path = PathOf(key);
    const std::string temporary = absl::StrCat(path, ".", getpid());
    std::ofstream(temporary, std::ios::binary) << value;
    if (rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cannot write ", path));
  }
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys,
                                               absl::Time deadline) override {
    std::vector<std::string> values;
    for (const std::string& key : keys) {
      while (access(PathOf(key).c_str(), R_OK) != 0) {
        if (absl::Now() >= deadline) return absl::DeadlineExceededError(key);
        poll(nullptr, 0, 1);
      }
      std::ifstream file(PathOf(key), std::ios::binary);
      values.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return values;
  }
  void Cancel() override {}

 private:
  std::string PathOf(std::string key) const {
    for (char& c : key) {
      if (c == '/') c = '_';
    }
    return absl::StrCat(folder_, "/", key);
  }
  const std::string folder_;
};

struct Order {
  PeerTask task = PeerTask::kBare;
  int32_t count = 0;
};

bool ReadAll(int fd, void* bytes, size_t size) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = read(fd, at, size);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const void* bytes, size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t put = send(fd, at, size, MSG_NOSIGNAL);
    if (put <= 0) return false;
    at += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

// One rank, in a process of its own.
class PeerProcess {
 public:
  PeerProcess(int rank, int world_size, const RecordSizes& sizes, const std::string& folder)
      : rank_(rank),
        world_size_(world_size),
        sizes_(sizes),
        folder_(folder),
        store_(folder),
        offer_(sizes.offer, static_cast<char>(rank)),
        confirm_(sizes.confirm, static_cast<char>(rank)),
        table_(world_size * sizes.offer) {}

  // Throws what Gloo throws.
  absl::Status Connect() {
    std::vector<int> nodes(world_size_);
    for (int rank = 0; rank < world_size_; ++rank) nodes[rank] = 2 * rank / world_size_;
    flat_ = MakeTransport(Topology::kFlat, "flat_");
    hierarchical_ = MakeTransport(Topology::kHierarchical, "hierarchical_");
    for (Transport* const transport : {flat_.get(), hierarchical_.get()}) {
      RETURN_IF_ERROR(
          transport->Open({Generation(1), nodes}, absl::Now() + absl::Seconds(60)).status);
    }
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder_);
    gloo_ = std::make_shared<gloo::rendezvous::Context>(rank_, world_size_);
    gloo_->connectFullMesh(store, device);
    return absl::OkStatus();
  }

  // The two exchanges of a round.
  absl::Status RunOnce(PeerTask task) {
    if (task == PeerTask::kGloo) {
      GlooAllGather(offer_);
      GlooAllGather(confirm_);
      return absl::OkStatus();
    }
    Transport* const transport =
        task == PeerTask::kHierarchical ? hierarchical_.get() : flat_.get();
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    RETURN_IF_ERROR(transport->Exchange(ExchangeKind::kOffer, offer_, deadline).status);
    return transport->Exchange(ExchangeKind::kConfirm, confirm_, deadline).status;
  }

 private:
  std::unique_ptr<Transport> MakeTransport(Topology topology, const std::string& prefix) {
    GlooTransport::Options options;
    options.rank = Rank(rank_);
    options.world_size = world_size_;
    options.sizes = sizes_;
    options.topology = topology;
    options.interface = {"lo", "127.0.0.1", /*loopback=*/true};
    options.key_prefix = prefix;
    return std::make_unique<GlooTransport>(options, &store_);
  }
  void GlooAllGather(std::string& record) {
    gloo::AllgatherOptions options(gloo_);
    options.setInput(record.data(), record.size());
    options.setOutput(table_.data(), world_size_ * record.size());
    options.setTag(tag_++);
    gloo::allgather(options);
  }

  const int rank_;
  const int world_size_;
  const RecordSizes sizes_;
  const std::string folder_;
  FolderStore store_;
  std::string offer_;
  std::string confirm_;
  std::vector<char> table_;
  uint32_t tag_ = 0;
  std::unique_ptr<Transport> flat_;
  std::unique_ptr<Transport> hierarchical_;
  std::shared_ptr<gloo::rendezvous::Context> gloo_;
};

// Connects, says so with one byte, then carries out orders until the socket is closed.
absl::Status Serve(PeerProcess* peer, int socket) {
  try {
    RETURN_IF_ERROR(peer->Connect());
    const char ready = 0;
    WriteAll(socket, &ready, 1);
    Order order;
    while (ReadAll(socket, &order, sizeof order)) {
      std::vector<double> seconds;
      for (int i = 0; i < order.count; ++i) {
        const auto start = std::chrono::steady_clock::now();
        RETURN_IF_ERROR(peer->RunOnce(order.task));
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        seconds.push_back(took.count());
      }
      WriteAll(socket, seconds.data(), seconds.size() * sizeof(double));
    }
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace

absl::StatusOr<RoundPeers> RoundPeers::Start(int world_size, const RecordSizes& sizes,
                                             const std::string& folder) {
  std::vector<Peer> peers;
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return absl::InternalError("socketpair failed");
    }
    const pid_t pid = fork();
    if (pid < 0) return absl::InternalError("fork failed");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      for (const Peer& other : peers) close(other.socket);
      PeerProcess peer(rank, world_size, sizes, folder);
      const absl::Status status = Serve(&peer, ends[1]);
      if (!status.ok()) std::fprintf(stderr, "peer %d: %s\n", rank, status.ToString().c_str());
      _exit(status.ok() ? 0 : 1);
    }
    close(ends[1]);
    peers.push_back({pid, ends[0]});
  }
  return RoundPeers(std::move(peers));
}

RoundPeers::RoundPeers(RoundPeers&& other) noexcept : peers_(std::exchange(other.peers_, {})) {}

RoundPeers::~RoundPeers() {
  for (const Peer& peer : peers_) close(peer.socket);
  for (const Peer& peer : peers_) {
    kill(peer.pid, SIGKILL);
    waitpid(peer.pid, nullptr, 0);
  }
}

absl::Status RoundPeers::Connect() {
  for (const Peer& peer : peers_) {
    char ready = 0;
    if (!ReadAll(peer.socket, &ready, 1)) return absl::InternalError("a peer ended early");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> RoundPeers::Run(PeerTask task, int count) {
  const Order order{task, count};
  for (const Peer& peer : peers_) {
    if (!WriteAll(peer.socket, &order, sizeof order)) {
      return absl::InternalError("a peer is gone");
    }
  }
  std::vector<double> of_rank_0;
  for (const Peer& peer : peers_) {
    std::vector<double> seconds(count);
    if (!ReadAll(peer.socket, seconds.data(), seconds.size() * sizeof(double))) {
      return absl::InternalError("a peer ended early");
    }
    if (of_rank_0.empty()) of_rank_0 = std::move(seconds);
  }
  return of_rank_0;
}

}  // namespace odb
