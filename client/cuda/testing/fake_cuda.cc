#include "client/cuda/testing/fake_cuda.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

constexpr auto kInvalidValue = static_cast<CudaError>(1);
constexpr auto kInvalidDevice = static_cast<CudaError>(101);
constexpr size_t kAlignment = 256;

bool IsMapped(void* address) {
  unsigned char resident = 0;
  return ::mincore(address, 1, &resident) == 0;
}

bool Overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto* a_begin = static_cast<const char*>(a);
  const auto* b_begin = static_cast<const char*>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

}  // namespace

// What stands in a stream.
struct FakeCuda::Operation {
  enum class Kind { kCopy, kRead, kRecord, kWait } kind;
  int64_t ticket = 0;                 // kRecord, kWait
  void* device_memory = nullptr;      // kCopy, kRead
  int64_t bytes = 0;                  // kCopy, kRead
  const void* from = nullptr;         // kCopy from pinned memory
  std::optional<std::string> staged;  // kCopy from other memory
  std::string* out = nullptr;         // kRead
};

struct FakeCuda::Stream {
  int device = 0;
  std::deque<Operation> operations;
};

struct FakeCuda::Event {
  int device = 0;
  int64_t ticket = 0;  // of its last record; 0 = none
};

struct FakeCuda::Block {
  Block(int device, int64_t bytes)
      : device(device),
        bytes(bytes),
        memory(static_cast<char*>(
            std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment))) {
    std::memset(memory, kFresh, static_cast<size_t>(bytes));
  }
  ~Block() { std::free(memory); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const int device;
  const int64_t bytes;
  char* const memory;
};

FakeCuda::FakeCuda() = default;
FakeCuda::~FakeCuda() = default;

// --- What the test does ---------------------------------------------------------------------

bool FakeCuda::Advance(CudaStream stream) {
  MutexLock lock(&mutex_);
  Stream* const found = FindLocked(stream);
  return found != nullptr && PerformLocked(found);
}

void FakeCuda::AdvanceAll(absl::Span<const CudaStream> resting) {
  MutexLock lock(&mutex_);
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& stream : streams_) {
      const auto handle = reinterpret_cast<CudaStream>(stream.get());
      const bool rests = std::find(resting.begin(), resting.end(), handle) != resting.end();
      if (!rests) moved |= PerformLocked(stream.get());
    }
    for (const auto& [device, stream] : default_streams_) moved |= PerformLocked(stream.get());
  }
}

void FakeCuda::LaunchRead(CudaStream stream, const void* from, int64_t bytes, std::string* out) {
  MutexLock lock(&mutex_);
  Operation read{Operation::Kind::kRead};
  read.device_memory = const_cast<void*>(from);
  read.bytes = bytes;
  read.out = out;
  if (Stream* const found = FindLocked(stream)) found->operations.push_back(std::move(read));
}

std::vector<std::string> FakeCuda::calls() {
  MutexLock lock(&mutex_);
  return calls_;
}

std::map<void*, int64_t> FakeCuda::registered() {
  MutexLock lock(&mutex_);
  return registered_;
}

std::set<int> FakeCuda::contexts() {
  MutexLock lock(&mutex_);
  return contexts_;
}

std::vector<std::string> FakeCuda::violations() {
  MutexLock lock(&mutex_);
  return violations_;
}

std::vector<std::string> FakeCuda::leftovers() {
  MutexLock lock(&mutex_);
  std::vector<std::string> all(streams_.size(), "stream");
  all.insert(all.end(), events_.size(), "event");
  all.insert(all.end(), blocks_.size(), "device memory");
  all.insert(all.end(), registered_.size(), "registered memory");
  return all;
}

// --- How it works ---------------------------------------------------------------------------

int FakeCuda::CurrentLocked() {
  const int device = current_[std::this_thread::get_id()];
  contexts_.insert(device);
  return device;
}

FakeCuda::Stream* FakeCuda::FindLocked(CudaStream stream) {
  if (stream == nullptr) {
    std::unique_ptr<Stream>& found = default_streams_[CurrentLocked()];
    if (found == nullptr) found = std::make_unique<Stream>(Stream{CurrentLocked(), {}});
    return found.get();
  }
  for (const auto& known : streams_) {
    if (reinterpret_cast<CudaStream>(known.get()) == stream) return known.get();
  }
  (void)MisuseLocked("a stream is used that is not there");
  return nullptr;
}

FakeCuda::Event* FakeCuda::FindLocked(CudaEvent event) {
  for (const auto& known : events_) {
    if (reinterpret_cast<CudaEvent>(known.get()) == event) return known.get();
  }
  (void)MisuseLocked("an event is used that is not there");
  return nullptr;
}

CudaError FakeCuda::MisuseLocked(std::string what) {
  violations_.push_back(std::move(what));
  return kInvalidValue;
}

bool FakeCuda::PerformLocked(Stream* stream) {
  if (stream->operations.empty()) return false;
  Operation& next = stream->operations.front();
  if (next.kind == Operation::Kind::kWait && open_tickets_.count(next.ticket) > 0) return false;
  const Operation operation = std::move(next);
  stream->operations.pop_front();
  if (operation.kind == Operation::Kind::kRecord) open_tickets_.erase(operation.ticket);
  if (operation.device_memory == nullptr) return true;
  if (!IsDeviceMemoryLocked(operation.device_memory, operation.bytes, stream->device)) {
    (void)MisuseLocked("device memory is used after it was freed");
    return true;
  }
  const auto bytes = static_cast<size_t>(operation.bytes);
  if (operation.kind == Operation::Kind::kRead) {
    operation.out->assign(static_cast<const char*>(operation.device_memory), bytes);
  } else if (operation.staged.has_value()) {
    std::memcpy(operation.device_memory, operation.staged->data(), bytes);
  } else if (IsRegisteredLocked(operation.from, operation.bytes)) {
    std::memcpy(operation.device_memory, operation.from, bytes);
  } else {
    (void)MisuseLocked("memory is copied from after it was unregistered");
  }
  return true;
}

// As the device would: what comes next in the stream, and all that it waits for.
void FakeCuda::DriveStreamLocked(Stream* stream) {
  const Operation& next = stream->operations.front();
  if (next.kind == Operation::Kind::kWait) DriveLocked(next.ticket);
  PerformLocked(stream);
}

// All that stands before a record, and what that waits for.
void FakeCuda::DriveLocked(int64_t ticket) {
  const auto drive = [this, ticket](Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto& all = stream->operations;
    const bool has_it = std::any_of(all.begin(), all.end(), [ticket](const Operation& operation) {
      return operation.kind == Operation::Kind::kRecord && operation.ticket == ticket;
    });
    while (has_it && open_tickets_.count(ticket) > 0) DriveStreamLocked(stream);
  };
  for (const auto& stream : streams_) drive(stream.get());
  for (const auto& [device, stream] : default_streams_) drive(stream.get());
}

bool FakeCuda::PendingLocked(const std::function<bool(const Operation&)>& matches) {
  const auto pending = [&matches](const Stream& stream) {
    return std::any_of(stream.operations.begin(), stream.operations.end(), matches);
  };
  return std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& stream) { return pending(*stream); }) ||
         std::any_of(default_streams_.begin(), default_streams_.end(),
                     [&](const auto& entry) { return pending(*entry.second); });
}

bool FakeCuda::IsDeviceMemoryLocked(const void* address, int64_t bytes, int device) {
  for (const auto& [memory, block] : blocks_) {
    const auto* begin = static_cast<const char*>(address);
    if (begin >= memory && begin + bytes <= memory + block->bytes) return block->device == device;
  }
  return false;
}

bool FakeCuda::IsRegisteredLocked(const void* address, int64_t bytes) {
  for (const auto& [memory, size] : registered_) {
    const auto* begin = static_cast<const char*>(address);
    const auto* first = static_cast<const char*>(memory);
    if (begin >= first && begin + bytes <= first + size) return true;
  }
  return false;
}

// --- CudaApi --------------------------------------------------------------------------------

CudaError FakeCuda::DeviceCount(int* count) {
  MutexLock lock(&mutex_);
  calls_.push_back("count");
  *count = count_error == CudaError::kSuccess ? num_devices : 0;
  return count_error;
}

CudaError FakeCuda::GetDevice(int* device) {
  MutexLock lock(&mutex_);
  *device = current_[std::this_thread::get_id()];  // makes no context
  return CudaError::kSuccess;
}

CudaError FakeCuda::SetDevice(int device) {
  MutexLock lock(&mutex_);
  if (device < 0 || device >= num_devices) return kInvalidDevice;
  current_[std::this_thread::get_id()] = device;
  contexts_.insert(device);
  return CudaError::kSuccess;
}

CudaError FakeCuda::DevicePciBusId(int device, std::string* bus_id) {
  if (device < 0 || device >= num_devices) return kInvalidDevice;
  *bus_id = absl::StrCat("0000:C", device, ":00.0");
  return CudaError::kSuccess;
}

CudaError FakeCuda::HostRegister(void* address, int64_t bytes) {
  MutexLock lock(&mutex_);
  calls_.push_back("register");
  (void)CurrentLocked();
  if (register_error != CudaError::kSuccess) return register_error;
  for (const auto& [memory, size] : registered_) {
    if (Overlap(memory, size, address, bytes)) return CudaError::kHostMemoryAlreadyRegistered;
  }
  registered_[address] = bytes;
  return CudaError::kSuccess;
}

CudaError FakeCuda::HostUnregister(void* address) {
  MutexLock lock(&mutex_);
  calls_.push_back("unregister");
  (void)CurrentLocked();
  const auto found = registered_.find(address);
  if (found == registered_.end()) return MisuseLocked("memory is unregistered that is not");
  if (!IsMapped(address)) (void)MisuseLocked("memory is unregistered after it was unmapped");
  const int64_t bytes = found->second;
  if (PendingLocked([address, bytes](const Operation& operation) {
        return operation.from != nullptr &&
               Overlap(address, bytes, operation.from, operation.bytes);
      })) {
    (void)MisuseLocked("memory is unregistered while a copy from it is to come");
  }
  registered_.erase(found);
  return CudaError::kSuccess;
}

CudaError FakeCuda::DeviceMalloc(void** address, int64_t bytes) {
  MutexLock lock(&mutex_);
  calls_.push_back("malloc");
  const int device = CurrentLocked();
  int64_t used = 0;
  for (const auto& [memory, block] : blocks_) used += block->device == device ? block->bytes : 0;
  if (bytes > device_bytes - used) return CudaError::kMemoryAllocation;
  auto block = std::make_unique<Block>(device, bytes);
  *address = block->memory;
  blocks_[block->memory] = std::move(block);
  return CudaError::kSuccess;
}

CudaError FakeCuda::DeviceFree(void* address) {
  MutexLock lock(&mutex_);
  calls_.push_back("free");
  const auto found = blocks_.find(static_cast<char*>(address));
  if (found == blocks_.end()) return MisuseLocked("device memory is freed that is not there");
  const int64_t bytes = found->second->bytes;
  if (PendingLocked([address, bytes](const Operation& operation) {
        return operation.device_memory != nullptr &&
               Overlap(address, bytes, operation.device_memory, operation.bytes);
      })) {
    (void)MisuseLocked("device memory is freed while something with it is to come");
  }
  blocks_.erase(found);
  return CudaError::kSuccess;
}

CudaError FakeCuda::StreamCreate(CudaStream* stream) {
  MutexLock lock(&mutex_);
  calls_.push_back("create stream");
  streams_.push_back(std::make_unique<Stream>(Stream{CurrentLocked(), {}}));
  *stream = reinterpret_cast<CudaStream>(streams_.back().get());
  return CudaError::kSuccess;
}

CudaError FakeCuda::StreamDestroy(CudaStream stream) {
  MutexLock lock(&mutex_);
  calls_.push_back("destroy stream");
  Stream* const found = stream == nullptr ? nullptr : FindLocked(stream);
  if (found == nullptr) return kInvalidValue;
  if (!found->operations.empty()) {
    (void)MisuseLocked("a stream is destroyed before its work was done");
  }
  streams_.erase(std::find_if(streams_.begin(), streams_.end(),
                              [found](const auto& known) { return known.get() == found; }));
  return CudaError::kSuccess;
}

CudaError FakeCuda::StreamSynchronize(CudaStream stream) {
  MutexLock lock(&mutex_);
  Stream* const found = FindLocked(stream);
  if (found == nullptr) return kInvalidValue;
  while (!found->operations.empty()) DriveStreamLocked(found);
  return CudaError::kSuccess;
}

CudaError FakeCuda::StreamWaitEvent(CudaStream stream, CudaEvent event) {
  MutexLock lock(&mutex_);
  Stream* const waiting = FindLocked(stream);
  Event* const found = FindLocked(event);
  if (waiting == nullptr || found == nullptr) return kInvalidValue;
  Operation wait{Operation::Kind::kWait};
  wait.ticket = found->ticket;
  waiting->operations.push_back(std::move(wait));
  return CudaError::kSuccess;
}

CudaError FakeCuda::EventCreate(CudaEvent* event) {
  MutexLock lock(&mutex_);
  events_.push_back(std::make_unique<Event>(Event{CurrentLocked(), 0}));
  *event = reinterpret_cast<CudaEvent>(events_.back().get());
  return CudaError::kSuccess;
}

CudaError FakeCuda::EventDestroy(CudaEvent event) {
  MutexLock lock(&mutex_);
  Event* const found = FindLocked(event);
  if (found == nullptr) return kInvalidValue;
  if (open_tickets_.count(found->ticket) > 0) {
    (void)MisuseLocked("an event is destroyed before it was complete");
  }
  events_.erase(std::find_if(events_.begin(), events_.end(),
                             [found](const auto& known) { return known.get() == found; }));
  return CudaError::kSuccess;
}

CudaError FakeCuda::EventRecord(CudaEvent event, CudaStream stream) {
  MutexLock lock(&mutex_);
  Stream* const recorded = FindLocked(stream);
  Event* const found = FindLocked(event);
  if (recorded == nullptr || found == nullptr) return kInvalidValue;
  if (recorded->device != found->device) {
    return MisuseLocked(absl::StrCat("an event of device ", found->device,
                                     " is recorded in a stream of device ", recorded->device));
  }
  found->ticket = ++last_ticket_;
  open_tickets_.insert(found->ticket);
  Operation record{Operation::Kind::kRecord};
  record.ticket = found->ticket;
  recorded->operations.push_back(std::move(record));
  return CudaError::kSuccess;
}

CudaError FakeCuda::EventQuery(CudaEvent event) {
  MutexLock lock(&mutex_);
  Event* const found = FindLocked(event);
  if (found == nullptr) return kInvalidValue;
  return open_tickets_.count(found->ticket) > 0 ? CudaError::kNotReady : CudaError::kSuccess;
}

CudaError FakeCuda::EventSynchronize(CudaEvent event) {
  MutexLock lock(&mutex_);
  Event* const found = FindLocked(event);
  if (found == nullptr) return kInvalidValue;
  DriveLocked(found->ticket);
  return CudaError::kSuccess;
}

CudaError FakeCuda::CopyToDevice(void* to, const void* from, int64_t bytes, CudaStream stream) {
  MutexLock lock(&mutex_);
  if (copy_error != CudaError::kSuccess) return copy_error;
  Stream* const found = FindLocked(stream);
  if (found == nullptr) return kInvalidValue;
  if (!IsDeviceMemoryLocked(to, bytes, found->device)) {
    return MisuseLocked(absl::StrCat("a copy of ", bytes, " bytes in a stream of device ",
                                     found->device, " does not end in memory of it"));
  }
  Operation copy{Operation::Kind::kCopy};
  copy.device_memory = to;
  copy.bytes = bytes;
  if (IsRegisteredLocked(from, bytes)) {
    copy.from = from;
  } else {
    copy.staged = std::string(static_cast<const char*>(from), static_cast<size_t>(bytes));
  }
  found->operations.push_back(std::move(copy));
  return CudaError::kSuccess;
}

std::string FakeCuda::ErrorText(CudaError error) {
  return absl::StrCat("text of error ", static_cast<int>(error));
}

}  // namespace odb
