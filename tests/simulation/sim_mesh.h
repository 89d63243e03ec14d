#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "proto/wire/record_codec.h"
#include "tests/simulation/history.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulator.h"

namespace odb {

// The mesh of one generation: all-gathers records, byte by byte through the codec, with a delay of
// its own for each rank. It can break in all ways that Gloo's can:
//
//   * a member that leaves fails what is in flight for some ranks, leaves others without an answer,
//     and lets a third kind have the result, if its record was out already;
//   * a single result may be lost.
//
// It checks that the ranks are in lockstep: the n-th exchange is of one kind on all of them.
//
// Ownership: held by shared_ptr, for the events that it schedules; the pointers must outlive those.
// Threads: one, on the simulator.
class SimMesh : public std::enable_shared_from_this<SimMesh> {
 public:
  // Empty table: the exchange failed, perhaps because of the rank.
  using Done = std::function<void(ExchangeId, std::optional<ExchangeTable>, std::optional<Rank>)>;
  struct Options {
    Generation generation;
    const Scenario* scenario = nullptr;
    const Timing* timing = nullptr;
  };
  SimMesh(const Options& options, Simulator* simulator, History* history);

  // True once, when the last rank joins.
  bool Join(Rank rank);
  bool has_joined(Rank rank) const { return joined_.count(rank) > 0; }
  void Post(Rank rank, ExchangeId id, const ExchangeRecord& record, Done done);
  void Leave(Rank rank);

 private:
  struct Slot {
    std::string record;
    Done done;  // empty: answered, or nothing posted
    bool posted = false;
  };
  struct Exchange {
    size_t kind = 0;
    std::vector<Slot> slots;  // [rank]
    size_t num_posted = 0;
    size_t num_answered = 0;
    std::optional<ExchangeTable> table;  // complete; dropped when everybody has it
  };

  std::string Encode(const ExchangeRecord& record) const;
  std::optional<ExchangeTable> Decode(const Exchange& exchange);
  template <typename Record, typename DecodeOne>
  std::optional<ExchangeTable> DecodeAll(const Exchange& exchange, DecodeOne decode_one);
  void Answer(ExchangeId id, size_t rank);
  void Break(ExchangeId id, size_t rank, std::optional<Rank> suspected);
  // Takes what `rank` waits with; drops the exchange after the last.
  Done TakeDone(ExchangeId id, size_t rank);

  const Options options_;
  const RecordCodec codec_;
  Simulator* const simulator_;
  History* const history_;
  std::set<Rank> joined_;
  bool broken_ = false;
  std::vector<Exchange> exchanges_;  // by sequence
};

}  // namespace odb
