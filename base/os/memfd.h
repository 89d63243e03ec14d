#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/os/file_descriptor.h"

namespace odb {

// Memory without a name in the file system: zeroed, `bytes` long, sealed so that nobody can resize
// it, which is what makes mapping a foreign one safe from SIGBUS. It lives as long as a descriptor
// or a mapping of it does. `name` shows in /proc/<pid>/maps. Pages are taken at first touch.
// Errors: InvalidArgument if bytes < 1; what memfd_create(2), ftruncate(2) say.
absl::StatusOr<FileDescriptor> CreateSealedMemfd(const std::string& name, size_t bytes);

// For the receiver of a descriptor: that it is a memfd of exactly `bytes` that cannot be resized.
// Errors: InvalidArgument, saying what is wrong with it.
absl::Status CheckSealedMemfd(int fd, size_t bytes);

// A shared mapping of the first `bytes` of a file, unmapped by its destructor. Move-only.
//
// Threads: thread-compatible; the bytes themselves are shared with whoever else maps the file, and
// ordering accesses to them is the business of the two sides.
class MappedRegion {
 public:
  enum class Access { kReadOnly, kReadWrite };

  MappedRegion() = default;
  MappedRegion(MappedRegion&& other) noexcept;
  MappedRegion& operator=(MappedRegion&& other) noexcept;
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion();

  // The descriptor may be closed afterwards. Errors: InvalidArgument if bytes < 1; what mmap(2)
  // says.
  static absl::StatusOr<MappedRegion> Map(int fd, size_t bytes, Access access);

  // Makes the pages of [offset, offset + bytes) present, without changing what they hold, even
  // while others write there. A first touch costs many times a second one, so do it ahead, in the
  // background and in slices (the call returns when all are there).
  // Errors: OutOfRange beyond the mapping; ResourceExhausted if there is no memory for them.
  absl::Status Pretouch(size_t offset, size_t bytes) const;

  char* data() const { return data_; }  // nullptr if nothing is mapped
  size_t size() const { return size_; }

 private:
  MappedRegion(char* data, size_t size, Access access)
      : data_(data), size_(size), access_(access) {}
  void Unmap();

  char* data_ = nullptr;
  size_t size_ = 0;
  Access access_ = Access::kReadOnly;
};

}  // namespace odb
