#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace odb {

// A stream of bytes from one process to another through memory that both map.
//
//   header (kByteRingHeaderBytes) · capacity bytes, a power of two
//
// Positions count bytes since the beginning and never wrap. Each side keeps its own position to
// itself and only publishes it; of the other side's it believes nothing: a position that goes back
// or beyond what the ring can hold is an error, and bytes are copied out before anybody looks at
// them. Who has nothing to do may say so in the header and sleep; the other side then learns that
// it has to wake it, by whatever means the two have.
//
// The memory must be zeroed before either side begins, aligned to 64 bytes, and outlive both.
// Threads: one writer, one reader, each thread-compatible. Neither ever waits.

inline constexpr size_t kByteRingHeaderBytes = 256;

// In shared memory. Every field on a cache line of its own.
struct ByteRingHeader {
  alignas(64) std::atomic<uint64_t> written;       // of the writer
  alignas(64) std::atomic<uint32_t> writer_waits;  // set by the writer, cleared by either
  alignas(64) std::atomic<uint64_t> read;          // of the reader
  alignas(64) std::atomic<uint32_t> reader_waits;  // set by the reader, cleared by either
};
static_assert(sizeof(ByteRingHeader) == kByteRingHeaderBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

class ByteRingWriter {
 public:
  // `memory` holds kByteRingHeaderBytes + capacity bytes.
  ByteRingWriter(char* memory, size_t capacity);

  // Writes as much of `bytes` as there is room for, and says how much that was.
  // Errors: DataLoss if the reader's position cannot be.
  absl::StatusOr<size_t> Write(absl::string_view bytes);

  // Whether the reader sleeps and is to be woken, which it says once.
  bool TakeReaderWaits();

  // Asks to be woken once half of the ring is free. False: it is already, and nobody will wake.
  // Errors: as Write.
  absl::StatusOr<bool> AskForRoom();

 private:
  absl::StatusOr<size_t> Used();

  ByteRingHeader* const header_;
  char* const bytes_;
  const size_t capacity_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // the last that was seen
};

class ByteRingReader {
 public:
  ByteRingReader(char* memory, size_t capacity);

  // Moves at most `size` bytes to `out` and says how many.
  // Errors: DataLoss if the writer's position cannot be.
  absl::StatusOr<size_t> Read(size_t size, char* out);

  // Whether Read would give something (or an error).
  bool HasBytes() const;

  // About how many bytes there are to read, if the writer is to be believed: at most the capacity.
  size_t BytesAhead() const;

  // Whether the writer sleeps and is to be woken, now that half of the ring is free.
  bool TakeWriterWaits();

  // Asks to be woken by the next byte. False: there are some already.
  bool AskForBytes();

 private:
  ByteRingHeader* const header_;
  const char* const bytes_;
  const size_t capacity_;
  uint64_t written_ = 0;  // the last that was seen
  uint64_t read_ = 0;
};

}  // namespace odb
