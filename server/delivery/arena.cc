#include "server/delivery/arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr int64_t kPretouchSlice = int64_t{4} << 20;

int64_t RoundUp(int64_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(const std::string& name, int64_t bytes) {
  if (bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("an arena must have >= 1 bytes, got ", bytes));
  }
  const auto size = static_cast<size_t>(RoundUp(bytes));
  ASSIGN_OR_RETURN(FileDescriptor fd, CreateSealedMemfd(name, size));
  ASSIGN_OR_RETURN(MappedRegion region,
                   MappedRegion::Map(fd.get(), size, MappedRegion::Access::kReadWrite));
  return std::unique_ptr<Arena>(new Arena(std::move(fd), std::move(region)));
}

Arena::Arena(FileDescriptor fd, MappedRegion region)
    : fd_(std::move(fd)), region_(std::move(region)) {
  free_[0] = static_cast<int64_t>(region_.size());
}

Arena::~Arena() {
  Close();
  pretouch_.Join();
}

void Arena::StartPretouch(int64_t bytes, int64_t ahead) {
  INVARIANT(ahead >= 1, "nothing would ever be touched");
  const int64_t end = std::min(bytes, this->bytes());
  pretouch_ = Thread("odb-pretouch", [this, end, ahead] { Pretouch(end, ahead); });
}

void Arena::Pretouch(int64_t end, int64_t ahead) {
  int64_t offset = 0;
  while (offset < end) {
    int64_t wanted = 0;  // end of what is to be touched by now
    {
      MutexLock lock(&mutex_);
      while (!closed_ && highest_ + ahead <= offset) risen_.Wait(&mutex_);
      if (closed_) return;
      wanted = std::min(end, highest_ + ahead);
    }
    const int64_t slice = std::min(kPretouchSlice, wanted - offset);
    // Only speed is lost if it fails: a page that is missing is taken at its first use.
    if (!region_.Pretouch(static_cast<size_t>(offset), static_cast<size_t>(slice)).ok()) return;
    offset += slice;
  }
}

absl::StatusOr<Extent> Arena::AllocateUntil(int64_t bytes, absl::Time deadline) {
  if (bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("an extent must have >= 1 bytes, got ", bytes));
  }
  const int64_t rounded = RoundUp(bytes);
  if (rounded > this->bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an extent of ", bytes, " bytes is larger than the arena of ", this->bytes()));
  }
  MutexLock lock(&mutex_);
  Extent extent;
  while (!closed_) {
    if (TakeLocked(rounded, &extent)) return extent;
    if (freed_.WaitUntil(&mutex_, deadline)) {
      if (TakeLocked(rounded, &extent)) return extent;
      return absl::DeadlineExceededError(absl::StrCat(
          "no room for ", bytes, " bytes: ", used_bytes_, " of ", this->bytes(), " are held"));
    }
  }
  return absl::CancelledError("the arena is closed");
}

bool Arena::TakeLocked(int64_t bytes, Extent* extent) {
  const auto place = std::find_if(free_.begin(), free_.end(),
                                  [bytes](const auto& hole) { return hole.second >= bytes; });
  if (place == free_.end()) return false;
  const auto [offset, room] = *place;
  free_.erase(place);
  if (room > bytes) free_[offset + bytes] = room - bytes;
  used_[offset] = bytes;
  used_bytes_ += bytes;
  if (offset + bytes > highest_) {
    highest_ = offset + bytes;
    risen_.NotifyAll();
  }
  *extent = Extent{offset, bytes};
  return true;
}

void Arena::Free(const Extent& extent) {
  MutexLock lock(&mutex_);
  const auto used = used_.find(extent.offset);
  INVARIANT(used != used_.end() && used->second == extent.bytes, "no such extent is allocated");
  used_.erase(used);
  used_bytes_ -= extent.bytes;

  auto hole = free_.emplace(extent.offset, extent.bytes).first;
  const auto next = std::next(hole);
  if (next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole != free_.begin()) {
    const auto previous = std::prev(hole);
    if (previous->first + previous->second == hole->first) {
      previous->second += hole->second;
      free_.erase(hole);
    }
  }
  freed_.NotifyAll();
}

void Arena::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  freed_.NotifyAll();
  risen_.NotifyAll();
}

int64_t Arena::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

}  // namespace odb
