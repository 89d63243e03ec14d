#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "aligner/protocol/effects.h"
#include "aligner/transport/transport.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"

namespace odb {

struct MeshOpened {
  Generation generation;
  OpenResult result;
};

struct Exchanged {
  ExchangeId id;
  ExchangeKind kind = ExchangeKind::kResync;
  ExchangeResult result;
};

// What the thread of a MeshWorker does while it has no call to run.
class MeshIdler {
 public:
  virtual ~MeshIdler() = default;
  // Returns after Wake, which may have come before; or earlier. May bring about calls.
  virtual void Idle() = 0;
  virtual void Wake() = 0;  // from any thread
  // Around each call that blocks: somebody else has to look after things meanwhile.
  virtual void OnCallBegin() = 0;
  virtual void OnCallEnd() = 0;
};

// Runs the blocking calls of a Transport on a thread of its own, in the order asked for, so that
// odbd's commands are seen meanwhile. Between calls the thread waits in the idler, which reads
// these commands: the one that leads to an exchange wakes no other thread.
//
// Ownership: owns the transport; `idler` must outlive it. `on_done` is called on the worker's
// thread, under no lock, and may call the methods, but not destroy the worker. Threads:
// thread-safe. Errors: in the results.
class MeshWorker {
 public:
  using Done = std::function<void(std::variant<MeshOpened, Exchanged>)>;

  static std::unique_ptr<MeshWorker> Start(std::unique_ptr<Transport> transport, MeshIdler* idler,
                                           Done on_done);
  // Interrupts what runs, closes the mesh and joins the thread.
  ~MeshWorker();

  // Interrupts everything of older generations, then opens this one.
  void Open(MeshSpec mesh, absl::Time deadline);
  void Exchange(ExchangeId id, ExchangeKind kind, std::string record, absl::Time deadline);
  // Drops the mesh of `generation`, so that its other ranks notice.
  void Close(Generation generation);

 private:
  struct OpenCall {
    MeshSpec mesh;
    absl::Time deadline;
  };
  struct ExchangeCall {
    ExchangeId id;
    ExchangeKind kind = ExchangeKind::kResync;
    std::string record;
    absl::Time deadline;
  };
  struct CloseCall {};
  using Call = std::variant<OpenCall, ExchangeCall, CloseCall>;

  MeshWorker(std::unique_ptr<Transport> transport, MeshIdler* idler, Done on_done)
      : transport_(std::move(transport)), idler_(idler), on_done_(std::move(on_done)) {}
  void Run();
  void Execute(const Call& call);
  void Push(Call call);

  const std::unique_ptr<Transport> transport_;
  MeshIdler* const idler_;
  const Done on_done_;

  Mutex mutex_;                                         // guards all below
  std::thread::id own_thread_ ABSL_GUARDED_BY(mutex_);  // once it runs
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread thread_;
};

}  // namespace odb
