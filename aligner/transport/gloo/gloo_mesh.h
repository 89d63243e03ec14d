#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "aligner/transport/gloo/rendezvous_store.h"
#include "base/ids.h"
#include "base/os/mutex.h"

namespace odb {

// Gloo's connections between some of the ranks of one generation, over one buffer that each of them
// sends parts of and receives parts into.
//
// Ownership: the buffer must outlive it. Threads: one, but for Abort, which any may call.
// Errors: everything throws what Gloo throws, for GlooTransport to catch; after that only Destroy
// and then Suspect make sense.
class GlooMesh {
 public:
  struct Options {
    std::vector<Rank> members;  // the same on each of them
    Rank own;
    absl::Duration connect_timeout;
    std::shared_ptr<gloo::transport::Device> device;
    absl::Span<char> buffer;
  };

  // Waits for all members; returns when they are connected.
  void Connect(const Options& options, RendezvousStore* store);
  void Destroy();
  bool connected() const { return context_ != nullptr; }

  // A part of the buffer. What is sent with a slot is received with that slot. If the part ends
  // with a stamp, 8 bytes that the buffer did not hold there before, it is known when it has
  // arrived: Gloo counts arrivals, but does not say reliably whose.
  struct Part {
    uint64_t slot = 0;
    size_t offset = 0;
    size_t size = 0;
    uint64_t stamp = 0;  // 0: none
  };

  // Begin to receive and to send. Members by their place in the list.
  void Receive(int from, const Part& part);
  void Send(int to, const Part& part);
  // Until all of it is there, or sent. False: aborted.
  bool WaitReceived(absl::Time deadline);
  bool WaitSent(absl::Time deadline);

  // The rank that an error is probably about: the one whose address Gloo names, whose part could
  // not even be begun, or the only one from which something is still missing. After Destroy, when
  // nothing arrives any more.
  std::optional<Rank> Suspect(const std::string& message) const;

  // The wait that runs now, or is the next one, ends.
  void Abort();

 private:
  struct Awaited {
    int from = 0;
    Part part;
  };

  void ReadPeerAddresses(int own, const std::map<std::string, std::vector<char>>& published);
  bool HasArrived(const Part& part) const;

  std::vector<Rank> members_;
  absl::Span<char> bytes_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::map<std::string, Rank> peers_;  // by address, as Gloo's messages name them
  std::vector<Awaited> awaited_;       // since all was received the last time
  int unreceived_ = 0;                 // of them
  int unsent_ = 0;
  int called_for_ = -1;  // whom a call of Gloo is about; stays when it throws

  Mutex mutex_;
  // Written by the one thread only, under the mutex, which therefore reads it without.
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

}  // namespace odb
