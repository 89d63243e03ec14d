#include "aligner/daemon/mesh_worker.h"

#include <limits>
#include <optional>

namespace odb {

std::unique_ptr<MeshWorker> MeshWorker::Start(std::unique_ptr<Transport> transport,
                                              MeshIdler* idler, Done on_done) {
  std::unique_ptr<MeshWorker> worker(
      new MeshWorker(std::move(transport), idler, std::move(on_done)));
  MeshWorker* const self = worker.get();
  worker->thread_ = Thread("mesh", [self] { self->Run(); });
  return worker;
}

MeshWorker::~MeshWorker() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    calls_.clear();
  }
  idler_->Wake();
  transport_->Interrupt(Generation(std::numeric_limits<int64_t>::max()));
  thread_.Join();
}

void MeshWorker::Open(MeshSpec mesh, absl::Time deadline) {
  transport_->Interrupt(Generation(mesh.generation.value() - 1));
  Push(OpenCall{std::move(mesh), deadline});
}

void MeshWorker::Exchange(ExchangeId id, ExchangeKind kind, std::string record,
                          absl::Time deadline) {
  Push(ExchangeCall{id, kind, std::move(record), deadline});
}

void MeshWorker::Close(Generation generation) {
  transport_->Interrupt(generation);
  Push(CloseCall{});
}

void MeshWorker::Push(Call call) {
  {
    MutexLock lock(&mutex_);
    calls_.push_back(std::move(call));
    if (own_thread_ == std::this_thread::get_id()) return;  // looks for it next
  }
  idler_->Wake();
}

void MeshWorker::Run() {
  {
    MutexLock lock(&mutex_);
    own_thread_ = std::this_thread::get_id();
  }
  while (true) {
    std::optional<Call> call;
    {
      MutexLock lock(&mutex_);
      if (stopping_) break;
      if (!calls_.empty()) {
        call = std::move(calls_.front());
        calls_.pop_front();
      }
    }
    if (call.has_value()) {
      Execute(*call);
    } else {
      idler_->Idle();
    }
  }
  transport_->Close();
}

void MeshWorker::Execute(const Call& call) {
  idler_->OnCallBegin();
  if (const auto* open = std::get_if<OpenCall>(&call)) {
    MeshOpened opened{open->mesh.generation, transport_->Open(open->mesh, open->deadline)};
    idler_->OnCallEnd();
    on_done_(std::move(opened));
  } else if (const auto* exchange = std::get_if<ExchangeCall>(&call)) {
    Exchanged exchanged{exchange->id, exchange->kind,
                        transport_->Exchange(exchange->kind, exchange->record, exchange->deadline)};
    idler_->OnCallEnd();
    on_done_(std::move(exchanged));
  } else {
    transport_->Close();
    idler_->OnCallEnd();
  }
}

}  // namespace odb
