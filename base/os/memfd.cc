#include "base/os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

#ifndef MADV_POPULATE_READ  // Linux 5.14; older headers lack the names
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace odb {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// For kernels without MADV_POPULATE_*. Adding zero atomically makes a page writable and present and
// loses no concurrent write of anybody.
void TouchPages(char* begin, size_t bytes, bool write) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < bytes; at += page) {
    if (write) {
      __atomic_fetch_add(begin + at, 0, __ATOMIC_RELAXED);
    } else {
      (void)*static_cast<volatile const char*>(begin + at);
    }
  }
}

}  // namespace

absl::StatusOr<FileDescriptor> CreateSealedMemfd(const std::string& name, size_t bytes) {
  if (bytes < 1 || bytes > INT64_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory \"", name, "\" must have 1 to 2^63-1 bytes, got ", bytes));
  }
  FileDescriptor fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SystemError(errno, absl::StrCat("cannot create memory \"", name, "\""));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return SystemError(errno, absl::StrCat("cannot give memory \"", name, "\" ", bytes, " bytes"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return SystemError(errno, absl::StrCat("cannot seal memory \"", name, "\""));
  }
  return fd;
}

absl::Status CheckSealedMemfd(int fd, size_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return absl::InvalidArgumentError("the descriptor received is not a sealable memory file");
  }
  if ((seals & kSizeSeals) != kSizeSeals) {
    return absl::InvalidArgumentError("the memory received is not sealed against resizing");
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) return SystemError(errno, "cannot examine the memory received");
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory received has ", info.st_size, " bytes, announced were ", bytes));
  }
  return absl::OkStatus();
}

MappedRegion::MappedRegion(MappedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      access_(other.access_) {}

MappedRegion& MappedRegion::operator=(MappedRegion&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    access_ = other.access_;
  }
  return *this;
}

MappedRegion::~MappedRegion() { Unmap(); }

void MappedRegion::Unmap() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

absl::StatusOr<MappedRegion> MappedRegion::Map(int fd, size_t bytes, Access access) {
  if (bytes < 1) return absl::InvalidArgumentError("cannot map 0 bytes");
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return SystemError(errno, absl::StrCat("cannot map ", bytes, " bytes of shared memory"));
  }
  // The kernel gives them if /sys/kernel/mm/transparent_hugepage/shmem_enabled lets those have them
  // who ask (advise). Elsewhere this is refused or ignored, and nothing is lost.
  if (bytes >= kHugePage) (void)::madvise(data, bytes, MADV_HUGEPAGE);
  return MappedRegion(static_cast<char*>(data), bytes, access);
}

absl::Status MappedRegion::Pretouch(size_t offset, size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) {
    return absl::OutOfRangeError(absl::StrCat("cannot touch bytes [", offset, ", ", offset + bytes,
                                              ") of a mapping of ", size_));
  }
  if (bytes == 0) return absl::OkStatus();
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;  // madvise wants whole pages
  const size_t length = offset + bytes - begin;
  const bool write = access_ == Access::kReadWrite;
  int error = 0;
  do {
    const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    error = ::madvise(data_ + begin, length, advice) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error == 0) return absl::OkStatus();
  if (error == ENOMEM || error == EFAULT) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of shared memory"));
  }
  TouchPages(data_ + begin, length, write);
  return absl::OkStatus();
}

}  // namespace odb
