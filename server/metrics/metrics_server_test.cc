#include "server/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

int Connect(const std::string& address) {
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  const timeval limit = {20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0);
  return fd;
}

// The whole answer, headers included; what came so far after 20 s.
std::string Get(const std::string& address, const std::string& path) {
  const int fd = Connect(address);
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  REQUIRE(send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  std::string answer;
  char bytes[4096];
  for (ssize_t got = 0; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
    answer.append(bytes, static_cast<size_t>(got));
  }
  close(fd);
  return answer;
}

TEST_CASE("MetricsServer: each request gets the newest status", "[metrics]") {
  std::atomic<int64_t> read{5};
  auto server = MetricsServer::Start("127.0.0.1:0", [&read] {
    auto status = std::make_shared<v1::Status>();
    status->mutable_ledger()->set_read(read);
    return status;
  });
  REQUIRE(server.ok());
  const std::string address = (*server)->address();
  CHECK(address.find("127.0.0.1:") == 0);
  CHECK(address != "127.0.0.1:0");

  const std::string first = Get(address, "/metrics");
  CHECK(first.find("HTTP/1.1 200 OK") == 0);
  CHECK(first.find("\nodbd_samples_read_total{stream=\"train\"} 5\n") != std::string::npos);
  read = 6;
  CHECK(Get(address, "/metrics").find("{stream=\"train\"} 6\n") != std::string::npos);
  CHECK(Get(address, "/").find(" 404 ") != std::string::npos);
}

TEST_CASE("MetricsServer: who connects and asks for nothing holds nobody up for long",
          "[metrics]") {
  const auto server =
      MetricsServer::Start("127.0.0.1:0", [] { return std::make_shared<const v1::Status>(); });
  REQUIRE(server.ok());
  int silent[4];
  for (int& fd : silent) fd = Connect((*server)->address());

  CHECK(Get((*server)->address(), "/metrics").find("odbd_info") != std::string::npos);

  for (const int fd : silent) close(fd);
}

TEST_CASE("MetricsServer: an address that is taken is refused by name", "[metrics]") {
  const auto latest = [] { return std::make_shared<const v1::Status>(); };
  const auto server = MetricsServer::Start("127.0.0.1:0", latest);
  REQUIRE(server.ok());
  const std::string address = (*server)->address();

  const auto second = MetricsServer::Start(address, latest);
  CHECK_THAT(second.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK(std::string(second.status().message()) ==
        "metrics cannot be served at " + address +
            ": is that an address of this machine, and its port free?");
}

}  // namespace
}  // namespace odb
