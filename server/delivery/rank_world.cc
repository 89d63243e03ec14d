#include "server/delivery/rank_world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/os/thread.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "server/preprocess/byte_tokenizer.h"
#include "server/preprocess/conversation_transform.h"

namespace odb {

FakeTrainer::FakeTrainer(RankRuntime* runtime, int32_t replica)
    : runtime_(runtime), replica_(replica) {
  auto arena = MappedRegion::Map(runtime->arena_fd(), static_cast<size_t>(runtime->arena_bytes()),
                                 MappedRegion::Access::kReadOnly);
  INVARIANT(arena.ok(), "the arena cannot be mapped");
  arena_ = *std::move(arena);
}

absl::Status FakeTrainer::Start(Epoch epoch) {
  ++iterator_;
  taken_ = 0;
  v1::TrainerEvent event;
  event.mutable_start_epoch()->set_epoch(epoch.value());
  event.mutable_start_epoch()->set_iterator(iterator_);
  return runtime_->OnEvent(replica_, event);
}

absl::Status FakeTrainer::ReportProgress(bool waiting) {
  v1::TrainerEvent event;
  event.mutable_progress()->set_iterator(iterator_);
  event.mutable_progress()->set_taken(taken_);
  event.mutable_progress()->set_waiting(waiting);
  return runtime_->OnEvent(replica_, event);
}

absl::StatusOr<v1::TrainerUpdate> FakeTrainer::Receive() {
  const absl::Time deadline = absl::Now() + patience;
  while (true) {
    ASSIGN_OR_RETURN(v1::TrainerUpdate update, runtime_->NextUpdate(replica_, deadline));
    if (update.has_waiting()) {
      waits.push_back(update.waiting().text());
      if (absl::Now() >= deadline) return absl::DeadlineExceededError(waits.back());
      continue;
    }
    if (update.has_failure()) {
      return absl::Status(static_cast<absl::StatusCode>(update.failure().code()),
                          update.failure().message());
    }
    return update;
  }
}

absl::StatusOr<std::optional<v1::Step>> FakeTrainer::Next() {
  absl::StatusOr<v1::TrainerUpdate> update = runtime_->NextUpdate(replica_, absl::InfinitePast());
  const bool blocked = absl::IsDeadlineExceeded(update.status());
  if (blocked || (update.ok() && !update->has_step() && !update->has_epoch_end())) {
    RETURN_IF_ERROR(ReportProgress(/*waiting=*/true));
    if (!blocked && update->has_failure()) {
      return absl::Status(static_cast<absl::StatusCode>(update->failure().code()),
                          update->failure().message());
    }
    update = Receive();
  }
  RETURN_IF_ERROR(update.status());
  if (update->has_epoch_end()) {
    ends.push_back(update->epoch_end());
    RETURN_IF_ERROR(ReportProgress(/*waiting=*/false));
    return std::optional<v1::Step>();
  }
  if (!update->has_step()) return absl::InternalError(update->ShortDebugString());
  v1::Step step = update->step();
  if (step.index() != taken_ || step.iterator() != iterator_) {
    return absl::InternalError(absl::StrCat("expected step ", taken_, " of ", iterator_, ", got ",
                                            step.ShortDebugString()));
  }
  ++taken_;
  if (blocked) RETURN_IF_ERROR(ReportProgress(/*waiting=*/false));
  digests.push_back(Digest(step));
  steps.push_back(step);
  held_.push_back(step.step_id());
  while (static_cast<int32_t>(held_.size()) > hold) RETURN_IF_ERROR(Return(held_.front()));
  return std::optional<v1::Step>(std::move(step));
}

absl::Status FakeTrainer::Leave() {
  v1::TrainerEvent event;
  event.mutable_end_iteration()->set_iterator(iterator_);
  event.mutable_end_iteration()->set_taken(taken_);
  RETURN_IF_ERROR(runtime_->OnEvent(replica_, event));
  RETURN_IF_ERROR(ReturnAll());
  ASSIGN_OR_RETURN(const v1::TrainerUpdate update, Receive());
  if (update.has_abandoned()) {
    abandoned.push_back(update.abandoned());
  } else if (update.has_epoch_end()) {
    ends.push_back(update.epoch_end());
  } else {
    return absl::InternalError(absl::StrCat("after leaving: ", update.ShortDebugString()));
  }
  return absl::OkStatus();
}

absl::Status FakeTrainer::Close() {
  RETURN_IF_ERROR(ReturnAll());
  v1::TrainerEvent event;
  event.mutable_close()->set_taken(taken_);
  return runtime_->OnEvent(replica_, event);
}

absl::Status FakeTrainer::Return(int64_t step_id) {
  held_.erase(std::remove(held_.begin(), held_.end(), step_id), held_.end());
  v1::TrainerEvent event;
  event.mutable_returned()->add_step_ids(step_id);
  return runtime_->OnEvent(replica_, event);
}

absl::Status FakeTrainer::ReturnAll() {
  while (!held_.empty()) RETURN_IF_ERROR(Return(held_.front()));
  return absl::OkStatus();
}

absl::Status FakeTrainer::RunEpoch(Epoch epoch, int64_t steps_max) {
  RETURN_IF_ERROR(Start(epoch));
  while (taken_ < steps_max) {
    ASSIGN_OR_RETURN(const std::optional<v1::Step> step, Next());
    if (!step.has_value()) return ReturnAll();
  }
  return Leave();
}

uint64_t FakeTrainer::Digest(const v1::Step& step) const {
  v1::Step content = step;
  content.set_step_id(0);
  content.set_round(0);
  uint64_t digest = 0;
  for (v1::Tensor& tensor : *content.mutable_tensors()) {
    digest = HashCombine(
        digest, Hash64(absl::string_view(arena_.data() + tensor.offset(), tensor.bytes())));
    tensor.set_offset(0);
  }
  return HashCombine(digest, Hash64(content.SerializeAsString()));
}

std::vector<int64_t> FakeTrainer::TensorRow(const v1::Step& step, int32_t tensor,
                                            int64_t row) const {
  const v1::Tensor& shape = step.tensors(tensor);
  const auto* values = reinterpret_cast<const int64_t*>(arena_.data() + shape.offset());
  return {values + row * shape.shape(1), values + (row + 1) * shape.shape(1)};
}

RankWorld::RankWorld(const Options& options) : options_(options) {
  WriteFiles(options);
  DatasetOptions dataset_options;
  dataset_options.allow_empty_sources = true;
  auto dataset = Dataset::Open(paths_, dataset_options);
  INVARIANT(dataset.ok(), "the test's files cannot be read");
  dataset_ = *std::move(dataset);
  tokenizer_ = MakeByteTokenizer();
  auto transform = MakeConversationTransform(TransformOptions(), tokenizer_.get());
  INVARIANT(transform.ok(), "no transform");
  transform_ = *std::move(transform);
  pool_ = std::make_unique<PreprocessPool>(PreprocessPool::Options{options.pool_threads},
                                           dataset_.get(), transform_.get());
  EpochViews::Options views;
  views.seed = options.rank.seed;
  views.world_size = options.ranks;
  for (int32_t rank = 0; options.bind_files && rank < options.ranks; ++rank) {
    views.sources_of_rank.push_back({rank});
  }
  auto made_views = EpochViews::Create(views, *dataset_);
  INVARIANT(made_views.ok(), "the views are out of range");
  views_ = *std::move(made_views);
  ledger_ = std::make_unique<Ledger>(Ledger::Options{dataset_->size(), options.max_bad_share});
  CoverageTracker::Options coverage;
  coverage.num_records = dataset_->size();
  coverage.num_ranks = options.ranks;
  coverage.budget = options.rank.plan.budget;
  coverage_ = std::make_unique<CoverageTracker>(coverage);
  mesh_ = std::make_unique<LocalMesh>(options.ranks);
  pool_->Start();

  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    RankRuntime::Options rank_options = options.rank;
    rank_options.rank = Rank(rank);
    rank_options.tensors.pad_token_id = tokenizer_->pad_token_id();
    RankRuntime::Dependencies deps;
    deps.dataset = dataset_.get();
    deps.transform = transform_.get();
    deps.pool = pool_.get();
    deps.views = views_.get();
    deps.exchange = mesh_->exchange(Rank(rank));
    deps.windows = &windows_;
    deps.plans = &plans_;
    if (!options.node_of_rank.empty()) {
      deps.node_of_rank = [this] { return options_.node_of_rank; };
    }
    deps.ledger = ledger_.get();
    deps.coverage = coverage_.get();
    deps.sample_memory = options.sample_memory;
    deps.arena_memory = options.arena_memory;
    auto runtime = RankRuntime::Create(rank_options, deps);
    create_status_ = runtime.status();
    if (!runtime.ok()) return;
    runtimes_.push_back(*std::move(runtime));
    runtimes_.back()->Start();
    for (int32_t replica = 0; replica < options.rank.replicas; ++replica) {
      trainers_.push_back(std::make_unique<FakeTrainer>(runtimes_.back().get(), replica));
    }
  }
}

RankWorld::~RankWorld() {
  Stop();
  for (const std::string& path : paths_) ::unlink(path.c_str());
  ::rmdir(folder_.c_str());
}

void RankWorld::Stop() {
  for (const auto& runtime : runtimes_) runtime->Stop();
}

void RankWorld::WriteFiles(const Options& options) {
  const char* const base = std::getenv("TEST_TMPDIR");
  folder_ = absl::StrCat(base == nullptr ? "/tmp" : base, "/rank_world_XXXXXX");
  INVARIANT(::mkdtemp(folder_.data()) != nullptr, "no temporary folder");
  for (size_t file = 0; file < options.files.size(); ++file) {
    paths_.push_back(absl::StrCat(folder_, "/data", file, ".jsonl"));
    std::ofstream out(paths_.back());
    for (size_t i = 0; i < options.files[file].size(); ++i) {
      const std::string answer(static_cast<size_t>(options.files[file][i]),
                               static_cast<char>('a' + i % 26));
      out << "{\"instruction\": \"" << i << "\", \"output\": \"" << answer << "\"}\n";
    }
    if (file != 0) continue;
    for (const std::string& line : options.bad_lines) out << line << "\n";
  }
}

std::vector<absl::Status> RankWorld::Run(
    const std::function<absl::Status(FakeTrainer*, Rank)>& body) {
  std::vector<absl::Status> results(trainers_.size());
  std::vector<Thread> threads;
  for (size_t i = 0; i < trainers_.size(); ++i) {
    threads.emplace_back("trainer", [&, i] {
      const auto rank = static_cast<int64_t>(i) / options_.rank.replicas;
      results[i] = body(trainers_[i].get(), Rank(rank));
    });
  }
  for (Thread& thread : threads) thread.Join();
  return results;
}

RankWorld::Options SmallWorld(int32_t ranks) {
  RankWorld::Options options;
  options.ranks = ranks;
  options.files = {SkewedLengths(300, 1, 400, /*seed=*/7)};
  options.rank.plan.budget = 2048;
  options.rank.plan.max_steps = 8;
  options.rank.window = 32;
  options.rank.prefetch_steps = 4;
  options.rank.sample_tokens_max = 2048;
  return options;
}

std::vector<int32_t> SkewedLengths(int64_t count, int32_t shortest, int32_t longest,
                                   uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    // The smallest of three: a tail of long ones.
    uint64_t length = UINT64_MAX;
    for (int draw = 0; draw < 3; ++draw) {
      length = std::min(length, random.Below(static_cast<uint64_t>(longest - shortest + 1)));
    }
    lengths.push_back(shortest + static_cast<int32_t>(length));
  }
  return lengths;
}

}  // namespace odb
