#include "server/service/alignment_hub.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr int kRanksInText = 3;
// An exchange that is away for longer, beyond the time that a rank may hold it, is worth a word.
constexpr absl::Duration kExchangeShown = absl::Seconds(1);

std::optional<Rank> ToSuspect(int32_t suspect) {
  if (suspect < 0) return std::nullopt;
  return Rank(suspect);
}

}  // namespace

AlignmentHub::AlignmentHub(Options options, RecordCodec codec, AlignmentListener* listener)
    : options_(std::move(options)), codec_(std::move(codec)), listener_(listener) {}

RoundExchange* AlignmentHub::exchange(Rank rank) {
  INVARIANT(rank >= Rank(0) && rank < Rank(options_.world_size), "the rank is in the job");
  MutexLock lock(&mutex_);
  std::shared_ptr<RankChannel>& channel = channels_[rank];
  if (channel == nullptr) {
    RankChannel::Options options;
    options.rank = rank;
    options.world_size = options_.world_size;
    options.config_digest = options_.config_digest;
    options.setup = options_.setup;
    channel = std::make_shared<RankChannel>(std::move(options), codec_);
    channel->OpenGeneration(generation_, node_of_rank_);
    channel->End(end_);
  }
  return channel.get();
}

void AlignmentHub::OpenGeneration(Generation generation, const std::vector<int>& node_of_rank) {
  std::vector<std::shared_ptr<RankChannel>> channels;
  {
    MutexLock lock(&mutex_);
    if (generation <= generation_) return;
    generation_ = generation;
    waiting_.Clear();  // who was waited for then may be somebody else now
    node_of_rank_ = node_of_rank;
    channels = ChannelsLocked();
  }
  for (const auto& channel : channels) channel->OpenGeneration(generation, node_of_rank);
}

void AlignmentHub::End(const absl::Status& status) {
  std::vector<std::shared_ptr<RankChannel>> channels;
  {
    MutexLock lock(&mutex_);
    if (!end_.ok() || status.ok()) return;
    end_ = status;
    channels = ChannelsLocked();
  }
  for (const auto& channel : channels) channel->End(status);
}

std::vector<std::shared_ptr<RankChannel>> AlignmentHub::ChannelsLocked() const {
  std::vector<std::shared_ptr<RankChannel>> channels;
  for (const auto& entry : channels_) channels.push_back(entry.second);
  return channels;
}

void AlignmentHub::Close() {
  End(absl::CancelledError("the job has ended"));
  MutexLock lock(&mutex_);
  listener_ = nullptr;
  while (notifying_ > 0) notified_.Wait(&mutex_);
}

std::string AlignmentHub::WaitingText(absl::Time now) const {
  MutexLock lock(&mutex_);
  if (waiting_.ranks_size() == 0) return QuietTextLocked(now);
  std::string text = absl::StrCat("round ", waiting_.round(), " waits for ");
  for (int i = 0; i < std::min(waiting_.ranks_size(), kRanksInText); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "rank ", waiting_.ranks(i).rank(), ": ",
                    waiting_.ranks(i).reason());
  }
  if (waiting_.ranks_size() > kRanksInText) {
    absl::StrAppend(&text, " and ", waiting_.ranks_size() - kRanksInText, " more");
  }
  return text;
}

// No rank has said that it is not ready, and still a round does not go on.
std::string AlignmentHub::QuietTextLocked(absl::Time now) const {
  const absl::Duration held = absl::Microseconds(options_.setup.heartbeat_interval_us());
  for (const auto& [rank, channel] : channels_) {
    const int64_t round = channel->last_completed().next().value();
    const absl::Duration planning = now - channel->unplanned_since();
    if (planning > kExchangeShown) {
      return absl::StrFormat("round %d waits for rank %d: planning (%.1f s)", round, rank.value(),
                             absl::ToDoubleSeconds(planning));
    }
  }
  for (const auto& [rank, channel] : channels_) {
    const absl::Duration exchanging = now - channel->exchanging_since();
    if (exchanging <= kExchangeShown + held) continue;
    return absl::StrFormat("round %d: an exchange of rank %d with the others is out (%.1f s)",
                           channel->last_completed().next().value(), rank.value(),
                           absl::ToDoubleSeconds(exchanging));
  }
  return "";
}

std::vector<std::pair<Rank, std::string>> AlignmentHub::Waits() const {
  MutexLock lock(&mutex_);
  std::vector<std::pair<Rank, std::string>> waits;
  for (const v1::RankWait& wait : waiting_.ranks()) {
    waits.emplace_back(Rank(wait.rank()), wait.reason());
  }
  return waits;
}

absl::Status AlignmentHub::CheckPlans(absl::Time now) const {
  const absl::Duration limit =
      std::max(kPlanTimeoutMin, absl::Microseconds(options_.setup.exchange_timeout_us()));
  MutexLock lock(&mutex_);
  for (const auto& [rank, channel] : channels_) {
    if (now - channel->unplanned_since() <= limit) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", rank.value(), ": its odbd has not planned round ",
        channel->last_completed().next().value(), " within ", absl::FormatDuration(limit)));
  }
  return absl::OkStatus();
}

RoundId AlignmentHub::last_completed() const {
  MutexLock lock(&mutex_);
  RoundId last;
  for (const auto& entry : channels_) last = std::max(last, entry.second->last_completed());
  return last;
}

std::vector<Rank> AlignmentHub::SilentRanks(absl::Time now) const {
  MutexLock lock(&mutex_);
  std::vector<Rank> silent;
  for (const auto& [rank, channel] : channels_) {
    if (channel->IsSilent(now)) silent.push_back(rank);
  }
  return silent;
}

std::string AlignmentHub::interface() const {
  MutexLock lock(&mutex_);
  return interface_;
}

absl::StatusOr<std::shared_ptr<RankChannel>> AlignmentHub::Connect(
    Rank rank, int64_t pid, std::shared_ptr<AlignerLine> line,
    RankChannel::Connection* connection) {
  std::shared_ptr<RankChannel> channel = Find(rank);
  if (channel == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("rank ", rank.value(), " of job ", options_.job, " is not of this node"));
  }
  *connection = channel->Connect(std::move(line));
  {
    MutexLock lock(&mutex_);
    pids_[rank] = pid;
  }
  const Generation broken = connection->broken;
  if (broken != Generation()) {
    Notify([&](AlignmentListener* listener) {
      listener->OnMeshFailed(
          rank, broken, absl::StrCat("the aligner of rank ", rank.value(), " was replaced"), rank);
    });
  }
  return channel;
}

void AlignmentHub::Disconnect(Rank rank, int64_t connection) {
  const std::shared_ptr<RankChannel> channel = Find(rank);
  if (channel == nullptr) return;
  const Generation left = channel->Disconnect(connection);
  if (left == Generation()) return;
  int64_t pid = 0;
  {
    MutexLock lock(&mutex_);
    pid = pids_[rank];
  }
  Notify([&](AlignmentListener* listener) {
    listener->OnMeshFailed(
        rank, left, absl::StrCat("the aligner of rank ", rank.value(), " (pid ", pid, ") is gone"),
        rank);
  });
}

absl::Status AlignmentHub::OnEvent(Rank rank, int64_t connection, const v1::AlignerEvent& event,
                                   absl::string_view table) {
  const std::shared_ptr<RankChannel> channel = Find(rank);
  if (channel == nullptr || !channel->IsCurrent(connection)) {
    return absl::CancelledError("superseded by a newer aligner");
  }
  channel->OnSign(connection, event);
  const absl::Status status = Dispatch(rank, channel.get(), connection, event, table);
  if (!status.ok()) {
    Notify([&](AlignmentListener* listener) { listener->OnFailed(rank, status); });
  }
  return status;
}

absl::Status AlignmentHub::Dispatch(Rank rank, RankChannel* channel, int64_t connection,
                                    const v1::AlignerEvent& event, absl::string_view table) {
  switch (event.event_case()) {
    case v1::AlignerEvent::kGathered:
      ForgetWaiting(event.gathered().round());
      return channel->OnGathered(connection, event.gathered(), table);
    case v1::AlignerEvent::kReleased:
      return channel->OnReleased(connection, event.released());
    case v1::AlignerEvent::kWaiting:
      OnWaiting(event.waiting());
      return absl::OkStatus();
    case v1::AlignerEvent::kMeshReady: {
      {
        MutexLock lock(&mutex_);
        interface_ = absl::StrCat(event.mesh_ready().interface(),
                                  event.mesh_ready().interface().empty() ? "" : " ",
                                  event.mesh_ready().address());
      }
      Notify([&](AlignmentListener* listener) {
        listener->OnMeshReady(rank, Generation(event.mesh_ready().generation()));
      });
      return absl::OkStatus();
    }
    case v1::AlignerEvent::kMeshFailure: {
      const v1::MeshFailure& failure = event.mesh_failure();
      Notify([&](AlignmentListener* listener) {
        listener->OnMeshFailed(rank, Generation(failure.generation()), failure.reason(),
                               ToSuspect(failure.suspect()));
      });
      return absl::OkStatus();
    }
    case v1::AlignerEvent::kFailure: {
      const v1::AlignmentFailure& failure = event.failure();
      const auto code = static_cast<absl::StatusCode>(failure.code());
      return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
                          failure.message());
    }
    case v1::AlignerEvent::kHello:
    case v1::AlignerEvent::EVENT_NOT_SET:
      break;
  }
  return absl::InternalError(
      absl::StrCat("the aligner of rank ", rank.value(), " sent an event out of place"));
}

void AlignmentHub::ForgetWaiting(int64_t round) {
  MutexLock lock(&mutex_);
  if (waiting_.round() <= round) waiting_.Clear();
}

void AlignmentHub::OnWaiting(const v1::WaitReport& report) {
  if (report.ranks_size() == 0) return;  // only a sign of life
  MutexLock lock(&mutex_);
  if (report.round() >= waiting_.round()) waiting_ = report;
}

std::shared_ptr<RankChannel> AlignmentHub::Find(Rank rank) const {
  MutexLock lock(&mutex_);
  const auto found = channels_.find(rank);
  return found == channels_.end() ? nullptr : found->second;
}

void AlignmentHub::Notify(const std::function<void(AlignmentListener*)>& call) {
  AlignmentListener* listener = nullptr;
  {
    MutexLock lock(&mutex_);
    if (listener_ == nullptr) return;
    listener = listener_;
    ++notifying_;
  }
  call(listener);
  MutexLock lock(&mutex_);
  --notifying_;
  notified_.NotifyAll();
}

}  // namespace odb
