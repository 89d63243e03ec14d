#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"
#include "base/os/ring_channel.h"
#include "base/os/thread.h"
#include "client/testing/fake_session.h"

namespace odb {

// One attachment of a fake session by a step ring, real but for what it carries.
//
// Ownership: of the socket; `session` must outlive it. Threads: two of its own, which end when
// either side does. `on_gone` is called at the end, on one of them.
class FakeRing {
 public:
  // Answers the request and begins. Errors: the peer is gone, or no memory.
  static absl::StatusOr<std::unique_ptr<FakeRing>> Start(const FakeScript& script,
                                                         FakeSession* session,
                                                         FileDescriptor socket,
                                                         int64_t last_step_id,
                                                         std::function<void()> on_gone);
  ~FakeRing();

 private:
  FakeRing(FakeSession* session, std::unique_ptr<RingChannel> channel,
           std::function<void()> on_gone);

  void Read();
  void Write();
  bool WriteOne(const std::string& message);

  FakeSession* const session_;
  const std::unique_ptr<RingChannel> channel_;
  const std::function<void()> on_gone_;
  // From Start on.
  int stream_ = 0;  // its number
  int64_t noise_at_ = -1;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool room_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;

  Thread writer_;
  Thread reader_;
};

}  // namespace odb
