#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aligner/transport/gloo/interface.h"
#include "aligner/transport/key_value_store.h"
#include "aligner/transport/topology.h"
#include "aligner/transport/transport.h"

namespace odb {

class RendezvousStore;

// Transport over Gloo's TCP, on unbound buffers with an increasing slot. (gloo::allgather takes ten
// times as long on a busy machine.) Flat, every rank sends its record to each other one; in a
// hierarchy, to the leader of its node, and only the leaders meet. The tables are the same. With
// one rank there is no mesh, and no Gloo.
//
// The one place where Gloo's exceptions are caught. After any of them the contexts are destroyed at
// once, so that the others notice too. In a hierarchy a rank may see only its leader go, or another
// one, because of a third rank: whoever is nearest to that one leaves a note in the store, and the
// others name the suspect that stands there. Gloo aborts the process on records of different sizes,
// which is why the ranks compare world size, record sizes and nodes through the store before they
// connect, and why Exchange refuses a record of another size.
//
// Ownership: `store` must outlive it. Threads: as Transport; Gloo adds one of its own per mesh.
// Interrupt ends waits for the store and exchanges at once; a connection that is being made, for
// which all ranks have checked in, ends after Options::connect_timeout.
class GlooTransport final : public Transport {
 public:
  struct Options {
    Rank rank;
    int world_size = 1;
    RecordSizes sizes;
    Topology topology = Topology::kAuto;
    InterfaceAddress interface;  // where to listen
    std::string key_prefix;      // of this job; the generation is added
    absl::Duration connect_timeout = absl::Seconds(10);
  };

  GlooTransport(Options options, KeyValueStore* store);
  ~GlooTransport() override;

  OpenResult Open(const MeshSpec& mesh, absl::Time deadline) override;
  ExchangeResult Exchange(ExchangeKind kind, absl::string_view record,
                          absl::Time deadline) override;
  void Close() override;
  void Interrupt(Generation generation) override;

 private:
  class State;

  absl::Status OpenTree(const MeshSpec& mesh, absl::Time deadline, std::optional<Rank>* suspect);
  absl::Status Connect(const MeshSpec& mesh, const MeshShape& shape, absl::Time deadline,
                       std::optional<Rank>* suspect);
  // Leaves a note of this failure to the other ranks, or takes over what stands in theirs.
  void ShareFailure(absl::Status* status, std::optional<Rank>* suspect) const;
  RendezvousStore StoreAt(const std::string& below, absl::Time deadline) const;

  const Options options_;
  KeyValueStore* const store_;
  const std::unique_ptr<State> state_;
};

}  // namespace odb
