#include "tests/simulation/sim_mesh.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {

SimMesh::SimMesh(const Options& options, Simulator* simulator, History* history)
    : options_(options),
      codec_(options.scenario->window_max),
      simulator_(simulator),
      history_(history) {}

bool SimMesh::Join(Rank rank) {
  joined_.insert(rank);
  return joined_.size() == static_cast<size_t>(options_.scenario->world_size);
}

void SimMesh::Post(Rank rank, ExchangeId id, const ExchangeRecord& record, Done done) {
  const auto at = static_cast<size_t>(id.sequence);
  if (at > exchanges_.size()) {
    return history_->Violation(absl::StrCat("rank ", rank.value(), " skipped an exchange"));
  }
  if (at == exchanges_.size()) {
    exchanges_.emplace_back();
    exchanges_[at].kind = record.index();
    exchanges_[at].slots.resize(static_cast<size_t>(options_.scenario->world_size));
  }
  Exchange& exchange = exchanges_[at];
  if (exchange.kind != record.index()) {
    return history_->Violation(absl::StrCat("rank ", rank.value(), " is not in lockstep: exchange ",
                                            id.sequence, " of generation ", id.generation.value(),
                                            " is of two kinds"));
  }
  Slot& slot = exchange.slots[static_cast<size_t>(rank.value())];
  slot.record = Encode(record);
  slot.done = std::move(done);
  slot.posted = true;
  ++exchange.num_posted;
  if (broken_) return Break(id, static_cast<size_t>(rank.value()), std::nullopt);
  if (exchange.num_posted < exchange.slots.size()) return;
  exchange.table = Decode(exchange);
  for (size_t peer = 0; peer < exchange.slots.size(); ++peer) {
    absl::Duration delay =
        simulator_->Between(absl::Microseconds(20), options_.timing->slowest_exchange);
    if (simulator_->OneIn(10)) delay *= 10;  // a packet was lost
    simulator_->After(delay, [self = shared_from_this(), id, peer] { self->Answer(id, peer); });
  }
}

void SimMesh::Leave(Rank rank) {
  joined_.erase(rank);
  broken_ = true;
  for (size_t at = 0; at < exchanges_.size(); ++at) {
    const ExchangeId id = {options_.generation, static_cast<int64_t>(at)};
    if (exchanges_[at].slots.empty()) continue;
    exchanges_[at].slots[static_cast<size_t>(rank.value())].done = nullptr;
    for (size_t peer = 0; peer < exchanges_[at].slots.size(); ++peer) {
      // Complete: whoever has all the bytes already may still see it so.
      if (exchanges_[at].table.has_value() && simulator_->OneIn(2)) continue;
      Break(id, peer, rank);
    }
  }
}

SimMesh::Done SimMesh::TakeDone(ExchangeId id, size_t rank) {
  Exchange& exchange = exchanges_[static_cast<size_t>(id.sequence)];
  if (exchange.slots.empty()) return nullptr;
  return std::exchange(exchange.slots[rank].done, nullptr);
}

// Fails what `rank` waits for, or never answers it.
void SimMesh::Break(ExchangeId id, size_t rank, std::optional<Rank> suspected) {
  const Done done = TakeDone(id, rank);
  if (!done || simulator_->OneIn(4)) return;
  if (simulator_->OneIn(4)) suspected.reset();
  simulator_->After(simulator_->Between(absl::ZeroDuration(), absl::Milliseconds(20)),
                    [done, id, suspected] { done(id, std::nullopt, suspected); });
}

void SimMesh::Answer(ExchangeId id, size_t rank) {
  Exchange& exchange = exchanges_[static_cast<size_t>(id.sequence)];
  const bool is_last = ++exchange.num_answered == exchange.slots.size();
  std::optional<ExchangeTable> table;
  if (is_last) {
    table = std::exchange(exchange.table, std::nullopt);
  } else {
    table = exchange.table;
  }
  const int64_t lost = options_.timing->link_failure_one_in;
  if (lost > 0 && exchange.slots[rank].done && simulator_->OneIn(static_cast<uint64_t>(lost))) {
    history_->OnResultLost();
    Break(id, rank, std::nullopt);
  }
  const Done done = TakeDone(id, rank);
  if (is_last) exchange.slots = {};
  if (done) done(id, std::move(table), std::nullopt);
}

std::string SimMesh::Encode(const ExchangeRecord& record) const {
  if (const auto* resync = std::get_if<ResyncRecord>(&record)) return codec_.EncodeResync(*resync);
  if (const auto* offer = std::get_if<Offer>(&record)) return codec_.EncodeOffer(*offer);
  return codec_.EncodeConfirm(std::get<ConfirmRecord>(record));
}

template <typename Record, typename DecodeOne>
std::optional<ExchangeTable> SimMesh::DecodeAll(const Exchange& exchange, DecodeOne decode_one) {
  std::vector<Record> table;
  for (const Slot& slot : exchange.slots) {
    absl::StatusOr<Record> record = decode_one(slot.record);
    if (!record.ok()) {
      history_->Violation(record.status().ToString());
      return std::nullopt;
    }
    table.push_back(*std::move(record));
  }
  return table;
}

std::optional<ExchangeTable> SimMesh::Decode(const Exchange& exchange) {
  switch (exchange.kind) {
    case 0:
      return DecodeAll<ResyncRecord>(
          exchange, [this](const std::string& bytes) { return codec_.DecodeResync(bytes); });
    case 1:
      return DecodeAll<Offer>(
          exchange, [this](const std::string& bytes) { return codec_.DecodeOffer(bytes); });
    default:
      return DecodeAll<ConfirmRecord>(
          exchange, [this](const std::string& bytes) { return codec_.DecodeConfirm(bytes); });
  }
}

}  // namespace odb
