#include "server/pipeline/local_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {

class LocalMesh::Exchange final : public RoundExchange {
 public:
  Exchange(LocalMesh* mesh, size_t rank) : mesh_(mesh), rank_(rank) {}

  void SetState(const OfferHeader& head) override { mesh_->SetState(rank_, head); }
  void Publish(Offer offer) override { mesh_->Publish(rank_, std::move(offer)); }
  absl::StatusOr<GatheredRound> WaitGathered(absl::Time deadline) override {
    return mesh_->WaitGathered(rank_, deadline);
  }
  void Planned(RoundId round, uint64_t digest) override { mesh_->Planned(rank_, round, digest); }
  absl::Status WaitReleased(RoundId round, absl::Time deadline) override {
    return mesh_->WaitReleased(rank_, round, deadline);
  }
  void Wake() override { mesh_->Wake(rank_); }
  void Close() override { mesh_->Close(rank_); }

 private:
  LocalMesh* const mesh_;
  const size_t rank_;
};

LocalMesh::LocalMesh(int32_t world_size, bool keep_digests)
    : keep_digests_(keep_digests), ranks_(static_cast<size_t>(world_size)) {
  for (size_t rank = 0; rank < static_cast<size_t>(world_size); ++rank) {
    exchanges_.push_back(std::make_unique<Exchange>(this, rank));
  }
}

LocalMesh::~LocalMesh() = default;

RoundExchange* LocalMesh::exchange(Rank rank) {
  return exchanges_[static_cast<size_t>(rank.value())].get();
}

void LocalMesh::GatherAgain(std::set<int64_t> rounds) {
  MutexLock lock(&mutex_);
  gather_again_ = std::move(rounds);
}

RoundId LocalMesh::completed() const {
  MutexLock lock(&mutex_);
  return completed_;
}

std::vector<uint64_t> LocalMesh::digests() const {
  MutexLock lock(&mutex_);
  return digests_;
}

void LocalMesh::SetState(size_t rank, const OfferHeader& head) {
  MutexLock lock(&mutex_);
  ranks_[rank].head = head;
  ranks_[rank].head.rank = Rank(static_cast<int64_t>(rank));
  DecideLocked();
}

void LocalMesh::Publish(size_t rank, Offer offer) {
  MutexLock lock(&mutex_);
  INVARIANT(!ranks_[rank].offer.has_value(), "a rank offered twice in one round");
  ranks_[rank].head = offer.header;
  ranks_[rank].head.rank = Rank(static_cast<int64_t>(rank));
  ranks_[rank].offer = std::move(offer);
  DecideLocked();
}

absl::StatusOr<GatheredRound> LocalMesh::WaitGathered(size_t rank, absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (true) {
    RankState& self = ranks_[rank];
    if (failure_.ok() && !self.closed && gathered_.has_value() && self.seen < gatherings_) {
      self.seen = gatherings_;
      return *gathered_;
    }
    RETURN_IF_ERROR(WaitLocked(rank, deadline));
  }
}

void LocalMesh::Planned(size_t rank, RoundId round, uint64_t digest) {
  MutexLock lock(&mutex_);
  if (!gathered_.has_value() || gathered_->round != round || ranks_[rank].seen != gatherings_) {
    return;  // it was gathered again meanwhile
  }
  if (gather_again_.erase(round.value()) == 1) {
    for (RankState& state : ranks_) state.digest.reset();
    ++gatherings_;
    changed_.NotifyAll();
    return;
  }
  ranks_[rank].digest = digest;
  for (const RankState& state : ranks_) {
    if (!state.digest.has_value()) return;
  }
  for (const RankState& state : ranks_) {
    if (*state.digest != digest) {
      failure_ =
          absl::InternalError(absl::StrCat("plan digests of round ", round.value(), " differ"));
    }
  }
  if (failure_.ok()) {
    completed_ = round;
    if (keep_digests_) digests_.push_back(digest);
    gathered_.reset();
    for (RankState& state : ranks_) {
      state.digest.reset();
      state.offer.reset();
    }
    DecideLocked();
  }
  changed_.NotifyAll();
}

absl::Status LocalMesh::WaitReleased(size_t rank, RoundId round, absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (true) {
    if (failure_.ok() && !ranks_[rank].closed) {
      if (completed_ >= round) return absl::OkStatus();
      if (ranks_[rank].seen < gatherings_) return absl::AbortedError("gathered again");
    }
    RETURN_IF_ERROR(WaitLocked(rank, deadline));
  }
}

absl::Status LocalMesh::WaitLocked(size_t rank, absl::Time deadline) {
  RankState& self = ranks_[rank];
  RETURN_IF_ERROR(failure_);
  if (self.closed) return absl::CancelledError("the exchange is closed");
  if (self.woken || changed_.WaitUntil(&mutex_, deadline)) {
    self.woken = false;
    return absl::DeadlineExceededError("not yet");
  }
  return absl::OkStatus();
}

void LocalMesh::Wake(size_t rank) {
  MutexLock lock(&mutex_);
  ranks_[rank].woken = true;
  changed_.NotifyAll();
}

void LocalMesh::Close(size_t rank) {
  MutexLock lock(&mutex_);
  ranks_[rank].closed = true;
  changed_.NotifyAll();
}

const OfferHeader* LocalMesh::HeadLocked(size_t rank) const {
  const OfferHeader& head = ranks_[rank].head;
  return head.round == completed_.next() ? &head : nullptr;
}

absl::Status LocalMesh::CheckFatalLocked() const {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const OfferHeader& head = ranks_[rank].head;
    if (head.state == OfferState::kClosing && head.closing_reason != ClosingReason::kBreak &&
        head.closing_reason != ClosingReason::kSessionClosed) {
      return absl::AbortedError(absl::StrCat("rank ", rank, " cannot go on"));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalMesh::CheckHeadsLocked() const {
  const OfferHeader* first = nullptr;
  const OfferHeader* closing = nullptr;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const OfferHeader& head = ranks_[rank].head;
    const bool is_closing = head.state == OfferState::kClosing;
    if (HeadLocked(rank) == nullptr || head.state == OfferState::kNotReady) continue;
    if (first == nullptr) first = &head;
    if (head.epoch != first->epoch || head.iterator != first->iterator) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " is in another iteration than rank ", first->rank.value()));
    }
    if (is_closing && (closing == nullptr || head.position < closing->position)) closing = &head;
  }
  if (closing == nullptr) return absl::OkStatus();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const OfferHeader* const head = HeadLocked(rank);
    if (head == nullptr || head->epoch != closing->epoch || head->iterator != closing->iterator) {
      continue;
    }
    const bool wants_more =
        head->state != OfferState::kClosing && head->waiting && head->position == closing->position;
    if (head->position <= closing->position && !wants_more) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", closing->rank.value(), " left the loop after ", closing->position,
                     " steps, rank ", rank, " took ", head->position));
  }
  return absl::OkStatus();
}

void LocalMesh::DecideLocked() {
  if (!failure_.ok()) return;
  // A rank that cannot go on ends a round that is gathered already too: nobody may wait for its
  // digest.
  failure_ = CheckFatalLocked();
  if (failure_.ok() && gathered_.has_value()) return;
  if (failure_.ok()) failure_ = CheckHeadsLocked();
  if (!failure_.ok()) {
    changed_.NotifyAll();
    return;
  }
  size_t closing = 0;
  size_t ready = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const OfferHeader* const head = HeadLocked(rank);
    if (head == nullptr) return;
    closing += head->state == OfferState::kClosing;
    ready += head->state != OfferState::kClosing && ranks_[rank].offer.has_value();
  }
  if (closing != ranks_.size() && ready != ranks_.size()) return;
  gathered_.emplace();
  gathered_->round = completed_.next();
  gathered_->abandon = closing == ranks_.size();
  for (const RankState& state : ranks_) {
    Offer offer;
    if (!gathered_->abandon) offer = *state.offer;
    offer.header = state.head;
    gathered_->offers.push_back(std::move(offer));
  }
  ++gatherings_;
  changed_.NotifyAll();
}

}  // namespace odb
