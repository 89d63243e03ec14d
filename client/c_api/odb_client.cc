#include "client/c_api/odb_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/version.h"
#include "client/c_api/client_setting.h"
#include "client/client_options.h"
#include "client/loss_scale.h"
#include "client/odb_client.h"

struct odb_client {
  pid_t owner = getpid();
  std::vector<std::pair<std::string, std::string>> settings;
  odb::ClientOptions options;
  std::unique_ptr<odb::Client> client;
  std::string last_error;
  std::string waiting_text;
};

struct odb_step {
  odb::StepHandle handle;
};

namespace {

// Codes are those of the header; the numbers of absl::Status are part of its interface.
static_assert(ODB_INVALID_ARGUMENT == -static_cast<int>(absl::StatusCode::kInvalidArgument));
static_assert(ODB_DEADLINE_EXCEEDED == -static_cast<int>(absl::StatusCode::kDeadlineExceeded));
static_assert(ODB_NOT_FOUND == -static_cast<int>(absl::StatusCode::kNotFound));
static_assert(ODB_PERMISSION_DENIED == -static_cast<int>(absl::StatusCode::kPermissionDenied));
static_assert(ODB_RESOURCE_EXHAUSTED == -static_cast<int>(absl::StatusCode::kResourceExhausted));
static_assert(ODB_FAILED_PRECONDITION == -static_cast<int>(absl::StatusCode::kFailedPrecondition));
static_assert(ODB_ABORTED == -static_cast<int>(absl::StatusCode::kAborted));
static_assert(ODB_OUT_OF_RANGE == -static_cast<int>(absl::StatusCode::kOutOfRange));
static_assert(ODB_INTERNAL == -static_cast<int>(absl::StatusCode::kInternal));
static_assert(ODB_UNAVAILABLE == -static_cast<int>(absl::StatusCode::kUnavailable));
static_assert(ODB_DATA_LOSS == -static_cast<int>(absl::StatusCode::kDataLoss));

int Told(odb_client* client, const absl::Status& status) {
  if (status.ok()) return ODB_OK;
  client->last_error = std::string(status.message());
  return -static_cast<int>(status.code());
}

absl::Status CheckOpen(const odb_client* client) {
  if (client->client != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("call odb_client_open first");
}

odb_counts ToCounts(const odb::v1::Counts& counts) {
  return odb_counts{counts.samples(), counts.tokens(), counts.padded_tokens(), counts.loss_tokens(),
                    counts.vision_load()};
}

odb_step_info ToInfo(const odb::ClientStep& handle) {
  const odb::v1::Step& step = handle.message();
  odb_step_info info = {};
  info.step_id = step.step_id();
  info.epoch = step.epoch();
  info.iterator = step.iterator();
  info.index = step.index();
  info.round = step.round();
  info.idle = step.idle() ? 1 : 0;
  info.num_tensors = step.tensors_size();
  info.num_samples = step.sample_keys_size();
  info.window_steps = step.window_steps();
  info.window_index = step.window_index();
  info.modality_mask = step.modality_mask();
  info.dp_size = step.dp_size();
  info.loss_scale = step.loss_scale();
  info.emitted_samples = step.emitted_samples();
  info.total_samples = step.total_samples();
  info.local = ToCounts(step.local());
  info.global = ToCounts(step.global());
  info.window_local = ToCounts(step.window_local());
  info.window_global = ToCounts(step.window_global());
  info.waited_us = absl::ToInt64Microseconds(handle.waited());
  return info;
}

}  // namespace

extern "C" {

const char* odb_version(void) { return odb::kOdbVersion; }

odb_client* odb_client_new(void) { return new odb_client; }

void odb_client_free(odb_client* client) { delete client; }

int odb_client_set_option(odb_client* client, const char* name, const char* value) {
  if (client->client != nullptr) {
    return Told(client, absl::FailedPreconditionError("options are set before odb_client_open"));
  }
  // Looked at twice: here, so that a wrong one is told where it is set, and over the environment,
  // which is read when the client opens.
  odb::ClientOptions scratch;
  const absl::Status status = odb::ApplySetting(name, value, &scratch);
  if (status.ok()) client->settings.emplace_back(name, value);
  return Told(client, status);
}

int odb_client_open(odb_client* client) {
  if (client->client != nullptr) {
    return Told(client, absl::FailedPreconditionError("the client is open already"));
  }
  absl::StatusOr<odb::ClientOptions> options = odb::ClientOptions::FromEnvironment();
  if (!options.ok()) return Told(client, options.status());
  for (const auto& [name, value] : client->settings) {
    const absl::Status status = odb::ApplySetting(name, value, &*options);
    if (!status.ok()) return Told(client, status);
  }
  client->options = *options;
  auto opened = odb::Client::Open(*options);
  if (!opened.ok()) return Told(client, opened.status());
  client->client = std::move(*opened);
  return ODB_OK;
}

int odb_client_close(odb_client* client) {
  if (client->client == nullptr) return ODB_OK;
  return Told(client, client->client->Close());
}

const char* odb_last_error(const odb_client* client) { return client->last_error.c_str(); }

const char* odb_client_waiting_text(odb_client* client) {
  client->waiting_text = client->client == nullptr ? "" : client->client->waiting_text();
  return client->waiting_text.c_str();
}

int odb_client_session(odb_client* client, odb_session_info* info, size_t size) {
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  const odb::v1::OpenSessionReply& session = client->client->session();
  odb_session_info all = {};
  all.session_id = session.session_id();
  all.arena = client->client->arena();
  all.arena_bytes = all.arena == nullptr ? 0 : session.arena_bytes();
  all.daemon_pid = session.daemon_pid();
  all.records = session.records();
  all.estimated_steps = session.estimated_steps();
  all.accumulation = session.accumulation();
  all.pad_token_id = session.pad_token_id();
  all.rank = client->options.rank;
  all.dp_rank = client->options.effective_dp_rank();
  all.dp_size = client->options.effective_dp_size();
  all.loss_scale = session.loss_scale().c_str();
  all.socket = client->options.socket.c_str();
  all.transport = client->client->transport() == odb::Transport::kRing ? "ring" : "stream";
  std::memcpy(info, &all, std::min(size, sizeof(all)));
  return ODB_OK;
}

int odb_client_pinned(odb_client* client) {
  return client->client != nullptr && client->client->pinned() ? 1 : 0;
}

const char* odb_client_why_not_pinned(odb_client* client) {
  return client->client == nullptr ? "" : client->client->why_not_pinned().c_str();
}

int odb_client_probe(odb_client* client, int32_t i, odb_step** step) {
  *step = nullptr;
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  absl::StatusOr<odb::StepHandle> probe = client->client->MakeProbe(i);
  if (absl::IsOutOfRange(probe.status()) && i >= 0) return ODB_END;
  if (!probe.ok()) return Told(client, probe.status());
  *step = new odb_step{std::move(*probe)};
  return ODB_OK;
}

int odb_client_start_epoch(odb_client* client, int64_t epoch, int64_t max_steps,
                           int64_t max_samples) {
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  return Told(client, client->client->StartEpoch(epoch, {max_steps, max_samples}));
}

int odb_client_next(odb_client* client, int64_t timeout_ms, odb_step** step) {
  *step = nullptr;
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  absl::StatusOr<odb::StepHandle> next = client->client->Next(
      timeout_ms < 0 ? absl::InfiniteFuture() : absl::Now() + absl::Milliseconds(timeout_ms));
  if (next.ok()) {
    if (*next == nullptr) return ODB_END;
    *step = new odb_step{std::move(*next)};
    return ODB_OK;
  }
  const bool only_time = absl::IsDeadlineExceeded(next.status()) && !client->client->failed();
  const int code = Told(client, next.status());
  return only_time ? static_cast<int>(ODB_TIMEOUT) : code;
}

int odb_client_waits(odb_client* client, odb_waits* waits, size_t size) {
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  odb_waits all = {};
  all.total_us = absl::ToInt64Microseconds(client->client->waited());
  all.longest_us = absl::ToInt64Microseconds(client->client->longest_wait());
  std::memcpy(waits, &all, std::min(size, sizeof(all)));
  return ODB_OK;
}

int odb_client_peek(odb_client* client, odb_step** step) {
  *step = nullptr;
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  absl::StatusOr<odb::StepHandle> next = client->client->Peek();
  if (!next.ok()) return Told(client, next.status());
  if (*next == nullptr) return ODB_TIMEOUT;
  *step = new odb_step{std::move(*next)};
  return ODB_OK;
}

int odb_client_end_iteration(odb_client* client) {
  const absl::Status status = CheckOpen(client);
  if (!status.ok()) return Told(client, status);
  return Told(client, client->client->EndIteration());
}

int odb_step_get_info(const odb_step* step, odb_step_info* info, size_t size) {
  const odb_step_info all = ToInfo(*step->handle);
  std::memcpy(info, &all, std::min(size, sizeof(all)));
  return ODB_OK;
}

int odb_step_get_tensor(const odb_step* step, int32_t i, odb_tensor* tensor, size_t size) {
  if (i < 0 || i >= step->handle->num_tensors()) return ODB_OUT_OF_RANGE;
  const odb::TensorView view = step->handle->tensor(i);
  odb_tensor all = {};
  all.name = step->handle->message().tensors(i).name().c_str();
  all.dtype = view.dtype;
  all.ndim = static_cast<int32_t>(view.shape.size());
  all.shape = view.shape.data();
  all.data = view.data;
  all.bytes = view.bytes;
  std::memcpy(tensor, &all, std::min(size, sizeof(all)));
  return ODB_OK;
}

int32_t odb_step_sample_ids(const odb_step* step, odb_sample_id* ids, int32_t capacity) {
  const odb::v1::Step& message = step->handle->message();
  for (int32_t i = 0; i < std::min(capacity, message.sample_keys_size()); ++i) {
    ids[i] = odb_sample_id{message.sample_keys(i), message.sample_sources(i), 0};
  }
  return message.sample_keys_size();
}

int odb_step_describe(const odb_step* step, odb_step_info* info, size_t info_size,
                      odb_tensor* tensors, int32_t max_tensors, size_t tensor_size,
                      odb_sample_id* ids, int32_t max_ids) {
  odb_step_get_info(step, info, info_size);
  auto* at = reinterpret_cast<char*>(tensors);
  for (int32_t i = 0; i < std::min(max_tensors, step->handle->num_tensors()); ++i) {
    odb_step_get_tensor(step, i, reinterpret_cast<odb_tensor*>(at), tensor_size);
    at += tensor_size;
  }
  odb_step_sample_ids(step, ids, max_ids);
  return ODB_OK;
}

int odb_step_is_stand_in(const odb_step* step) { return step->handle->is_stand_in() ? 1 : 0; }

void odb_step_release(odb_step* step) { delete step; }

int odb_loss_scale(const odb_step_info* info, int32_t reduction, int32_t weight,
                   int32_t averaged_over_ranks, int32_t divided_by, double* scale) {
  if (reduction < ODB_LOSS_MEAN || reduction > ODB_LOSS_NUM_ITEMS ||
      weight < ODB_WEIGHT_LOSS_TOKENS || weight > ODB_WEIGHT_TOKENS) {
    return ODB_INVALID_ARGUMENT;
  }
  const bool all_tokens = weight == ODB_WEIGHT_TOKENS;
  odb::LossCounts counts;
  counts.idle = info->idle != 0;
  counts.local = all_tokens ? info->local.tokens : info->local.loss_tokens;
  counts.window_global = all_tokens ? info->window_global.tokens : info->window_global.loss_tokens;
  counts.dp_size = info->dp_size;
  odb::LossConvention convention;
  convention.reduction = static_cast<odb::LossReduction>(reduction);
  convention.averaged_over_ranks = averaged_over_ranks != 0;
  convention.divided_by = divided_by;
  const absl::StatusOr<double> result = odb::LossScale(counts, convention);
  if (!result.ok()) return -static_cast<int>(result.status().code());
  *scale = *result;
  return ODB_OK;
}

}  // extern "C"
