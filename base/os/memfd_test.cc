#include "base/os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr auto kWrite = MappedRegion::Access::kReadWrite;
constexpr auto kRead = MappedRegion::Access::kReadOnly;

// How many pages of the mapping are in memory.
size_t ResidentPages(const MappedRegion& region) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((region.size() + page - 1) / page);
  REQUIRE(::mincore(region.data(), region.size(), pages.data()) == 0);
  size_t resident = 0;
  for (unsigned char flags : pages) resident += flags & 1;
  return resident;
}

TEST_CASE("memfd: two mappings of one memory see each other's bytes", "[os]") {
  const FileDescriptor fd = CreateSealedMemfd("odb-test", 10000).value();
  const MappedRegion writer = MappedRegion::Map(fd.get(), 10000, kWrite).value();
  const MappedRegion reader = MappedRegion::Map(fd.get(), 10000, kRead).value();

  std::memcpy(writer.data() + 9996, "abcd", 4);

  CHECK(std::memcmp(reader.data() + 9996, "abcd", 4) == 0);
  CHECK(reader.data()[0] == 0);
}

TEST_CASE("memfd: nobody can resize it or add seals", "[os]") {
  const FileDescriptor fd = CreateSealedMemfd("odb-test", 8192).value();

  CHECK(::ftruncate(fd.get(), 4096) != 0);
  CHECK(::ftruncate(fd.get(), 16384) != 0);
  CHECK(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("memfd: zero bytes are refused", "[os]") {
  CHECK_THAT(CreateSealedMemfd("odb-test", 0).status(),
             HasCode(absl::StatusCode::kInvalidArgument));
  const FileDescriptor fd = CreateSealedMemfd("odb-test", 1).value();
  CHECK_THAT(MappedRegion::Map(fd.get(), 0, kRead).status(),
             HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("memfd: a receiver tells a sealed memory from everything else", "[os]") {
  const FileDescriptor good = CreateSealedMemfd("odb-test", 4096).value();
  const FileDescriptor unsealed(::memfd_create("odb-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  const Pipe pipe = CreatePipe().value();

  CHECK(CheckSealedMemfd(good.get(), 4096).ok());
  CHECK_THAT(CheckSealedMemfd(good.get(), 8192), HasMessage("has 4096 bytes, announced were 8192"));
  CHECK_THAT(CheckSealedMemfd(unsealed.get(), 4096), HasMessage("not sealed"));
  CHECK_THAT(CheckSealedMemfd(pipe.read.get(), 4096), HasMessage("not a sealable memory file"));
}

TEST_CASE("MappedRegion: Pretouch makes pages resident and keeps their bytes", "[os]") {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const FileDescriptor fd = CreateSealedMemfd("odb-test", 16 * page).value();
  const MappedRegion region = MappedRegion::Map(fd.get(), 16 * page, kWrite).value();
  region.data()[5 * page + 3] = 'x';
  REQUIRE(ResidentPages(region) == 1);

  // Bytes [4.5 pages, 8.5 pages) lie in pages 4 to 8: five pages.
  REQUIRE(region.Pretouch(4 * page + page / 2, 4 * page).ok());

  CHECK(ResidentPages(region) == 5);
  CHECK(region.data()[5 * page + 3] == 'x');
  CHECK(region.Pretouch(0, 0).ok());
  CHECK_THAT(region.Pretouch(page, 16 * page), HasCode(absl::StatusCode::kOutOfRange));
}

TEST_CASE("MappedRegion: Pretouch loses no write that happens meanwhile", "[os]") {
  constexpr size_t kBytes = 1 << 20;
  const FileDescriptor fd = CreateSealedMemfd("odb-test", kBytes).value();
  const MappedRegion region = MappedRegion::Map(fd.get(), kBytes, kWrite).value();
  absl::Status touched;
  Thread toucher("toucher", [&] { touched = region.Pretouch(0, kBytes); });

  for (size_t i = 0; i < kBytes; i += 512) region.data()[i] = 7;
  toucher.Join();

  REQUIRE(touched.ok());
  size_t kept = 0;
  for (size_t i = 0; i < kBytes; i += 512) kept += region.data()[i] == 7;
  CHECK(kept == kBytes / 512);
}

TEST_CASE("MappedRegion: moving passes the mapping on", "[os]") {
  const FileDescriptor fd = CreateSealedMemfd("odb-test", 4096).value();
  MappedRegion first = MappedRegion::Map(fd.get(), 4096, kWrite).value();
  char* const data = first.data();

  MappedRegion second = std::move(first);
  first = MappedRegion();
  second.data()[0] = 1;

  CHECK(second.data() == data);
  CHECK(first.data() == nullptr);
  CHECK(first.size() == 0);
}

}  // namespace
}  // namespace odb
