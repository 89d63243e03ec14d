#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "aligner/transport/gloo/interface.h"
#include "aligner/transport/key_value_store.h"
#include "aligner/transport/transport.h"

namespace odb {

class RendezvousStore;

// Transport over Gloo's TCP: every rank sends its record to each other one and receives theirs, on
// unbound buffers with an increasing slot. (gloo::allgather takes ten times as long on a busy
// machine.) With one rank there is no mesh, and no Gloo.
//
// The one place where Gloo's exceptions are caught. After any of them the context is destroyed at
// once, so that the others notice too. Gloo aborts the process on records of different sizes, which
// is why the ranks compare world size and record sizes through the store before they connect, and
// why Exchange refuses a record of another size.
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
    InterfaceAddress interface;  // where to listen
    std::string key_prefix;      // of this job; the generation is added
    absl::Duration connect_timeout = absl::Seconds(10);
  };

  GlooTransport(Options options, KeyValueStore* store);
  ~GlooTransport() override;

  OpenResult Open(Generation generation, absl::Time deadline) override;
  ExchangeResult Exchange(ExchangeKind kind, absl::string_view record,
                          absl::Time deadline) override;
  void Close() override;
  void Interrupt(Generation generation) override;

 private:
  class Mesh;

  // Waits until every rank has said how it counts; a difference is an error.
  absl::Status CompareSizes(RendezvousStore* store, std::optional<Rank>* suspect) const;

  const Options options_;
  KeyValueStore* const store_;
  const std::unique_ptr<Mesh> mesh_;
};

}  // namespace odb
