#include "base/os/mapped_file.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/os/file_descriptor.h"
#include "base/os/temp_directory.h"
#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

const size_t kPageBytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

std::string TestFolder() {
  const char* const folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

// A file of pages full of 'a', 'b', ..., in a folder of its own.
class Pages {
 public:
  explicit Pages(size_t count)
      : folder_(*TempDirectory::Create(TestFolder(), "mapped")), path_(folder_.path() + "/pages") {
    fd_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    for (size_t page = 0; page < count; ++page) {
      const std::string text(kPageBytes, static_cast<char>('a' + page));
      REQUIRE(::write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
  }
  int fd() const { return fd_.get(); }
  void CutTo(size_t bytes) { REQUIRE(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0); }

 private:
  TempDirectory folder_;
  std::string path_;
  FileDescriptor fd_;
};

// A read that the compiler keeps.
char At(const MappedFile& file, size_t offset) {
  return *static_cast<const volatile char*>(file.data() + offset);
}

TEST_CASE("MappedFile: the bytes are those of the file", "[os]") {
  const Pages pages(2);
  const auto file = MappedFile::Map(pages.fd(), 2 * kPageBytes);
  REQUIRE(file.status() == absl::OkStatus());
  CHECK((*file)->size() == 2 * kPageBytes);
  CHECK(At(**file, 0) == 'a');
  CHECK(At(**file, 2 * kPageBytes - 1) == 'b');
  CHECK_FALSE((*file)->is_damaged());
  CHECK_THAT(MappedFile::Map(pages.fd(), 0).status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_FALSE(MappedFile::Map(-1, 1).ok());
}

TEST_CASE("MappedFile: what was cut off reads as zeros and is known", "[os]") {
  Pages pages(4);
  const auto file = MappedFile::Map(pages.fd(), 4 * kPageBytes);
  const auto other = MappedFile::Map(pages.fd(), kPageBytes);
  REQUIRE(file.ok());
  REQUIRE(other.ok());
  CHECK(At(**file, 3 * kPageBytes) == 'd');

  pages.CutTo(kPageBytes + 10);

  CHECK(At(**file, kPageBytes + 9) == 'b');
  CHECK(At(**file, kPageBytes + 10) == 0);  // of a page that is still there: nothing is raised
  CHECK_FALSE((*file)->is_damaged());
  CHECK(At(**file, 3 * kPageBytes + 5) == 0);
  CHECK((*file)->is_damaged());
  CHECK(At(**file, 2 * kPageBytes) == 0);
  CHECK(At(**file, 0) == 'a');
  CHECK_FALSE((*other)->is_damaged());
}

TEST_CASE("MappedFile: threads that read while it is cut see its bytes or zeros", "[os][threads]") {
  constexpr size_t kPages = 16;
  Pages pages(kPages);
  const auto file = MappedFile::Map(pages.fd(), kPages * kPageBytes);
  REQUIRE(file.ok());
  std::vector<int> wrong(4, 0);
  std::vector<Thread> readers;
  for (size_t reader = 0; reader < wrong.size(); ++reader) {
    readers.emplace_back("reader", [&, reader] {
      for (size_t round = 0; round < 2000; ++round) {
        const size_t page = round * 7 % kPages;
        const char seen = At(**file, page * kPageBytes + 100);
        const bool is_right = seen == static_cast<char>('a' + page);
        if (!is_right && !(seen == 0 && (*file)->is_damaged())) ++wrong[reader];
      }
    });
  }
  for (size_t left = kPages; left > 0; --left) pages.CutTo((left - 1) * kPageBytes);
  readers.clear();
  CHECK(wrong == std::vector<int>(wrong.size(), 0));
  CHECK(At(**file, 100) == 0);
  CHECK((*file)->is_damaged());
}

TEST_CASE("MappedFile: the place of one that is gone is used again, undamaged", "[os]") {
  Pages pages(2);
  for (int round = 0; round < 3; ++round) {
    const auto file = MappedFile::Map(pages.fd(), 2 * kPageBytes);
    REQUIRE(file.ok());
    CHECK_FALSE((*file)->is_damaged());
    if (round == 0) pages.CutTo(0);
    CHECK(At(**file, kPageBytes) == 0);
    CHECK((*file)->is_damaged());
  }
}

// Sanitizers handle the signal themselves, so how the process ends is not asked.
TEST_CASE("MappedFile: a bus error of somebody else still ends the process", "[os]") {
  Pages pages(1);
  const auto ours = MappedFile::Map(pages.fd(), kPageBytes);
  REQUIRE(ours.ok());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(STDERR_FILENO);
    ::raise(SIGBUS);
    ::raise(SIGBUS);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace
}  // namespace odb
