#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "client/odb_client.h"
#include "client/testing/fake_daemon.h"

// For the tests of Client.

namespace odb {

inline absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// A client of a fake daemon that serves `script`, by either transport: a test that makes one at its
// beginning runs twice.
struct ClientFixture {
  explicit ClientFixture(const FakeScript& script, IdleMode idle = IdleMode::kStandIn) {
    daemon = FakeDaemon::Start(socket.path(), script).value();
    options = ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
    options.socket = socket.path();
    options.idle = idle;
    options.transport = GENERATE(Transport::kRing, Transport::kStream);
    client = Client::Open(options).value();
  }

  StepHandle Next() { return client->Next(Soon()).value(); }
  bool Logged(const std::string& line) { return daemon->WaitForLog(line, Soon()); }
  int Count(const std::string& prefix) {
    int n = 0;
    for (const std::string& line : daemon->log()) n += absl::StartsWith(line, prefix);
    return n;
  }

  TemporarySocket socket;
  std::unique_ptr<FakeDaemon> daemon;
  ClientOptions options;
  std::unique_ptr<Client> client;
};

inline std::vector<int64_t> Values(const ClientStep& step, int tensor) {
  const TensorView view = step.tensor(tensor);
  const auto* data = reinterpret_cast<const int64_t*>(view.data);
  return {data, data + view.bytes / 8};
}

}  // namespace odb
