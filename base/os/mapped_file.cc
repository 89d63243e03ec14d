#include "base/os/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"

namespace odb {
namespace {

// The handler of a signal has no argument of ours, so what it needs is in globals.
std::atomic<MappedFile::Range*> g_ranges{nullptr};
struct sigaction g_before;  // what handled SIGBUS before; set before the handler is
uintptr_t g_page_bytes = 0;

// Puts a page of zeros where the file has none any more. False: not one of our mappings, or there
// is no memory for it.
bool Repair(uintptr_t address) {
  for (MappedFile::Range* range = g_ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next) {
    if (address < range->begin.load() || address >= range->end.load()) continue;
    // Before the page: who reads its zeros finds the mark.
    range->damaged.store(true);
    void* const page = reinterpret_cast<void*>(address & ~(g_page_bytes - 1));
    return ::mmap(page, g_page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
           page;
  }
  return false;
}

// Only calls that may be made in a signal handler; mmap is a plain system call on Linux.
void OnBusError(int /*number*/, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  if (!Repair(reinterpret_cast<uintptr_t>(info->si_addr))) {
    // The access is made again, and ends as it would have without us.
    ::sigaction(SIGBUS, &g_before, nullptr);
  }
  errno = error;
}

void SetHandler() {
  g_page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  ::sigaction(SIGBUS, nullptr, &g_before);
  struct sigaction ours = {};
  ours.sa_sigaction = &OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

// Serialises those that take a range; the handler takes no lock.
Mutex& RangesMutex() {
  static Mutex* const mutex = new Mutex();
  return *mutex;
}

MappedFile::Range* TakeRange(uintptr_t begin, size_t bytes) {
  MutexLock lock(&RangesMutex());
  if (g_ranges.load() == nullptr) SetHandler();
  MappedFile::Range* range = g_ranges.load();
  while (range != nullptr && range->begin.load() != 0) range = range->next;
  if (range == nullptr) {
    range = new MappedFile::Range();
    range->next = g_ranges.load();
    g_ranges.store(range, std::memory_order_release);
  }
  range->damaged.store(false);
  range->end.store(begin + bytes);
  range->begin.store(begin);
  return range;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Map(int fd, size_t bytes) {
  if (bytes < 1) return absl::InvalidArgumentError("a mapped file must have >= 1 bytes, got 0");
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return SystemError(errno, absl::StrCat("cannot map ", bytes, " bytes of a file"));
  }
  Range* const range = TakeRange(reinterpret_cast<uintptr_t>(data), bytes);
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const char*>(data), bytes, range));
}

MappedFile::~MappedFile() {
  // What lies there next is not ours to repair.
  range_->end.store(0);
  range_->begin.store(0);
  ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace odb
