// odb-aligner: speaks for one rank of one job on the mesh of the ranks, and to its odbd over the
// socket that it got from it. Started and replaced by odbd; holds nothing that would be missed.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "aligner/daemon/alignment_driver.h"
#include "aligner/daemon/odbd_line.h"
#include "aligner/transport/gloo/gloo_transport.h"
#include "aligner/transport/gloo/interface.h"
#include "aligner/transport/rendezvous_client.h"
#include "aligner/transport/topology.h"
#include "base/clock.h"
#include "base/os/file_descriptor.h"
#include "base/os/lifeline.h"
#include "base/os/signals.h"
#include "base/status_macros.h"
#include "proto/odb/v1/alignment.pb.h"
#include "proto/wire/record_codec.h"

namespace odb {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitUnavailable = 69;
constexpr int kExitInternal = 70;

struct Flags {
  int connection = -1;
  uint64_t job = 0;
  int rank = -1;
  std::string log_level = "info";
};

// A Gloo transport and the store that it finds its peers in.
class RendezvousTransport final : public Transport {
 public:
  RendezvousTransport(std::unique_ptr<KeyValueStore> store, const GlooTransport::Options& options)
      : store_(std::move(store)), gloo_(options, store_.get()) {}

  OpenResult Open(const MeshSpec& mesh, absl::Time deadline) override {
    return gloo_.Open(mesh, deadline);
  }
  ExchangeResult Exchange(ExchangeKind kind, absl::string_view record,
                          absl::Time deadline) override {
    return gloo_.Exchange(kind, record, deadline);
  }
  void Close() override { gloo_.Close(); }
  void Interrupt(Generation generation) override { gloo_.Interrupt(generation); }

 private:
  const std::unique_ptr<KeyValueStore> store_;
  GlooTransport gloo_;
};

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const v1::AlignerSetup& setup,
                                                           const RecordSizes& sizes) {
  GlooTransport::Options options;
  options.rank = Rank(setup.rank());
  options.world_size = setup.world_size();
  options.sizes = sizes;
  ASSIGN_OR_RETURN(options.topology, ParseTopology(setup.topology()));
  if (setup.world_size() > 1) {
    InterfaceRequest request;
    request.wanted = setup.interface();
    const char* const from_environment = std::getenv("GLOO_SOCKET_IFNAME");
    if (request.wanted.empty() && from_environment != nullptr) request.wanted = from_environment;
    request.multi_node = setup.multi_node();
    ASSIGN_OR_RETURN(request.route_address, LocalAddressTowards(setup.rendezvous()));
    ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> candidates, ListInterfaces());
    ASSIGN_OR_RETURN(options.interface, ChooseInterface(request, candidates));
  }
  auto store =
      std::make_unique<RendezvousClient>(setup.rendezvous(), setup.job_key(), setup.job_token());
  return std::unique_ptr<Transport>(
      std::make_unique<RendezvousTransport>(std::move(store), options));
}

int RunAligner(const Flags& flags) {
  auto line = OdbdLine::Start(FileDescriptor(flags.connection));
  if (!line.ok()) {
    spdlog::error("{}", std::string(line.status().message()));
    return kExitInternal;
  }
  v1::AlignerEvent hello;
  hello.mutable_hello()->set_wire_version(kWireVersion);
  hello.mutable_hello()->set_job(flags.job);
  hello.mutable_hello()->set_rank(flags.rank);
  hello.mutable_hello()->set_pid(getpid());
  (*line)->Send(std::move(hello));

  RealClock clock;
  AlignmentDriver driver(line->get(), CreateTransport, &clock);
  (*line)->Open(&driver);
  const absl::Status status = driver.Run();
  (*line)->Close();
  if (!status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return kExitInternal;
  }
  const absl::Status end = (*line)->end();
  if (end.ok()) return 0;
  spdlog::error("the connection to odbd has ended: {}", std::string(end.message()));
  return absl::IsUnavailable(end) ? kExitUnavailable : kExitInternal;
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  odb::IgnoreSigpipe();
  odb::Flags flags;
  CLI::App app("One rank's end of the exchange between ranks. Started by odbd.", "odb-aligner");
  app.add_option("--connection", flags.connection,
                 "number of the socket that odbd left open for it")
      ->required();
  app.add_option("--job", flags.job, "odbd's number of the job")->required();
  app.add_option("--rank", flags.rank, "data-parallel rank")->required();
  app.add_option("--log-level", flags.log_level, "debug | info | warn | error");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : odb::kExitUsage;
  }
  auto logger = spdlog::stderr_logger_mt("odb-aligner");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l odb-aligner[%P]: %v");
  logger->set_level(spdlog::level::from_str(flags.log_level));
  spdlog::set_default_logger(logger);

  auto lifeline = odb::TakeLifeline();
  if (!lifeline.ok()) {
    spdlog::error("{}", std::string(lifeline.status().message()));
    return odb::kExitUsage;
  }
  std::unique_ptr<odb::LifelineWatch> watch;
  if (lifeline->valid()) {
    auto started =
        odb::LifelineWatch::Start(*std::move(lifeline), [] { odb::ExitAsParentIsGone(); });
    if (!started.ok()) {
      spdlog::error("{}", std::string(started.status().message()));
      return odb::kExitInternal;
    }
    watch = *std::move(started);
  }
  return odb::RunAligner(flags);
}
