#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "proto/odb/v1/alignment.grpc.pb.h"
#include "server/service/rendezvous_job.h"

namespace odb {

// A node's connection to the arbiter of its job.
//
// Threads: thread-safe. The handlers are called on a thread of the link, one at a time, under no
// lock, and must not destroy it. Errors: through on_end, once, unless the link was destroyed first.
class ArbiterLink {
 public:
  struct Handlers {
    std::function<void(const v1::ArbiterUpdate&)> on_update;
    // The connection is over: refused, gone, or the job has ended (Cancelled).
    std::function<void(const absl::Status&)> on_end;
  };

  virtual ~ArbiterLink() = default;

  // Never waits; dropped once the connection is over. The last RanksChanged is repeated as a sign
  // of life.
  virtual void Send(v1::NodeEvent event) = 0;
};

// On the arbiter's own node: no socket in between.
class LocalArbiterLink final : public ArbiterLink {
 public:
  // Errors: those of RendezvousJob::Join.
  static absl::StatusOr<std::unique_ptr<ArbiterLink>> Start(std::shared_ptr<RendezvousJob> job,
                                                            const v1::NodeHello& hello,
                                                            Handlers handlers);
  ~LocalArbiterLink() override;
  void Send(v1::NodeEvent event) override;

 private:
  LocalArbiterLink(std::shared_ptr<NodeChannel> channel, Handlers handlers)
      : channel_(std::move(channel)), handlers_(std::move(handlers)) {}
  void Run();

  const std::shared_ptr<NodeChannel> channel_;  // the other owner is the call that reads from it
  const Handlers handlers_;

  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  v1::NodeEvent ranks_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

// On the other nodes: RendezvousService.Join. An arbiter that is not there yet is tried again until
// `join_deadline`; one that is lost later, or silent, is the end.
class RemoteArbiterLink final : public ArbiterLink {
 public:
  struct Options {
    std::string target;  // host:port, or unix:PATH
    absl::Time join_deadline;
    absl::Duration silence_max;  // after which the arbiter counts as lost; as ArbiterHost
  };
  static std::unique_ptr<ArbiterLink> Start(const Options& options, const v1::NodeHello& hello,
                                            Handlers handlers);
  ~RemoteArbiterLink() override;
  void Send(v1::NodeEvent event) override;

 private:
  using Stream = grpc::ClientReaderWriter<v1::NodeEvent, v1::ArbiterUpdate>;

  RemoteArbiterLink(const Options& options, const v1::NodeHello& hello, Handlers handlers);
  void Run();
  // One connection. Sets `joined` if the arbiter took the node.
  absl::Status RunStream(bool* joined);
  void Write(Stream* stream, grpc::ClientContext* context);
  bool stopping() const;

  const Options options_;
  const v1::NodeHello hello_;
  const Handlers handlers_;
  const std::unique_ptr<v1::RendezvousService::Stub> stub_;

  mutable Mutex mutex_;  // guards all below
  CondVar changed_;
  std::deque<v1::NodeEvent> events_ ABSL_GUARDED_BY(mutex_);
  v1::NodeEvent ranks_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the stream that runs
  bool reading_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;  // the stream was cancelled for that
  absl::Time heard_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread thread_;
};

}  // namespace odb
