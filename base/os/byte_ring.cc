#include "base/os/byte_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// Positions and "waits" are each written by one side and read by the other one after it has written
// its own word, so that at least one of the two sees what the other did. That takes one order that
// both agree on.
constexpr auto kInOneOrder = std::memory_order_seq_cst;

ByteRingHeader* HeaderOf(char* memory, size_t capacity) {
  INVARIANT(capacity > 0 && (capacity & (capacity - 1)) == 0, "a ring's size is a power of two");
  INVARIANT(reinterpret_cast<uintptr_t>(memory) % 64 == 0, "a ring lies on a cache line");
  return reinterpret_cast<ByteRingHeader*>(memory);
}

bool TakeFlag(std::atomic<uint32_t>* flag) {
  return flag->load(kInOneOrder) != 0 && flag->exchange(0, kInOneOrder) != 0;
}

}  // namespace

ByteRingWriter::ByteRingWriter(char* memory, size_t capacity)
    : header_(HeaderOf(memory, capacity)),
      bytes_(memory + kByteRingHeaderBytes),
      capacity_(capacity) {}

absl::StatusOr<size_t> ByteRingWriter::Used() {
  const uint64_t read = header_->read.load(kInOneOrder);
  if (read < read_ || read > written_) {
    return absl::DataLossError(absl::StrCat("the reader of a ring says that it is at byte ", read,
                                            ", which is not between ", read_, " and ", written_));
  }
  read_ = read;
  return static_cast<size_t>(written_ - read_);
}

absl::StatusOr<size_t> ByteRingWriter::Write(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const size_t used, Used());
  const size_t size = std::min(bytes.size(), capacity_ - used);
  if (size == 0) return 0;
  const size_t at = written_ & (capacity_ - 1);
  const size_t first = std::min(size, capacity_ - at);
  std::memcpy(bytes_ + at, bytes.data(), first);
  std::memcpy(bytes_, bytes.data() + first, size - first);
  written_ += size;
  header_->written.store(written_, kInOneOrder);
  return size;
}

bool ByteRingWriter::TakeReaderWaits() { return TakeFlag(&header_->reader_waits); }

absl::StatusOr<bool> ByteRingWriter::AskForRoom() {
  header_->writer_waits.store(1, kInOneOrder);
  ASSIGN_OR_RETURN(const size_t used, Used());
  if (used > capacity_ / 2) return true;
  header_->writer_waits.store(0, kInOneOrder);
  return false;
}

ByteRingReader::ByteRingReader(char* memory, size_t capacity)
    : header_(HeaderOf(memory, capacity)),
      bytes_(memory + kByteRingHeaderBytes),
      capacity_(capacity) {}

absl::StatusOr<size_t> ByteRingReader::Read(size_t size, char* out) {
  const uint64_t written = header_->written.load(kInOneOrder);
  if (written < written_ || written - read_ > capacity_) {
    return absl::DataLossError(absl::StrCat("the writer of a ring of ", capacity_,
                                            " bytes says that it is at byte ", written, " after ",
                                            written_, ", with ", read_, " read"));
  }
  written_ = written;
  size = std::min(size, static_cast<size_t>(written_ - read_));
  if (size == 0) return 0;
  const size_t at = read_ & (capacity_ - 1);
  const size_t first = std::min(size, capacity_ - at);
  std::memcpy(out, bytes_ + at, first);
  std::memcpy(out + first, bytes_, size - first);
  read_ += size;
  header_->read.store(read_, kInOneOrder);
  return size;
}

bool ByteRingReader::HasBytes() const { return header_->written.load(kInOneOrder) != read_; }

size_t ByteRingReader::BytesAhead() const {
  return std::min(capacity_, static_cast<size_t>(header_->written.load(kInOneOrder) - read_));
}

bool ByteRingReader::TakeWriterWaits() {
  return written_ - read_ <= capacity_ / 2 && TakeFlag(&header_->writer_waits);
}

bool ByteRingReader::AskForBytes() {
  header_->reader_waits.store(1, kInOneOrder);
  if (!HasBytes()) return true;
  header_->reader_waits.store(0, kInOneOrder);
  return false;
}

}  // namespace odb
