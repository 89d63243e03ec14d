#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "base/os/unix_listener.h"
#include "client/testing/fake_ring.h"
#include "client/testing/fake_session.h"
#include "proto/odb/v1/trainer.grpc.pb.h"

namespace odb {

// A daemon for tests of the client: a real gRPC server with TrainerService, real hand-overs of real
// memory and real step rings on one Unix socket, and gRPC over TCP if wanted, serving what a
// FakeScript says to every session.
//
// Threads: thread-safe. Errors: Start as UnixListener::Listen.
class FakeDaemon final : public v1::TrainerService::Service {
 public:
  // `socket` may not exist yet. `on_log` also gets every line of the log, in any thread; may be
  // empty.
  static absl::StatusOr<std::unique_ptr<FakeDaemon>> Start(
      const std::string& socket, const FakeScript& script,
      std::function<void(const std::string&)> on_log = nullptr);
  ~FakeDaemon() override;

  // tcp://127.0.0.1:port, with FakeScript::tcp.
  std::string tcp_socket() const;

  // As if the process had been killed: every connection breaks and nobody listens any more.
  void Stop();

  // Lines "open <rank>/<world> dp <rank>/<size> replica <n>/<n> <stream>", "handover", and those of
  // the sessions, in order; "gone" when a stream has ended.
  std::vector<std::string> log();

  // Waits until a line is there. False at the deadline.
  bool WaitForLog(const std::string& line, absl::Time deadline);

  // The last request.
  v1::OpenSessionRequest last_request();

  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override;
  grpc::Status Steps(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::TrainerUpdate, v1::TrainerEvent>* stream) override;

 private:
  explicit FakeDaemon(const FakeScript& script) : script_(script) {}

  void AcceptConnections();
  void HandOver(FileDescriptor socket);
  void AttachRing(FileDescriptor socket);
  // A step as its bytes in chunks, then itself. False: the stream broke, or is to be cancelled.
  bool SendInline(const FakeSession& session, v1::Step step,
                  grpc::ServerReaderWriter<v1::TrainerUpdate, v1::TrainerEvent>* stream);
  void Log(const std::string& line);
  FakeSession* Find(uint64_t session_id);

  const FakeScript script_;
  std::function<void(const std::string&)> on_log_;
  std::unique_ptr<UnixListener> listener_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  int tcp_port_ = 0;

  Mutex mutex_;  // guards all below
  CondVar logged_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<FakeSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> tokens_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> inline_ ABSL_GUARDED_BY(mutex_);  // sessions without shared memory
  v1::OpenSessionRequest last_request_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::unique_ptr<FakeRing>> rings_;  // of the accepting thread, then of Stop

  Thread accepting_;
};

// A path for a socket in a directory of its own below /tmp, removed with it.
class TemporarySocket {
 public:
  // The default has bytes that gRPC's addresses must escape.
  explicit TemporarySocket(const std::string& name = "odbd 100%.sock");
  ~TemporarySocket();
  TemporarySocket(const TemporarySocket&) = delete;
  TemporarySocket& operator=(const TemporarySocket&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string directory_;
  std::string path_;
};

}  // namespace odb
