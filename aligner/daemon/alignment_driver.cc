#include "aligner/daemon/alignment_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "aligner/protocol/describe.h"
#include "aligner/protocol/local_view.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// A mesh waits for aligners that are only being started, too.
constexpr absl::Duration kOpenTimeoutMin = absl::Seconds(10);

absl::Duration FromMicroseconds(int64_t microseconds) {
  return microseconds == 0 ? absl::InfiniteDuration() : absl::Microseconds(microseconds);
}

// What a new mesh cannot cure.
bool IsFinal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status);
}

absl::StatusOr<ResumeState> ToResumeState(const RecordCodec& codec,
                                          const v1::OpenGeneration& open) {
  ResumeState resume;
  resume.last_completed_round = RoundId(open.last_completed_round());
  resume.stored_plan_digest = open.stored_plan_digest();
  if (!open.stored_offer().empty()) {
    ASSIGN_OR_RETURN(resume.stored_offer, codec.DecodeOffer(open.stored_offer()));
  }
  if (!open.planned_offer().empty()) {
    ASSIGN_OR_RETURN(resume.planned_offer, codec.DecodeOffer(open.planned_offer()));
  }
  return resume;
}

// What the machine decides from: a head without its samples, which only odbd needs, and checks.
absl::StatusOr<Offer> DecodeHead(const RecordCodec& codec, absl::string_view record) {
  Offer offer;
  ASSIGN_OR_RETURN(offer.header, codec.DecodeOfferHead(record));
  return offer;
}

// Splits `table` into records of `size` bytes. Sets `refused` to the rank whose record is none.
template <typename Decode>
absl::StatusOr<ExchangeTable> DecodeTable(absl::string_view table, size_t size, Rank* refused,
                                          Decode decode) {
  std::vector<typename std::invoke_result_t<Decode, absl::string_view>::value_type> records;
  for (size_t row = 0; row * size < table.size(); ++row) {
    auto record = decode(table.substr(row * size, size));
    *refused = Rank(static_cast<int64_t>(row));
    if (!record.ok()) return record.status();
    records.push_back(*std::move(record));
  }
  return ExchangeTable(std::move(records));
}

}  // namespace

void AlignmentDriver::OnCommand(v1::AlignerCommand command) { Push(std::move(command)); }

void AlignmentDriver::OnStreamEnd() { Push(StreamEnd{}); }

AlignmentDriver::~AlignmentDriver() { Finish().IgnoreError(); }

void AlignmentDriver::Push(Event event) {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    events_.push_back(std::move(event));
    if (std::exchange(handling_, true)) return;
  }
  HandleAll();
}

void AlignmentDriver::HandleAll() {
  bool more = true;
  while (more) {
    absl::Status status;
    while (std::optional<Event> event = TakeEvent()) {
      status = Handle(*std::move(event));
      if (!status.ok() || finished_) break;
    }
    if (status.ok() && !finished_ && machine_.has_value() && clock_->Now() >= timer_) {
      timer_ = absl::InfiniteFuture();
      Carry(machine_->OnTick(clock_->Now()));
    }
    MutexLock lock(&mutex_);
    over_ = over_ || finished_ || !status.ok();
    if (status_.ok()) status_ = status;
    more = !over_ && !events_.empty();
    handling_ = more;
    // A timer that is put off need not wake anybody: Run looks again when the earlier one is due.
    const bool earlier = timer_ < wake_;
    next_ = timer_;
    if (!more && (over_ || earlier || std::exchange(due_, false))) changed_.NotifyAll();
  }
}

std::optional<AlignmentDriver::Event> AlignmentDriver::TakeEvent() {
  MutexLock lock(&mutex_);
  if (events_.empty() || over_) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

absl::Status AlignmentDriver::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (!over_) {
        const bool due = clock_->Now() >= next_;
        if (due && !handling_) break;
        due_ = due;
        wake_ = due ? absl::InfiniteFuture() : next_;
        changed_.WaitUntil(&mutex_, wake_);
      }
      if (over_) break;
      handling_ = true;
    }
    HandleAll();
  }
  return Finish();
}

absl::Status AlignmentDriver::Finish() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    over_ = true;
    while (handling_) changed_.Wait(&mutex_);
    status = status_;
  }
  worker_.reset();
  return status;
}

absl::Status AlignmentDriver::Handle(Event event) {
  if (const auto* command = std::get_if<v1::AlignerCommand>(&event)) return HandleCommand(*command);
  if (auto* done = std::get_if<std::variant<MeshOpened, Exchanged>>(&event)) {
    if (auto* opened = std::get_if<MeshOpened>(done)) {
      HandleMesh(std::move(*opened));
    } else {
      HandleExchange(std::get<Exchanged>(std::move(*done)));
    }
    return absl::OkStatus();
  }
  finished_ = true;
  return absl::OkStatus();
}

absl::Status AlignmentDriver::HandleCommand(const v1::AlignerCommand& command) {
  if (command.has_setup()) return SetUp(command.setup());
  if (command.has_quit()) {
    spdlog::info("odbd says quit: {}", command.quit().reason());
    finished_ = true;
    return absl::OkStatus();
  }
  if (!codec_.has_value())
    return absl::InvalidArgumentError("odbd sent a command before the setup");
  if (!machine_.has_value()) return absl::OkStatus();  // the setup was refused; odbd was told
  if (command.has_open_generation()) return OpenMesh(command.open_generation());
  if (command.has_offer()) return TakeOffer(command.offer());
  if (command.has_planned()) {
    Carry(machine_->OnPlanned(clock_->Now(), Generation(command.planned().generation()),
                              RoundId(command.planned().round()), command.planned().plan_digest()));
  }
  return absl::OkStatus();
}

absl::Status AlignmentDriver::SetUp(const v1::AlignerSetup& setup) {
  if (codec_.has_value()) return absl::InvalidArgumentError("odbd sent two setups");
  if (setup.window_max() < 0) return absl::InvalidArgumentError("odbd sent a negative window_max");
  rank_ = Rank(setup.rank());
  exchange_timeout_ = absl::Microseconds(setup.exchange_timeout_us());
  codec_.emplace(setup.window_max());

  AlignmentMachine::Options options;
  options.rank = rank_;
  options.world_size = setup.world_size();
  options.heartbeat_interval = absl::Microseconds(setup.heartbeat_interval_us());
  options.exchange_timeout = exchange_timeout_;
  options.config_digest = setup.config_digest();
  options.stall_timeout = FromMicroseconds(setup.stall_timeout_us());
  const absl::Status valid = AlignmentMachine::ValidateOptions(options);
  if (!valid.ok()) {
    SendFailure(valid, {});
    return absl::OkStatus();
  }
  const WireRecordSizes sizes = codec_->sizes();
  auto transport = create_transport_(setup, {sizes.resync, sizes.offer, sizes.confirm});
  if (!transport.ok()) {
    SendFailure(transport.status(), {rank_});
    return absl::OkStatus();
  }
  machine_.emplace(options);
  worker_ =
      MeshWorker::Start(*std::move(transport), link_, [this](auto done) { Push(std::move(done)); });
  return absl::OkStatus();
}

absl::Status AlignmentDriver::OpenMesh(const v1::OpenGeneration& open) {
  const Generation generation(open.generation());
  if (generation <= generation_) {
    return absl::InvalidArgumentError(absl::StrCat("odbd opened generation ", generation.value(),
                                                   " after ", generation_.value()));
  }
  ASSIGN_OR_RETURN(resume_, ToResumeState(*codec_, open));
  generation_ = generation;
  // Says at once that this process is alive: connecting the mesh may take long.
  v1::AlignerEvent alive;
  alive.mutable_waiting();
  Send(std::move(alive));
  MeshSpec mesh{generation, {open.node_of_rank().begin(), open.node_of_rank().end()}};
  worker_->Open(std::move(mesh), clock_->Now() + std::max(exchange_timeout_, kOpenTimeoutMin));
  return absl::OkStatus();
}

absl::Status AlignmentDriver::TakeOffer(const v1::LocalOffer& local) {
  // A head by itself comes as a record without room for samples.
  const bool is_head = local.record().size() == OfferRecordBytes(0);
  const RecordCodec heads(0);
  ASSIGN_OR_RETURN(Offer offer, (is_head ? heads : *codec_).DecodeOffer(local.record()));
  const absl::Time now = clock_->Now();
  if (offer.header.state == OfferState::kReady || offer.header.state == OfferState::kDry) {
    Carry(machine_->OnLocalOffer(now, std::move(offer)));
  } else {
    Carry(machine_->OnLocalState(now, LocalStateOf(offer.header)));
  }
  return absl::OkStatus();
}

void AlignmentDriver::HandleMesh(MeshOpened opened) {
  if (opened.generation != generation_) return;
  const OpenResult& result = opened.result;
  // Aborted: the store is at a newer generation already, and so will odbd be.
  if (absl::IsCancelled(result.status) || absl::IsAborted(result.status)) return;
  if (result.status.ok()) {
    spdlog::info("rank {}: generation {} is connected, listening at {} {}", rank_.value(),
                 generation_.value(), result.address.interface, result.address.address);
    v1::AlignerEvent event;
    v1::MeshReady* const ready = event.mutable_mesh_ready();
    ready->set_generation(generation_.value());
    ready->set_interface(result.address.interface);
    ready->set_address(result.address.address);
    Send(std::move(event));
    Carry(machine_->OnGeneration(clock_->Now(), generation_, std::move(resume_)));
  } else if (IsFinal(result.status)) {
    std::vector<Rank> culprits;
    if (result.suspect.has_value()) culprits.push_back(*result.suspect);
    SendFailure(result.status, culprits);
  } else {
    SendMeshFailure(generation_, std::string(result.status.message()), result.suspect);
  }
}

void AlignmentDriver::HandleExchange(Exchanged exchanged) {
  if (exchanged.id.generation != generation_) return;
  const absl::Time now = clock_->Now();
  const ExchangeResult& result = exchanged.result;
  if (!result.status.ok()) {
    Carry(machine_->OnExchangeFailed(now, exchanged.id, std::string(result.status.message()),
                                     result.suspect));
    return;
  }
  absl::StatusOr<ExchangeTable> table = absl::InternalError("no such kind of exchange");
  Rank refused;
  switch (exchanged.kind) {
    case ExchangeKind::kResync:
      table = DecodeTable(result.table, codec_->sizes().resync, &refused,
                          [this](absl::string_view row) { return codec_->DecodeResync(row); });
      break;
    case ExchangeKind::kOffer:
      offers_ = std::move(exchanged.result.table);
      table = DecodeTable(offers_, codec_->sizes().offer, &refused,
                          [this](absl::string_view row) { return DecodeHead(*codec_, row); });
      break;
    case ExchangeKind::kConfirm:
      table = DecodeTable(result.table, codec_->sizes().confirm, &refused,
                          [this](absl::string_view row) { return codec_->DecodeConfirm(row); });
      break;
  }
  if (!table.ok()) {
    Carry(machine_->OnRecordRefused(now, exchanged.id, refused, table.status()));
  } else {
    Carry(machine_->OnExchanged(now, exchanged.id, *std::move(table)));
  }
}

void AlignmentDriver::Carry(std::vector<Effect> effects) {
  for (const Effect& effect : effects) {
    std::visit([this](const auto& one) { CarryOne(one); }, effect);
  }
}

void AlignmentDriver::CarryOne(const StartExchange& effect) {
  if (effect.id.generation != generation_) return;  // its mesh is gone
  ExchangeKind kind = ExchangeKind::kResync;
  std::string record;
  if (const auto* resync = std::get_if<ResyncRecord>(&effect.record)) {
    record = codec_->EncodeResync(*resync);
  } else if (const auto* offer = std::get_if<Offer>(&effect.record)) {
    kind = ExchangeKind::kOffer;
    record = codec_->EncodeOffer(*offer);
  } else {
    kind = ExchangeKind::kConfirm;
    record = codec_->EncodeConfirm(std::get<ConfirmRecord>(effect.record));
  }
  worker_->Exchange(effect.id, kind, std::move(record), clock_->Now() + exchange_timeout_);
}

void AlignmentDriver::CarryOne(const DeliverGathered& effect) {
  v1::AlignerEvent event;
  v1::Gathered* const gathered = event.mutable_gathered();
  gathered->set_generation(effect.generation.value());
  gathered->set_round(effect.round.value());
  gathered->set_abandon(effect.decision == DecisionKind::kAbandon);
  gathered->set_table(std::move(offers_));
  Send(std::move(event));
}

void AlignmentDriver::CarryOne(const ReleaseRound& effect) {
  v1::AlignerEvent event;
  v1::RoundReleased* const released = event.mutable_released();
  released->set_generation(effect.generation.value());
  released->set_round(effect.round.value());
  released->set_abandon(effect.decision == DecisionKind::kAbandon);
  Send(std::move(event));
}

void AlignmentDriver::CarryOne(const ReportWaiting& effect) {
  const absl::Time now = clock_->Now();
  v1::AlignerEvent event;
  event.mutable_waiting()->set_round(effect.round.value());
  for (const ReportWaiting::Entry& entry : effect.waiting_for) {
    v1::RankWait* const wait = event.mutable_waiting()->add_ranks();
    wait->set_rank(static_cast<int32_t>(entry.who.rank.value()));
    wait->set_reason(absl::StrFormat("%s (%.1f s)", DescribeWait(entry.who),
                                     absl::ToDoubleSeconds(now - entry.since)));
  }
  Send(std::move(event));
}

void AlignmentDriver::CarryOne(const SetTimer& effect) { timer_ = effect.at; }

void AlignmentDriver::CarryOne(const Fail& effect) { SendFailure(effect.status, effect.culprits); }

void AlignmentDriver::CarryOne(const RequestNewGeneration& effect) {
  if (effect.broken != generation_) return;
  worker_->Close(effect.broken);
  SendMeshFailure(effect.broken, effect.reason, effect.suspected);
}

void AlignmentDriver::Send(v1::AlignerEvent event) {
  if (!link_->Send(std::move(event))) finished_ = true;
}

void AlignmentDriver::SendFailure(const absl::Status& status, const std::vector<Rank>& culprits) {
  spdlog::error("rank {}: {}", rank_.value(), std::string(status.message()));
  v1::AlignerEvent event;
  v1::AlignmentFailure* const failure = event.mutable_failure();
  failure->set_code(static_cast<int32_t>(status.code()));
  failure->set_message(std::string(status.message()));
  for (const Rank rank : culprits) failure->add_culprits(static_cast<int32_t>(rank.value()));
  Send(std::move(event));
}

void AlignmentDriver::SendMeshFailure(Generation generation, const std::string& reason,
                                      std::optional<Rank> suspect) {
  spdlog::warn("rank {}: generation {} broke: {}", rank_.value(), generation.value(), reason);
  v1::AlignerEvent event;
  v1::MeshFailure* const failure = event.mutable_mesh_failure();
  failure->set_generation(generation.value());
  failure->set_reason(reason);
  failure->set_suspect(suspect.has_value() ? static_cast<int32_t>(suspect->value()) : -1);
  Send(std::move(event));
}

}  // namespace odb
