#include "client/testing/fake_daemon.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "proto/wire/chunk.h"
#include "proto/wire/handover.h"

namespace odb {
namespace {

using Stream = grpc::ServerReaderWriter<v1::TrainerUpdate, v1::TrainerEvent>;
using ServerOptions = grpc::ServerBuilder::experimental_type;

constexpr absl::Duration kPeerTimeout = absl::Seconds(5);

void AddProbe(int64_t rows, v1::OpenSessionReply* reply) {
  constexpr int64_t kLength = 8;
  const auto element = [](int64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  v1::ProbeStep* const probe = reply->add_probes();
  probe->set_samples(rows);
  probe->set_length(kLength);
  v1::ProbeTensor* const ids = probe->add_tensors();
  ids->set_name("input_ids");
  ids->set_dtype(v1::DTYPE_INT64);
  ids->add_shape(rows);
  ids->add_shape(kLength);
  ids->set_element(element(3));
  v1::ProbeTensor* const offsets = probe->add_tensors();
  offsets->set_name("boxes_offsets");
  offsets->set_dtype(v1::DTYPE_INT64);
  offsets->add_shape(rows + 1);
  offsets->set_element(element(0));
  offsets->set_increment(2);
}

bool ShowsToken(const grpc::ServerContext& context, const std::string& token) {
  const auto shown = context.client_metadata().find(kJobTokenMetadata);
  if (shown == context.client_metadata().end()) return token.empty();
  return std::string(shown->second.data(), shown->second.size()) == token;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FakeDaemon>> FakeDaemon::Start(
    const std::string& socket, const FakeScript& script,
    std::function<void(const std::string&)> on_log) {
  std::unique_ptr<FakeDaemon> daemon(new FakeDaemon(script));
  daemon->on_log_ = std::move(on_log);
  ASSIGN_OR_RETURN(daemon->listener_, UnixListener::Listen(socket, UnixListenerOptions()));
  grpc::ServerBuilder builder;
  builder.RegisterService(daemon.get());
  daemon->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      ServerOptions::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  if (script.tcp) {
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &daemon->tcp_port_);
  }
  daemon->server_ = builder.BuildAndStart();
  if (daemon->server_ == nullptr) return absl::InternalError("gRPC started no server");
  daemon->accepting_ = Thread("fake-accept", [d = daemon.get()] { d->AcceptConnections(); });
  return daemon;
}

FakeDaemon::~FakeDaemon() { Stop(); }

std::string FakeDaemon::tcp_socket() const { return absl::StrCat("tcp://127.0.0.1:", tcp_port_); }

void FakeDaemon::Stop() {
  if (listener_ == nullptr) return;
  listener_->Shutdown();
  accepting_.Join();
  listener_.reset();
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, session] : sessions_) session->OnGone();
  }
  rings_.clear();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void FakeDaemon::AcceptConnections() {
  while (true) {
    auto socket = listener_->Accept(absl::InfiniteFuture());
    if (!socket.ok()) return;
    const auto first = PeekBytes(socket->get(), kHandoverMagicBytes, absl::Now() + kPeerTimeout);
    if (!first.ok()) continue;
    if (IsGrpcPreface(*first)) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
      parameters.listener_fd = -1;
      parameters.fd = socket->Release();
      acceptor_->HandleNewConnection(&parameters);
    } else if (IsHandoverPreface(*first)) {
      HandOver(std::move(*socket));
    } else if (IsStepRingPreface(*first)) {
      AttachRing(std::move(*socket));
    }
  }
}

void FakeDaemon::Log(const std::string& line) {
  if (on_log_) on_log_(line);
  MutexLock lock(&mutex_);
  log_.push_back(line);
  logged_.NotifyAll();
}

std::vector<std::string> FakeDaemon::log() {
  MutexLock lock(&mutex_);
  return log_;
}

bool FakeDaemon::WaitForLog(const std::string& line, absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (std::find(log_.begin(), log_.end(), line) == log_.end()) {
    if (logged_.WaitUntil(&mutex_, deadline)) return false;
  }
  return true;
}

v1::OpenSessionRequest FakeDaemon::last_request() {
  MutexLock lock(&mutex_);
  return last_request_;
}

void FakeDaemon::HandOver(FileDescriptor socket) {
  const absl::Time deadline = absl::Now() + kPeerTimeout;
  const auto bytes = ReadExactly(socket.get(), kHandoverRequestBytes, deadline);
  const auto request = bytes.ok() ? DecodeHandoverRequest(*bytes) : bytes.status();
  if (!request.ok()) return;
  const std::string token(request->token.data(), request->token.size());
  HandoverResponse response;
  {
    MutexLock lock(&mutex_);
    const auto known = tokens_.find(token);
    if (known == tokens_.end() || known->second != request->session_id) {
      response.status = absl::PermissionDeniedError("no such token");
    } else {
      tokens_.erase(known);  // good for one hand-over
    }
  }
  if (!response.status.ok()) {
    WriteAll(socket.get(), EncodeHandoverResponse(response), deadline).IgnoreError();
    return;
  }
  const FakeSession* session = Find(request->session_id);
  response.memory_bytes = session->arena_bytes();
  Log("handover");
  SendWithFd(socket.get(), EncodeHandoverResponse(response), session->arena_fd(), deadline)
      .IgnoreError();
}

void FakeDaemon::AttachRing(FileDescriptor socket) {
  const absl::Time deadline = absl::Now() + kPeerTimeout;
  const auto bytes = ReadExactly(socket.get(), kStepRingRequestBytes, deadline);
  const auto request = bytes.ok() ? DecodeStepRingRequest(*bytes) : bytes.status();
  if (!request.ok()) return;
  FakeSession* const session = Find(request->session_id);
  HandoverResponse response;
  if (session == nullptr) response.status = absl::NotFoundError("no such session");
  if (!script_.refuse_ring.empty()) {
    response.status = absl::ResourceExhaustedError(script_.refuse_ring);
  }
  if (!response.status.ok()) {
    WriteAll(socket.get(), EncodeHandoverResponse(response), deadline).IgnoreError();
    return;
  }
  auto ring = FakeRing::Start(script_, session, std::move(socket), request->last_step_id,
                              [this] { Log("gone"); });
  if (ring.ok()) rings_.push_back(std::move(*ring));
}

FakeSession* FakeDaemon::Find(uint64_t session_id) {
  MutexLock lock(&mutex_);
  const auto found = sessions_.find(session_id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

grpc::Status FakeDaemon::OpenSession(grpc::ServerContext* context,
                                     const v1::OpenSessionRequest* request,
                                     v1::OpenSessionReply* reply) {
  Log(absl::StrCat("open ", request->rank(), "/", request->world_size(), " dp ", request->dp_rank(),
                   "/", request->dp_size(), " replica ", request->replica(), "/",
                   request->replicas(), " ", request->stream()));
  if (request->payload_inline() && !ShowsToken(*context, script_.job_token)) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no token");
  }
  if (!script_.refuse.empty()) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, script_.refuse);
  }
  auto session = FakeSession::Create(script_, [this](const std::string& line) { Log(line); });
  if (!session.ok()) {
    return grpc::Status(grpc::StatusCode::INTERNAL, std::string(session.status().message()));
  }
  MutexLock lock(&mutex_);
  last_request_ = *request;
  const uint64_t id = sessions_.size() + 1;
  std::string token = absl::StrCat("token ", id);
  token.resize(32, '.');
  tokens_[token] = id;
  reply->set_session_id(id);
  reply->set_handover_token(token);
  reply->set_arena_bytes((*session)->arena_bytes());
  reply->set_daemon_pid(getpid());
  reply->set_daemon_version("fake");
  reply->set_loss_scale("loss_tokens");
  reply->set_label_shift("model");
  reply->set_accumulation(script_.accumulation);
  reply->set_records(script_.steps * script_.samples * script_.dp_size);
  reply->set_estimated_steps(script_.estimated_steps);
  reply->set_step_ring(script_.step_ring);
  for (int64_t rows = script_.probes; rows > 0; --rows) AddProbe(rows, reply);
  sessions_[id] = std::move(*session);
  if (request->payload_inline()) inline_.insert(id);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Steps(grpc::ServerContext* context, Stream* stream) {
  v1::TrainerEvent event;
  if (!stream->Read(&event) || !event.has_attach()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the first event must be attach");
  }
  FakeSession* session = Find(event.attach().session_id());
  if (session == nullptr) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such session");
  bool is_inline = false;
  {
    MutexLock lock(&mutex_);
    is_inline = inline_.count(event.attach().session_id()) > 0;
  }
  if (is_inline && !ShowsToken(*context, script_.job_token)) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no token");
  }
  const int number = session->OnAttach();
  session->OnEvent(event);
  Thread reader("fake-reader", [&] {
    v1::TrainerEvent received;
    while (stream->Read(&received)) session->OnEvent(received);
    session->OnGone(number);
  });
  bool cut = false;
  while (const auto update = session->NextUpdate(&cut)) {
    if (is_inline && update->has_step()) {
      if (SendInline(*session, update->step(), stream)) continue;
      cut = true;
      break;
    }
    if (!stream->Write(*update)) break;
    if (update->has_failure()) break;
  }
  if (cut) context->TryCancel();
  reader.Join();
  Log("gone");
  return grpc::Status::OK;
}

bool FakeDaemon::SendInline(const FakeSession& session, v1::Step step, Stream* stream) {
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  for (const v1::Tensor& tensor : step.tensors()) {
    begin = std::min(begin, tensor.offset());
    end = std::max(end, tensor.offset() + tensor.bytes());
  }
  for (v1::Tensor& tensor : *step.mutable_tensors()) tensor.set_offset(tensor.offset() - begin);
  const uint64_t size = end - begin;
  for (uint64_t offset = 0; offset < size; offset += script_.chunk_bytes) {
    v1::TrainerUpdate update;
    v1::Chunk* const chunk = update.mutable_chunk();
    chunk->set_step_id(step.step_id());
    chunk->set_offset(static_cast<int64_t>(offset));
    chunk->set_step_bytes(static_cast<int64_t>(size));
    chunk->set_data(session.arena() + begin + offset,
                    std::min<uint64_t>(script_.chunk_bytes, size - offset));
    chunk->set_checksum(ChunkChecksum(chunk->data()));
    if (script_.on_chunk && !script_.on_chunk(chunk)) return false;
    if (!stream->Write(update)) return false;
  }
  v1::TrainerUpdate update;
  *update.mutable_step() = std::move(step);
  return stream->Write(update);
}

TemporarySocket::TemporarySocket(const std::string& name) {
  char pattern[] = "/tmp/odbXXXXXX";
  INVARIANT(mkdtemp(pattern) != nullptr, "no directory below /tmp");
  directory_ = pattern;
  path_ = directory_ + "/" + name;
}

TemporarySocket::~TemporarySocket() {
  unlink(path_.c_str());
  rmdir(directory_.c_str());
}

}  // namespace odb
