// GlooMesh: who is named when a mesh cannot even be built.
#include "aligner/transport/gloo/gloo_mesh.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <exception>

#include "absl/strings/str_cat.h"
#include "aligner/transport/gloo/gloo_fixture.h"
#include "base/os/file_descriptor.h"

namespace odb {
namespace {

// A member that said where it can be reached and died: nobody listens there.
class DeadMember {
 public:
  DeadMember() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(socket_.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
  }

  // What it published: one address for each of the others.
  std::string Addresses(int others) const {
    const auto own = gloo::transport::tcp::Address::fromSockName(socket_.get());
    std::string all;
    for (int i = 0; i < others; ++i) {
      const auto bytes = gloo::transport::tcp::Address(own.getSockaddr(), i).bytes();
      all.append(bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  FileDescriptor socket_;
};

// Connects a mesh whose first member published `addresses`; returns Gloo's complaint.
std::string ConnectTo(const std::string& addresses, GlooMesh* mesh) {
  MapStore values;
  RendezvousStore store(&values, "mesh/", Deadline(), [] { return false; });
  REQUIRE(store.Publish("0", addresses).ok());
  for (const int place : {0, 2}) {  // Gloo asks for everybody's host first
    REQUIRE(store.Publish(absl::StrCat("rank_", place), "host").ok());
  }
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  std::string buffer(64, '\0');
  std::string message;
  try {
    mesh->Connect({{Rank(7), Rank(3), Rank(5)},
                   Rank(3),
                   absl::Milliseconds(50),
                   gloo::transport::tcp::CreateDevice(attributes),
                   absl::MakeSpan(&buffer[0], buffer.size())},
                  &store);
  } catch (const std::exception& error) {
    message = error.what();
  }
  mesh->Destroy();
  return message;
}

TEST_CASE("F6: a rank that died before anybody was connected to it is named", "[aligner][gloo]") {
  // Whether Gloo calls or is called depends on the ports: over several meshes it does both.
  for (int attempt = 0; attempt < 6; ++attempt) {
    const DeadMember dead;
    GlooMesh mesh;

    const std::string message = ConnectTo(dead.Addresses(2), &mesh);

    INFO("message: " << message);
    CHECK_FALSE(message.empty());
    CHECK(mesh.Suspect(message) == Rank(7));
  }
}

TEST_CASE("GlooMesh: what is no address is an error, not the end of the process",
          "[aligner][gloo]") {
  for (const char* addresses : {"", "xx", "neither an address nor two of them"}) {
    GlooMesh mesh;
    CHECK_FALSE(ConnectTo(addresses, &mesh).empty());
  }
}

}  // namespace
}  // namespace odb
