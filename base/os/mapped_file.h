#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace odb {

// The bytes of a file that others may change, mapped read-only: reading them costs no system call.
//
// A mapped file may shrink, or its disk fail, while somebody reads; the kernel then raises SIGBUS.
// Here the page reads as zeros instead, and the file counts as damaged from then on: whoever has
// read from it asks afterwards, and reads what matters again with pread(2), which says what is
// wrong. What is cut off within the last page that is left reads as zeros and raises nothing; there
// only the size of the file tells.
//
// The first Map of a process sets a handler for SIGBUS, the only way to survive it. A SIGBUS that
// is not about such a mapping is left to what was there before.
//
// Ownership: owns the mapping, not the descriptor, which may be closed. Threads: thread-safe.
class MappedFile {
 public:
  // The first `bytes` of the file. Errors: InvalidArgument if bytes < 1; what mmap(2) says.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Map(int fd, size_t bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  // Some page could not be read. A page that was read as zeros stays so.
  bool is_damaged() const { return range_->damaged.load(std::memory_order_acquire); }

  // What the handler knows of a mapping. Public for it alone.
  struct Range {
    std::atomic<uintptr_t> begin{0};  // 0: free
    std::atomic<uintptr_t> end{0};
    std::atomic<bool> damaged{false};
    Range* next = nullptr;  // never changed once the handler can see it
  };

 private:
  MappedFile(const char* data, size_t size, Range* range)
      : data_(data), size_(size), range_(range) {}

  const char* const data_;
  const size_t size_;
  Range* const range_;  // never freed: the handler may look at it at any time
};

}  // namespace odb
