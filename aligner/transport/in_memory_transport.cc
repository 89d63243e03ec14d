#include "aligner/transport/in_memory_transport.h"

#include "absl/strings/str_cat.h"

namespace odb {

// One rank's end. State that only its own thread uses needs no lock.
class InMemoryTransport final : public Transport {
 public:
  InMemoryTransport(InMemoryNetwork* network, Rank rank) : network_(network), rank_(rank) {}
  ~InMemoryTransport() override { Close(); }

  OpenResult Open(const MeshSpec& spec, absl::Time deadline) override {
    const Generation generation = spec.generation;
    Close();
    MutexLock lock(&network_->mutex_);
    InMemoryNetwork::Mesh& mesh = network_->meshes_[generation];
    mesh.joined[rank_] = true;
    network_->changed_.NotifyAll();
    OpenResult result;
    while (Frozen() || mesh.joined.size() < static_cast<size_t>(network_->world_size_)) {
      result.status = Fault(mesh, generation, &result.suspect);
      if (!result.status.ok()) return result;
      if (network_->changed_.WaitUntil(&network_->mutex_, deadline)) {
        result.status = absl::DeadlineExceededError("not all ranks joined the mesh");
        return result;
      }
    }
    result.status = Fault(mesh, generation, &result.suspect);
    if (!result.status.ok()) return result;
    generation_ = generation;
    sequence_ = 0;
    result.address = {"memory", absl::StrCat("rank ", rank_.value())};
    return result;
  }

  ExchangeResult Exchange(ExchangeKind kind, absl::string_view record,
                          absl::Time deadline) override {
    ExchangeResult result;
    if (!generation_.has_value()) {
      result.status = absl::FailedPreconditionError("no mesh is open");
      return result;
    }
    if (record.size() != network_->sizes_.of(kind)) {
      result.status = absl::InvalidArgumentError(
          absl::StrCat("a record has ", record.size(), " bytes, not ", network_->sizes_.of(kind)));
      return result;
    }
    MutexLock lock(&network_->mutex_);
    InMemoryNetwork::Mesh& mesh = network_->meshes_[*generation_];
    InMemoryNetwork::Exchange& exchange = mesh.exchanges[sequence_];
    if (!exchange.records.empty() && exchange.kind != kind) {
      Break(&mesh, absl::InternalError("ranks run exchanges of different kinds"));
    }
    exchange.kind = kind;
    while (Frozen()) {
      result.status = WaitLocked(&mesh, deadline, &result.suspect);
      if (!result.status.ok()) return result;
    }
    exchange.records[rank_] = std::string(record);
    if (exchange.records.size() == static_cast<size_t>(network_->world_size_)) {
      ++network_->completed_;
    }
    network_->changed_.NotifyAll();
    while (exchange.records.size() < static_cast<size_t>(network_->world_size_)) {
      result.status = WaitLocked(&mesh, deadline, &result.suspect);
      if (!result.status.ok()) return result;
    }
    for (const auto& entry : exchange.records) result.table += entry.second;
    // The one before is complete on all ranks now, so its table was read by all of them.
    mesh.exchanges.erase(sequence_ - 1);
    ++sequence_;
    return result;
  }

  void Close() override {
    if (!generation_.has_value()) return;
    MutexLock lock(&network_->mutex_);
    Break(&network_->meshes_[*generation_],
          absl::UnavailableError(absl::StrCat("rank ", rank_.value(), " closed the mesh")));
    generation_.reset();
  }

  void Interrupt(Generation generation) override {
    MutexLock lock(&network_->mutex_);
    if (generation > interrupted_) interrupted_ = generation;
    network_->changed_.NotifyAll();
  }

 private:
  bool Frozen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(network_->mutex_) {
    const auto found = network_->frozen_.find(rank_);
    return found != network_->frozen_.end() && found->second;
  }

  absl::Status Fault(const InMemoryNetwork::Mesh& mesh, Generation generation,
                     std::optional<Rank>* suspect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(network_->mutex_) {
    if (generation <= interrupted_) return absl::CancelledError("interrupted");
    *suspect = mesh.culprit;
    return mesh.broken;
  }

  void Break(InMemoryNetwork::Mesh* mesh, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(network_->mutex_) {
    if (mesh->broken.ok()) {
      mesh->broken = std::move(status);
      mesh->culprit = rank_;
    }
    network_->changed_.NotifyAll();
  }

  // OK: something changed. Otherwise the mesh is broken.
  absl::Status WaitLocked(InMemoryNetwork::Mesh* mesh, absl::Time deadline,
                          std::optional<Rank>* suspect)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(network_->mutex_) {
    absl::Status fault = Fault(*mesh, *generation_, suspect);
    if (fault.ok() && network_->changed_.WaitUntil(&network_->mutex_, deadline)) {
      fault = absl::DeadlineExceededError("a rank did not take part in time");
    }
    if (fault.ok()) return fault;
    Break(mesh,
          absl::UnavailableError(absl::StrCat("rank ", rank_.value(), " left: ", fault.message())));
    generation_.reset();
    return fault;
  }

  InMemoryNetwork* const network_;
  const Rank rank_;
  std::optional<Generation> generation_;
  int64_t sequence_ = 0;
  Generation interrupted_ ABSL_GUARDED_BY(network_->mutex_);
};

std::unique_ptr<Transport> InMemoryNetwork::CreateTransport(Rank rank) {
  return std::make_unique<InMemoryTransport>(this, rank);
}

void InMemoryNetwork::BreakMesh(Rank culprit) {
  MutexLock lock(&mutex_);
  if (meshes_.empty()) return;
  Mesh& mesh = meshes_.rbegin()->second;
  if (mesh.broken.ok()) {
    mesh.broken = absl::UnavailableError(absl::StrCat("rank ", culprit.value(), " is gone"));
    mesh.culprit = culprit;
  }
  changed_.NotifyAll();
}

void InMemoryNetwork::FreezeRank(Rank rank) {
  MutexLock lock(&mutex_);
  frozen_[rank] = true;
}

void InMemoryNetwork::Thaw(Rank rank) {
  MutexLock lock(&mutex_);
  frozen_[rank] = false;
  changed_.NotifyAll();
}

int64_t InMemoryNetwork::exchanges() const {
  MutexLock lock(&mutex_);
  return completed_;
}

}  // namespace odb
