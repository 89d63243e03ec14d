#include "client/odbrun/locate_odbd.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/os/temp_directory.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

namespace fs = std::filesystem;

void MakeProgram(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << "#!/bin/sh\n";
  fs::permissions(path, fs::perms::owner_all);
}

TEST_CASE("LocateOdbd: flag before variable before beside odbrun before the build's", "[odbrun]") {
  const TempDirectory root = TempDirectory::Create("/tmp", "odb").value();
  const std::string bin = root.path() + "/client/odbrun";
  OdbdHints hints;
  hints.own_program = bin + "/odbrun";
  fs::create_directories(bin);

  const absl::Status nowhere = LocateOdbd(hints).status();
  CHECK_THAT(nowhere, HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(nowhere, HasMessage(bin + "/odbd"));
  CHECK_THAT(nowhere, HasMessage("server/daemon/odbd"));

  MakeProgram(root.path() + "/server/daemon/odbd");
  CHECK(fs::canonical(LocateOdbd(hints).value()) == root.path() + "/server/daemon/odbd");
  MakeProgram(bin + "/odbd");
  CHECK(LocateOdbd(hints).value() == bin + "/odbd");
  MakeProgram(root.path() + "/by_variable");
  hints.variable = root.path() + "/by_variable";
  CHECK(LocateOdbd(hints).value() == hints.variable);
  MakeProgram(root.path() + "/by_flag");
  hints.flag = root.path() + "/by_flag";
  CHECK(LocateOdbd(hints).value() == hints.flag);
}

TEST_CASE("LocateOdbd: a named program that is not there is an error", "[odbrun]") {
  OdbdHints hints;
  hints.variable = "/no/such/odbd";
  CHECK_THAT(LocateOdbd(hints).status(),
             HasMessage("$ODB_ODBD: there is no program /no/such/odbd"));
  hints.flag = "odbd-in-this-directory";
  CHECK_THAT(LocateOdbd(hints).status(),
             HasMessage("--odbd: there is no program ./odbd-in-this-directory"));
}

}  // namespace
}  // namespace odb
