#include "client/testing/fake_session.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kStandInBytes = 4096;

uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
void FillAlternating(char* data, int n, T zero, T one) {
  for (int i = 0; i < n; ++i) reinterpret_cast<T*>(data)[i] = i % 2 == 0 ? zero : one;
}

std::string Describe(const v1::TrainerEvent& event) {
  if (event.has_start_epoch()) {
    return absl::StrCat("start_epoch ", event.start_epoch().epoch(), " ",
                        event.start_epoch().iterator());
  }
  if (event.has_progress()) {
    return absl::StrCat("progress ", event.progress().iterator(), " ", event.progress().taken(),
                        event.progress().waiting() ? " waiting" : " running");
  }
  if (event.has_returned()) {
    return absl::StrCat("returned ", absl::StrJoin(event.returned().step_ids(), " "));
  }
  if (event.has_end_iteration()) {
    return absl::StrCat("end_iteration ", event.end_iteration().iterator(), " ",
                        event.end_iteration().taken());
  }
  if (event.has_close()) return absl::StrCat("close ", event.close().taken());
  return absl::StrCat("attach ", event.attach().last_step_id());
}

}  // namespace

FakeSession::FakeSession(const FakeScript& script, std::function<void(std::string)> log,
                         FileDescriptor arena, MappedRegion region)
    : script_(script), log_(std::move(log)), arena_(std::move(arena)), region_(std::move(region)) {
  for (int32_t slot = 0; slot < script_.slots; ++slot) free_slots_.insert(slot);
}

absl::StatusOr<std::unique_ptr<FakeSession>> FakeSession::Create(
    const FakeScript& script, std::function<void(std::string)> log) {
  const uint64_t slot = AlignUp(script.samples * script.length * 8) * 3 + kStandInBytes;
  const size_t bytes = AlignUp(kStandInBytes + slot * script.slots);
  FileDescriptor fd;
  if (script.bad_arena) {
    fd.Reset(memfd_create("odb-fake", MFD_CLOEXEC));
    INVARIANT(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, "no memory for the fake arena");
  } else {
    ASSIGN_OR_RETURN(fd, CreateSealedMemfd("odb-fake", bytes));
  }
  ASSIGN_OR_RETURN(MappedRegion region,
                   MappedRegion::Map(fd.get(), bytes, MappedRegion::Access::kReadWrite));
  return std::unique_ptr<FakeSession>(
      new FakeSession(script, std::move(log), std::move(fd), std::move(region)));
}

uint64_t FakeSession::slot_bytes() const {
  return AlignUp(script_.samples * script_.length * 8) * 3 + kStandInBytes;
}

int FakeSession::OnAttach() {
  MutexLock lock(&mutex_);
  attached_ = true;
  ++streams_;
  resend_.clear();
  for (const auto& [id, step] : unreturned_) {
    v1::TrainerUpdate update;
    *update.mutable_step() = step;
    resend_.push_back(std::move(update));
  }
  changed_.NotifyAll();
  return streams_;
}

void FakeSession::OnGone(int stream) {
  MutexLock lock(&mutex_);
  if (stream != streams_) return;
  attached_ = false;
  changed_.NotifyAll();
}

void FakeSession::OnGone() {
  MutexLock lock(&mutex_);
  attached_ = false;
  changed_.NotifyAll();
}

void FakeSession::OnEvent(const v1::TrainerEvent& event) {
  log_(Describe(event));
  if (event.progress().waited_us() > 0) {
    log_(absl::StrCat("waited ", event.progress().iterator(), " ", event.progress().waited_us(),
                      " ", event.progress().longest_wait_us()));
  }
  MutexLock lock(&mutex_);
  for (const int64_t id : event.returned().step_ids()) {
    const auto slot = slot_of_.find(id);
    if (slot != slot_of_.end()) {
      free_slots_.insert(slot->second);
      slot_of_.erase(slot);
    }
    unreturned_.erase(id);
  }
  // An event that repeats what is known changes nothing.
  if (event.has_start_epoch() && event.start_epoch().iterator() > iterator_) {
    epoch_ = event.start_epoch().epoch();
    iterator_ = event.start_epoch().iterator();
    index_ = 0;
    running_ = true;
  }
  if (event.has_end_iteration() && event.end_iteration().iterator() == iterator_) {
    running_ = false;
    // Steps that were sent and not taken are free again.
    for (auto it = unreturned_.begin(); it != unreturned_.end();) {
      const v1::Step& step = it->second;
      if (step.iterator() == iterator_ && step.index() >= event.end_iteration().taken()) {
        if (!step.idle()) free_slots_.insert(slot_of_[it->first]);
        slot_of_.erase(it->first);
        it = unreturned_.erase(it);
      } else {
        ++it;
      }
    }
  }
  if (event.has_close()) closed_ = true;
  changed_.NotifyAll();
}

std::optional<v1::TrainerUpdate> FakeSession::NextUpdate(bool* cut) {
  MutexLock lock(&mutex_);
  while (attached_ && !closed_) {
    if (!resend_.empty()) {
      v1::TrainerUpdate update = std::move(resend_.front());
      resend_.erase(resend_.begin());
      return update;
    }
    if (auto update = ProduceLocked(cut)) return update;
    if (*cut) return std::nullopt;
    changed_.Wait(&mutex_);
  }
  return std::nullopt;
}

std::optional<v1::TrainerUpdate> FakeSession::ProduceLocked(bool* cut) {
  if (!running_ || hung_ || failed_) return std::nullopt;
  v1::TrainerUpdate update;
  if (index_ == script_.hang_at) {
    hung_ = true;
    update.mutable_waiting()->set_text("round 1 waits for rank 3: pool starved (4.1 s)");
    return update;
  }
  if (index_ == script_.fail_at) {
    failed_ = true;
    update.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
    update.mutable_failure()->set_message("rank 2 (pid 17) died after step 3");
    return update;
  }
  if (index_ == script_.cut_at && !cut_done_) {
    cut_done_ = true;
    *cut = true;
    return std::nullopt;
  }
  if (index_ == script_.steps) {
    running_ = false;
    update.mutable_epoch_end()->set_epoch(epoch_);
    update.mutable_epoch_end()->set_iterator(iterator_);
    update.mutable_epoch_end()->set_steps(index_);
    return update;
  }
  const bool idle = script_.idle_every > 0 && (index_ + 1) % script_.idle_every == 0;
  if (!idle && free_slots_.empty()) return std::nullopt;
  *update.mutable_step() = MakeStepLocked(idle);
  return update;
}

v1::Step FakeSession::MakeStepLocked(bool idle) {
  v1::Step step;
  step.set_step_id(++last_step_id_);
  step.set_epoch(epoch_);
  step.set_iterator(iterator_);
  step.set_index(index_);
  step.set_round(1 + index_ / 2);
  step.set_idle(idle);
  if (idle) {
    FillTensors(&step, 0, 1, 2, /*first=*/7);
  } else {
    const int32_t slot = *free_slots_.begin();
    free_slots_.erase(free_slots_.begin());
    slot_of_[step.step_id()] = slot;
    FillTensors(&step, AlignUp(kStandInBytes + slot_bytes() * slot), script_.samples,
                script_.length, (epoch_ * 100 + index_) * 1000);
    for (int64_t i = 0; i < script_.samples; ++i) {
      step.add_sample_sources(1);
      step.add_sample_keys(index_ * script_.samples + i);
    }
  }
  if (index_ == script_.bad_at) step.mutable_tensors(0)->set_offset(uint64_t{1} << 40);
  CountLocked(&step);
  unreturned_[step.step_id()] = step;
  ++index_;
  return step;
}

void FakeSession::CountLocked(v1::Step* step) {
  const int64_t tokens = script_.samples * script_.length;
  if (!step->idle()) {
    step->mutable_local()->set_samples(script_.samples);
    step->mutable_local()->set_tokens(tokens);
    step->mutable_local()->set_padded_tokens(tokens);
    step->mutable_local()->set_loss_tokens(tokens - tokens / 2);
  }
  const auto scaled = [&](int64_t factor) {
    v1::Counts counts;
    counts.set_samples(script_.samples * factor);
    counts.set_tokens(tokens * factor);
    counts.set_padded_tokens(tokens * factor);
    counts.set_loss_tokens((tokens - tokens / 2) * factor);
    return counts;
  };
  *step->mutable_global() = scaled(script_.dp_size);
  *step->mutable_window_local() = scaled(script_.accumulation);
  *step->mutable_window_global() = scaled(script_.dp_size * script_.accumulation);
  step->set_window_steps(script_.accumulation);
  step->set_window_index(static_cast<int32_t>(step->index() % script_.accumulation));
  step->set_dp_size(script_.dp_size);
  step->set_loss_scale(step->idle() ? 0 : 1.0 / script_.accumulation);
  step->set_emitted_samples((step->index() + 1) * script_.samples * script_.dp_size);
  step->set_total_samples(script_.steps * script_.samples * script_.dp_size);
}

void FakeSession::FillTensors(v1::Step* step, uint64_t offset, int64_t samples, int64_t length,
                              int64_t first) {
  const int64_t n = samples * length;
  const std::vector<int64_t> shape = {samples, length};
  AddTensor(step, "input_ids", v1::DTYPE_INT64, shape, &offset, [&](char* data) {
    for (int64_t i = 0; i < n; ++i) reinterpret_cast<int64_t*>(data)[i] = first + i;
  });
  AddTensor(step, "labels", v1::DTYPE_INT64, shape, &offset, [&](char* data) {
    for (int64_t i = 0; i < n; ++i) {
      reinterpret_cast<int64_t*>(data)[i] = i < n / 2 ? -100 : first + i;
    }
  });
  AddTensor(step, "attention_mask", v1::DTYPE_INT64, shape, &offset, [&](char* data) {
    for (int64_t i = 0; i < n; ++i) reinterpret_cast<int64_t*>(data)[i] = 1;
  });
  if (!script_.all_dtypes || step->idle()) return;
  AddTensor(step, "int32", v1::DTYPE_INT32, {4}, &offset,
            [](char* data) { FillAlternating<int32_t>(data, 4, 0, 1); });
  AddTensor(step, "bool", v1::DTYPE_BOOL, {4}, &offset,
            [](char* data) { FillAlternating<uint8_t>(data, 4, 0, 1); });
  AddTensor(step, "uint8", v1::DTYPE_UINT8, {4}, &offset,
            [](char* data) { FillAlternating<uint8_t>(data, 4, 0, 1); });
  AddTensor(step, "float32", v1::DTYPE_FLOAT32, {2, 2}, &offset,
            [](char* data) { FillAlternating<float>(data, 4, 0, 1); });
  AddTensor(step, "float64", v1::DTYPE_FLOAT64, {4}, &offset,
            [](char* data) { FillAlternating<double>(data, 4, 0, 1); });
  AddTensor(step, "float16", v1::DTYPE_FLOAT16, {4}, &offset,
            [](char* data) { FillAlternating<uint16_t>(data, 4, 0, 0x3c00); });
  AddTensor(step, "bfloat16", v1::DTYPE_BFLOAT16, {4}, &offset,
            [](char* data) { FillAlternating<uint16_t>(data, 4, 0, 0x3f80); });
  AddTensor(step, "empty", v1::DTYPE_FLOAT32, {0, 3}, &offset, [](char*) {});
}

void FakeSession::AddTensor(v1::Step* step, const char* name, v1::DType dtype,
                            std::vector<int64_t> shape, uint64_t* offset,
                            const std::function<void(char*)>& fill) {
  static constexpr int kBytes[] = {0, 8, 4, 1, 1, 4, 8, 2, 2};  // by DType
  uint64_t bytes = kBytes[dtype];
  for (const int64_t size : shape) bytes *= size;
  v1::Tensor* tensor = step->add_tensors();
  tensor->set_name(name);
  tensor->set_dtype(dtype);
  *tensor->mutable_shape() = {shape.begin(), shape.end()};
  tensor->set_offset(*offset);
  tensor->set_bytes(bytes);
  INVARIANT(*offset + bytes <= region_.size(), "the fake arena is too small");
  fill(region_.data() + *offset);
  *offset = AlignUp(*offset + bytes);
}

}  // namespace odb
