#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/byte_ring.h"
#include "base/os/file_descriptor.h"
#include "base/os/memfd.h"

namespace odb {

// Messages between two processes of one machine, without a system call while both are awake: two
// byte rings in one shared memory, and a connected socket.
//
//   memory     ring of the first end to the second · ring of the second to the first
//   message    u32 size, little endian · so many bytes; it may be larger than the ring
//   socket     one byte, whatever it is: "look at the rings"; its end: the peer is gone
//
// The socket is what makes a peer that dies known at once, and what a sleeping one waits for. The
// peer is not trusted: what it writes to the memory can end the channel with an error, no more.
//
// Ownership: of the memory's mapping and of the socket. Threads: Send and Flush in one thread at a
// time, everything else in one thread at a time; the two may differ.
class RingChannel {
 public:
  enum class End { kFirst, kSecond };  // who writes the first ring

  // What two rings of `capacity` (a power of two) take.
  static constexpr size_t MemoryBytes(size_t capacity) {
    return 2 * (kByteRingHeaderBytes + capacity);
  }

  // `memory` is zeroed, or in use by the other end already. A message that is longer than
  // `message_bytes_max` is not received.
  // Errors: InvalidArgument if the memory's size is none of MemoryBytes.
  static absl::StatusOr<std::unique_ptr<RingChannel>> Create(MappedRegion memory,
                                                             FileDescriptor socket, End end,
                                                             size_t message_bytes_max);

  // Whether a sleeping peer is woken for a message, which is a system call, or finds it when it
  // looks the next time.
  enum class Haste { kNow, kWhenItLooks };

  // Takes `message` and writes it as far as there is room; what is left is kept and written by
  // Flush. False: not taken, since an earlier one is not written yet.
  // Errors: InvalidArgument above 4 GiB; DataLoss if the memory holds what cannot be.
  absl::StatusOr<bool> Send(absl::string_view message, Haste haste = Haste::kNow);

  // Writes what is left. False: there is no room for all of it, and the peer has been asked to wake
  // this end when there is. Errors: as Send.
  absl::StatusOr<bool> Flush();

  // The next message, if it is there. Errors: DataLoss if the memory holds what cannot be,
  // ResourceExhausted for a message longer than the limit; every later call repeats it.
  absl::StatusOr<std::optional<std::string>> Receive();

  // About how many bytes of messages there are to receive.
  size_t BytesAhead() const { return reader_.BytesAhead(); }

  // Says that this end is about to wait for its socket. False: do not wait, there is something to
  // receive.
  bool AboutToWait() { return reader_.AskForBytes(); }

  // Takes what woke this end, a bounded amount: the socket stays readable if there is more. False:
  // the peer is gone, for ever; what it had sent can still be received.
  bool TakeWakeups();
  bool peer_gone() const { return peer_gone_; }

  // Waits for a message, for room that was asked for, or for the end of the peer; returns early
  // without harm. It sleeps at once: to look for some microseconds first kept the CPU from the one
  // that was to answer.
  void Wait(absl::Time deadline);

  // Nothing more comes from this end, which the peer notices; what was sent can be received.
  void ShutdownSending();
  // Neither from here nor to here. Safe from any thread.
  void Shutdown();

  int socket() const { return socket_.get(); }

 private:
  RingChannel(MappedRegion memory, FileDescriptor socket, size_t capacity, End end,
              size_t message_bytes_max);

  absl::StatusOr<bool> ReadInto(size_t size, std::string* bytes);
  void WakePeer() const;

  const MappedRegion memory_;
  const FileDescriptor socket_;
  const size_t message_bytes_max_;

  // Sending.
  ByteRingWriter writer_;
  std::string unsent_;
  size_t unsent_at_ = 0;
  Haste haste_ = Haste::kNow;  // of what is unsent

  // Receiving.
  ByteRingReader reader_;
  std::string size_bytes_;
  std::string message_;
  size_t message_bytes_ = 0;  // of the message in progress, once size_bytes_ is complete
  absl::Status error_;
  bool peer_gone_ = false;
};

}  // namespace odb
