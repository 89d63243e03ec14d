#include "client/cuda/pinned_region.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/thread.h"

namespace odb {
namespace {

// 13000 -> "13.0"
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// What is wrong with the memory; empty if nothing is.
std::string WhyBadMemory(const void* address, int64_t bytes, int64_t page_bytes) {
  const auto position = reinterpret_cast<uintptr_t>(address);
  if (address == nullptr) return "the address to pin must not be null";
  if (position % static_cast<uintptr_t>(page_bytes) != 0) {
    return absl::StrCat("the address to pin must be a multiple of the page size ", page_bytes,
                        ", got 0x", absl::Hex(position));
  }
  if (bytes < 1 || bytes > INT64_MAX - page_bytes) {
    return absl::StrCat("bytes to pin must be from 1 to ", INT64_MAX - page_bytes, ", got ", bytes);
  }
  return "";
}

// Runs `call` with `device` as the current one, in a thread of its own unless it is that already:
// to switch and switch back would make a context on the device that is switched back to.
CudaError OnDevice(CudaApi* cuda, int device, const std::function<CudaError()>& call) {
  int current = PinnedRegion::kCurrentDevice;
  if (device == PinnedRegion::kCurrentDevice ||
      (cuda->GetDevice(&current) == CudaError::kSuccess && current == device)) {
    return call();
  }
  CudaError result = CudaError::kSuccess;
  Thread thread("odb-pin", [&] {
    result = cuda->SetDevice(device);
    if (result == CudaError::kSuccess) result = call();
  });
  thread.Join();
  return result;
}

std::string WhyNotRegistered(CudaApi* cuda, CudaError error, int64_t bytes) {
  std::string why = absl::StrCat("CUDA could not pin ", bytes, " bytes: ", cuda->ErrorText(error));
  if (error == CudaError::kHostMemoryAlreadyRegistered) {
    absl::StrAppend(&why, "; something else in this process has pinned them");
  }
  if (error == CudaError::kMemoryAllocation) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
      absl::StrAppend(&why, "; ", MemlockAdvice(limit.rlim_cur, bytes));
    }
  }
  return why;
}

}  // namespace

std::string WhyNoGpu(CudaApi* cuda, int device) {
  const int runtime = cuda->RuntimeVersion();
  if (runtime == 0) return "odbd's client was built without CUDA";
  const int driver = cuda->DriverVersion();
  if (driver == 0) return "there is no GPU driver on this machine";

  int count = 0;
  const CudaError error = cuda->DeviceCount(&count);
  if (error == CudaError::kSuccess && count > 0) {
    if (device < count) return "";
    return absl::StrCat("device ", device, " was asked for and the GPU driver shows this process ",
                        count, ", from 0");
  }
  switch (error) {
    case CudaError::kSuccess:
    case CudaError::kNoDevice:
      return "the GPU driver shows this process no GPU (CUDA_VISIBLE_DEVICES may hide it)";
    case CudaError::kInsufficientDriver:
      return absl::StrCat("the GPU driver supports CUDA up to ", VersionText(driver),
                          ", this build needs ", VersionText(runtime));
    case CudaError::kStubLibrary:
      return "there is no GPU driver, only the CUDA Toolkit's stub of it on the library path";
    default:
      return absl::StrCat("CUDA cannot count the GPUs: ", cuda->ErrorText(error));
  }
}

std::string MemlockAdvice(uint64_t limit, int64_t bytes) {
  if (limit == RLIM_INFINITY) return "RLIMIT_MEMLOCK is unlimited";
  std::string advice = absl::StrCat("RLIMIT_MEMLOCK is ", limit, " bytes");
  if (limit < static_cast<uint64_t>(bytes)) {
    absl::StrAppend(&advice, ", less than that: raise it (ulimit -l, or the container's memlock)");
  }
  return advice;
}

PinnedRegion PinnedRegion::Register(CudaApi* cuda, void* address, int64_t bytes, int device) {
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  std::string why = WhyBadMemory(address, bytes, page_bytes);
  if (why.empty()) why = WhyNoGpu(cuda, device);
  if (!why.empty()) return PinnedRegion(std::move(why));

  const int64_t whole_pages = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  const CudaError error =
      OnDevice(cuda, device, [&] { return cuda->HostRegister(address, whole_pages); });
  if (error != CudaError::kSuccess) {
    return PinnedRegion(WhyNotRegistered(cuda, error, whole_pages));
  }
  return PinnedRegion(cuda, address, device);
}

PinnedRegion::PinnedRegion(CudaApi* cuda, void* address, int device)
    : cuda_(cuda), address_(address), device_(device), owner_(::getpid()) {}

PinnedRegion::PinnedRegion(PinnedRegion&& other) noexcept { *this = std::move(other); }

PinnedRegion& PinnedRegion::operator=(PinnedRegion&& other) noexcept {
  if (this == &other) return *this;
  Unregister();
  cuda_ = std::exchange(other.cuda_, nullptr);
  address_ = std::exchange(other.address_, nullptr);
  device_ = std::exchange(other.device_, kCurrentDevice);
  owner_ = std::exchange(other.owner_, 0);
  why_not_ = std::exchange(other.why_not_, "moved away");
  return *this;
}

PinnedRegion::~PinnedRegion() { Unregister(); }

void PinnedRegion::Unregister() {
  if (address_ == nullptr || ::getpid() != owner_) return;
  // An error has no reader here, and at the end of a process CUDA may be gone before us.
  (void)OnDevice(cuda_, device_, [this] { return cuda_->HostUnregister(address_); });
  address_ = nullptr;
}

}  // namespace odb
