#include "server/service/rank_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

AlignerPulse::Limits LimitsOf(const v1::AlignerSetup& setup) {
  return AlignerPulse::LimitsOf(absl::Microseconds(setup.exchange_timeout_us()),
                                absl::Microseconds(setup.heartbeat_interval_us()));
}

bool EndsJob(const OfferHeader& head) {
  return head.state == OfferState::kClosing && head.closing_reason != ClosingReason::kBreak &&
         head.closing_reason != ClosingReason::kSessionClosed;
}

}  // namespace

RankChannel::RankChannel(Options options, RecordCodec codec)
    : options_(std::move(options)), codec_(std::move(codec)), pulse_(LimitsOf(options_.setup)) {}

OfferHeader RankChannel::Complete(OfferHeader head) const {
  head.wire_version = kWireVersion;
  head.rank = options_.rank;
  head.config_digest = options_.config_digest;
  return head;
}

void RankChannel::SetState(const OfferHeader& head) {
  if (EndsJob(head)) return;
  {
    MutexLock lock(&mutex_);
    head_ = Complete(head);
    // The aligner takes READY and DRY for an offer: with one published, only the rest is news.
    if (head_->state == OfferState::kReady || head_->state == OfferState::kDry) {
      head_->state = OfferState::kNotReady;
    }
    SendHeadLocked();
  }
  FlushLine();
}

void RankChannel::Publish(Offer offer) {
  offer.header = Complete(offer.header);
  std::string record = codec_.EncodeOffer(offer);
  {
    MutexLock lock(&mutex_);
    INVARIANT(offer.header.round == last_completed_.next(),
              "an offer is for the round after the last completed one");
    offer_ = std::move(record);
    SendOfferLocked();
  }
  FlushLine();
}

void RankChannel::FlushLine() {
  std::shared_ptr<AlignerLine> line;
  {
    MutexLock lock(&mutex_);
    line = line_;
  }
  if (line != nullptr) line->Flush();
}

void RankChannel::WakePipeline() {
  std::shared_ptr<AlignerLine> line;
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
    line = line_;
  }
  if (line != nullptr) line->Wake();
}

bool RankChannel::AwaitNewsLocked(absl::Time deadline) {
  if (std::exchange(wake_, false) || absl::Now() >= deadline) return true;
  const std::shared_ptr<AlignerLine> line = line_;
  if (line == nullptr) return changed_.WaitUntil(&mutex_, deadline);
  mutex_.Unlock();
  line->Attend(deadline);
  mutex_.Lock();
  return false;
}

absl::StatusOr<GatheredRound> RankChannel::WaitGathered(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (true) {
    if (!end_.ok()) return end_;
    if (gathered_.has_value() && !gathered_->taken) {
      gathered_->taken = true;
      return std::move(gathered_->round);
    }
    if (AwaitNewsLocked(deadline)) {
      return absl::DeadlineExceededError("the round is not gathered yet");
    }
  }
}

void RankChannel::Planned(RoundId round, uint64_t digest) {
  {
    MutexLock lock(&mutex_);
    // Gathered anew meanwhile: the pipeline learns it from WaitReleased.
    if (!gathered_.has_value() || !gathered_->taken || round != last_completed_.next()) return;
    gathered_->digest = digest;
    unplanned_since_ = absl::InfiniteFuture();
    if (!connected_ || gathered_->generation != handed_) return;
    v1::Planned* const planned = AddCommandLocked()->mutable_planned();
    planned->set_round(round.value());
    planned->set_plan_digest(digest);
    planned->set_generation(gathered_->generation.value());
    pulse_.OnPlanned(absl::Now());
  }
  FlushLine();
}

absl::Status RankChannel::WaitReleased(RoundId round, absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (true) {
    if (last_completed_ >= round) return absl::OkStatus();
    if (!end_.ok()) return end_;
    if (gathered_.has_value() && !gathered_->taken) {
      return absl::AbortedError("the round was gathered anew");
    }
    if (AwaitNewsLocked(deadline)) {
      return absl::DeadlineExceededError("the round is not released yet");
    }
  }
}

void RankChannel::Wake() {
  {
    MutexLock lock(&mutex_);
    wake_ = true;
  }
  WakePipeline();
}

RankChannel::Connection RankChannel::Connect(std::shared_ptr<AlignerLine> line) {
  Connection connection;
  {
    MutexLock lock(&mutex_);
    connection.number = ++connection_;
    connected_ = true;
    line_.swap(line);
    changed_.NotifyAll();
    pulse_.OnConnected();
    commands_.clear();
    v1::AlignerSetup* const setup = AddCommandLocked()->mutable_setup();
    *setup = options_.setup;
    setup->set_rank(static_cast<int32_t>(options_.rank.value()));
    if (handed_ == generation_) {
      connection.broken = generation_;
    } else {
      HandOutLocked();
    }
  }
  if (line != nullptr) {
    line->Flush();  // ends it
    line->Wake();
  }
  return connection;
}

Generation RankChannel::Disconnect(int64_t connection) {
  MutexLock lock(&mutex_);
  if (connection != connection_ || !connected_) return Generation();
  connected_ = false;
  line_.reset();
  commands_.clear();
  return handed_ == generation_ ? generation_ : Generation();
}

absl::StatusOr<std::optional<v1::AlignerCommand>> RankChannel::NextCommand(int64_t connection) {
  MutexLock lock(&mutex_);
  if (connection != connection_ || !connected_) return absl::CancelledError("superseded");
  if (commands_.empty()) return std::optional<v1::AlignerCommand>();
  std::optional<v1::AlignerCommand> command(std::move(commands_.front()));
  commands_.pop_front();
  return command;
}

absl::Status RankChannel::OnGathered(int64_t connection, const v1::Gathered& gathered,
                                     absl::string_view table) {
  GatheredState state;
  state.generation = Generation(gathered.generation());
  state.abandon = gathered.abandon();
  state.round.round = RoundId(gathered.round());
  state.round.abandon = gathered.abandon();
  const size_t size = codec_.sizes().offer;
  if (table.size() != size * options_.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("the table of round ", gathered.round(), " has ",
                                                   table.size(), " bytes, not ",
                                                   options_.world_size, " records of ", size));
  }
  state.round.offers.reserve(options_.world_size);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    absl::StatusOr<Offer> offer = codec_.DecodeOffer(table.substr(rank * size, size));
    if (!offer.ok()) {
      return absl::Status(offer.status().code(),
                          absl::StrCat("the offer of rank ", rank, " in round ", gathered.round(),
                                       " cannot be read: ", offer.status().message()));
    }
    state.round.offers.push_back(*std::move(offer));
  }
  MutexLock lock(&mutex_);
  if (connection != connection_ || state.generation != generation_) return absl::OkStatus();
  if (state.round.round != last_completed_.next()) {
    return absl::InternalError(absl::StrCat("round ", gathered.round(),
                                            " was gathered after round ", last_completed_.value(),
                                            " was completed"));
  }
  const absl::string_view own = table.substr(options_.rank.value() * size, size);
  planned_offer_.assign(own.data(), own.size());
  gathered_ = std::move(state);
  unplanned_since_ = std::min(unplanned_since_, absl::Now());
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status RankChannel::OnReleased(int64_t connection, const v1::RoundReleased& released) {
  MutexLock lock(&mutex_);
  const Generation generation(released.generation());
  if (connection != connection_ || generation != generation_) return absl::OkStatus();
  const RoundId round(released.round());
  if (!gathered_.has_value() || gathered_->generation != generation ||
      !gathered_->digest.has_value() || round != last_completed_.next()) {
    return absl::InternalError(
        absl::StrCat("round ", round.value(), " was released before it was planned"));
  }
  last_completed_ = round;
  stored_offer_.swap(planned_offer_);
  planned_offer_.clear();
  stored_digest_ = *gathered_->digest;
  stored_abandon_ = gathered_->abandon;
  gathered_.reset();
  offer_.clear();
  changed_.NotifyAll();
  return absl::OkStatus();
}

void RankChannel::OpenGeneration(Generation generation, const std::vector<int>& node_of_rank) {
  {
    MutexLock lock(&mutex_);
    if (generation <= generation_) return;
    generation_ = generation;
    node_of_rank_ = node_of_rank;
    if (connected_) HandOutLocked();
  }
  FlushLine();
}

void RankChannel::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!end_.ok() || status.ok()) return;
    end_ = status;
    if (connected_) AddCommandLocked()->mutable_quit()->set_reason(std::string(status.message()));
  }
  FlushLine();
  WakePipeline();
}

RoundId RankChannel::last_completed() const {
  MutexLock lock(&mutex_);
  return last_completed_;
}

bool RankChannel::IsCurrent(int64_t connection) const {
  MutexLock lock(&mutex_);
  return connected_ && connection == connection_;
}

void RankChannel::OnSign(int64_t connection, const v1::AlignerEvent& event) {
  MutexLock lock(&mutex_);
  if (connection != connection_) return;
  const int64_t handed = handed_.value();
  if (event.has_mesh_ready() && event.mesh_ready().generation() == handed) {
    pulse_.OnMeshReady(absl::Now());
  } else if (event.has_mesh_failure() && event.mesh_failure().generation() == handed) {
    pulse_.OnMeshFailed();
  } else if (event.has_gathered() && event.gathered().generation() == handed) {
    pulse_.OnGathered();
  } else {
    pulse_.OnSign(absl::Now());
  }
}

bool RankChannel::IsSilent(absl::Time now) const {
  MutexLock lock(&mutex_);
  return connected_ && pulse_.IsSilent(now);
}

absl::Time RankChannel::exchanging_since() const {
  MutexLock lock(&mutex_);
  return connected_ ? pulse_.exchanging_since() : absl::InfiniteFuture();
}

absl::Time RankChannel::unplanned_since() const {
  MutexLock lock(&mutex_);
  return unplanned_since_;
}

void RankChannel::SendHeadLocked() {
  if (!connected_ || !head_.has_value()) return;
  // Only the newest counts: an aligner that does not read must not make the queue grow.
  if (back_is_head_ && !commands_.empty()) commands_.pop_back();
  Offer head;
  head.header = *head_;
  AddCommandLocked()->mutable_offer()->set_record(head_codec_.EncodeOffer(head));
  back_is_head_ = true;
}

void RankChannel::SendOfferLocked() {
  if (!connected_ || offer_.empty()) return;
  AddCommandLocked()->mutable_offer()->set_record(offer_);
}

void RankChannel::HandOutLocked() {
  handed_ = generation_;
  pulse_.OnGenerationOpened(absl::Now());
  v1::OpenGeneration* const open = AddCommandLocked()->mutable_open_generation();
  open->set_generation(generation_.value());
  open->set_last_completed_round(last_completed_.value());
  open->set_stored_offer(stored_offer_);
  open->set_stored_plan_digest(stored_digest_);
  open->set_stored_abandon(stored_abandon_);
  open->set_planned_offer(planned_offer_);
  for (const int node : node_of_rank_) open->add_node_of_rank(node);
  SendHeadLocked();
  SendOfferLocked();
}

v1::AlignerCommand* RankChannel::AddCommandLocked() {
  commands_.emplace_back();
  back_is_head_ = false;
  return &commands_.back();
}

}  // namespace odb
