// odb-aligner: speaks for one rank of one job on the mesh of the ranks, and to its odbd over the
// Unix socket. Started and replaced by odbd; holds nothing that would be missed.
#include <grpcpp/grpcpp.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "aligner/daemon/alignment_driver.h"
#include "aligner/transport/gloo/gloo_transport.h"
#include "aligner/transport/gloo/interface.h"
#include "aligner/transport/rendezvous_client.h"
#include "aligner/transport/topology.h"
#include "base/clock.h"
#include "base/os/lifeline.h"
#include "base/os/signals.h"
#include "base/os/thread.h"
#include "base/status_macros.h"
#include "proto/odb/v1/alignment.grpc.pb.h"

namespace odb {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitUnavailable = 69;
constexpr int kExitInternal = 70;

struct Flags {
  std::string socket;
  uint64_t job = 0;
  int rank = -1;
  std::string log_level = "info";
};

using Stream = grpc::ClientReaderWriter<v1::AlignerEvent, v1::AlignerCommand>;

class StreamLink final : public OdbdLink {
 public:
  explicit StreamLink(Stream* stream) : stream_(stream) {}
  bool Send(const v1::AlignerEvent& event) override { return stream_->Write(event); }

 private:
  Stream* const stream_;
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
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  const auto channel = grpc::CreateCustomChannel("unix:" + flags.socket,
                                                 grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1::AlignmentService::NewStub(channel);
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub->Align(&context);

  v1::AlignerEvent hello;
  hello.mutable_hello()->set_wire_version(kWireVersion);
  hello.mutable_hello()->set_job(flags.job);
  hello.mutable_hello()->set_rank(flags.rank);
  hello.mutable_hello()->set_pid(getpid());
  stream->Write(hello);

  RealClock clock;
  StreamLink link(stream.get());
  AlignmentDriver driver(&link, CreateTransport, &clock);
  Thread reader("align-read", [&] {
    v1::AlignerCommand command;
    while (stream->Read(&command)) driver.OnCommand(std::move(command));
    driver.OnStreamEnd();
  });
  const absl::Status status = driver.Run();
  context.TryCancel();  // ends the reader
  reader.Join();
  const grpc::Status end = stream->Finish();
  if (!status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return kExitInternal;
  }
  if (end.ok() || end.error_code() == grpc::StatusCode::CANCELLED) return 0;
  spdlog::error("odbd at {}: {}", flags.socket, end.error_message());
  return kExitUnavailable;
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  odb::IgnoreSigpipe();
  odb::Flags flags;
  CLI::App app("One rank's end of the exchange between ranks. Started by odbd.", "odb-aligner");
  app.add_option("--socket", flags.socket, "Unix socket of odbd")->required();
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
