#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "aligner/protocol/alignment_machine.h"
#include "aligner/protocol/effects.h"

// For tests of AlignmentMachine: one machine among ranks that say the same as it, unless told.

namespace odb {

inline const absl::Time kStart = absl::FromUnixSeconds(1000);
inline constexpr uint64_t kConfig = 0xc0ffee;
inline constexpr Generation kGen1(1);
inline constexpr Generation kGen2(2);

inline AlignmentMachine::Options TestOptions(int64_t rank = 0, int world_size = 2) {
  AlignmentMachine::Options options;
  options.rank = Rank(rank);
  options.world_size = world_size;
  options.config_digest = kConfig;
  options.heartbeat_interval = absl::Seconds(1);
  options.exchange_timeout = absl::Seconds(10);
  return options;
}

template <typename T>
const T* Find(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    if (const T* found = std::get_if<T>(&effect)) return found;
  }
  return nullptr;
}

template <typename Record>
const Record& Started(const std::vector<Effect>& effects) {
  const StartExchange* start = Find<StartExchange>(effects);
  REQUIRE(start != nullptr);
  const Record* record = std::get_if<Record>(&start->record);
  REQUIRE(record != nullptr);
  return *record;
}

inline Offer ReadyOffer(int64_t round, int32_t length = 10) {
  Offer offer;
  offer.header.round = RoundId(round);
  offer.header.state = OfferState::kReady;
  offer.window.push_back(SampleShape{length, length, 0, 0, 77});
  return offer;
}

inline Offer HeadOnly(int64_t round, OfferState state) {
  Offer offer;
  offer.header.round = RoundId(round);
  offer.header.state = state;
  return offer;
}

inline LocalState Closing(int64_t round, ClosingReason reason, int64_t position) {
  LocalState state;
  state.round = RoundId(round);
  state.closing_reason = reason;
  state.position = position;
  return state;
}

// Rank `rank` of a world in which all ranks say the same: answers every exchange with copies of the
// machine's own record, or of `peer` where a test wants another.
class Fixture {
 public:
  explicit Fixture(AlignmentMachine::Options options = TestOptions())
      : options_(options), machine(options) {}

  // Copies of the record in flight with the ranks filled in.
  template <typename Record>
  std::vector<Record> Table(const Record& own) const {
    std::vector<Record> table(static_cast<size_t>(options_.world_size), own);
    for (size_t i = 0; i < table.size(); ++i) SetRank(&table[i], Rank(static_cast<int64_t>(i)));
    return table;
  }

  std::vector<Effect> Answer(std::vector<Effect> effects) {
    const StartExchange* start = Find<StartExchange>(effects);
    REQUIRE(start != nullptr);
    const ExchangeTable table =
        std::visit([this](const auto& own) { return ExchangeTable(Table(own)); }, start->record);
    return machine.OnExchanged(now, start->id, table);
  }

  template <typename Record>
  std::vector<Effect> AnswerWith(const std::vector<Effect>& effects, Rank rank, Record other) {
    const StartExchange* start = Find<StartExchange>(effects);
    REQUIRE(start != nullptr);
    std::vector<Record> table = Table(std::get<Record>(start->record));
    SetRank(&other, rank);
    table[static_cast<size_t>(rank.value())] = other;
    return machine.OnExchanged(now, start->id, table);
  }

  // Ready with an offer of `round`, and its offer exchange in flight.
  std::vector<Effect> StartRound(int64_t round) {
    ResumeState resume;
    resume.last_completed_round = RoundId(round - 1);
    Answer(machine.OnGeneration(now, kGen1, resume));
    return machine.OnLocalOffer(now, ReadyOffer(round));
  }

  AlignmentMachine::Options options_;
  AlignmentMachine machine;
  absl::Time now = kStart;

 private:
  static void SetRank(Offer* offer, Rank rank) { offer->header.rank = rank; }
  template <typename Record>
  static void SetRank(Record* record, Rank rank) {
    record->rank = rank;
  }
};

}  // namespace odb
