#include "aligner/daemon/mesh_worker.h"

#include <limits>

namespace odb {

std::unique_ptr<MeshWorker> MeshWorker::Start(std::unique_ptr<Transport> transport, Done on_done) {
  std::unique_ptr<MeshWorker> worker(new MeshWorker(std::move(transport), std::move(on_done)));
  MeshWorker* const self = worker.get();
  worker->thread_ = Thread("mesh", [self] { self->Run(); });
  return worker;
}

MeshWorker::~MeshWorker() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    calls_.clear();
    changed_.NotifyAll();
  }
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
  MutexLock lock(&mutex_);
  calls_.push_back(std::move(call));
  changed_.NotifyAll();
}

void MeshWorker::Run() {
  while (true) {
    Call call;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && calls_.empty()) changed_.Wait(&mutex_);
      if (stopping_) break;
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    Execute(call);
  }
  transport_->Close();
}

void MeshWorker::Execute(const Call& call) {
  if (const auto* open = std::get_if<OpenCall>(&call)) {
    on_done_(MeshOpened{open->mesh.generation, transport_->Open(open->mesh, open->deadline)});
  } else if (const auto* exchange = std::get_if<ExchangeCall>(&call)) {
    on_done_(Exchanged{exchange->id, exchange->kind,
                       transport_->Exchange(exchange->kind, exchange->record, exchange->deadline)});
  } else {
    transport_->Close();
  }
}

}  // namespace odb
