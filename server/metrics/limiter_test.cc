#include "server/metrics/limiter.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

// One running job with one rank in `state`.
v1::Status Running(const std::string& state) {
  v1::Status status;
  status.set_state("running");
  status.mutable_pool()->set_threads(4);
  status.mutable_pool()->set_busy(3);
  v1::JobStatus* job = status.add_jobs();
  job->set_state("running");
  v1::RankStatus* rank = job->add_ranks();
  rank->set_rank(2);
  rank->set_state(state);
  return status;
}

TEST_CASE("NameLimiter: without a job nothing limits", "[limiter]") {
  v1::Status status;
  CHECK(NameLimiter(status).stage == "nothing");
  status.set_state("starting");
  CHECK(NameLimiter(status).text == "reading data and tokenizer");
  status.set_state("accepting");
  status.add_jobs()->set_state("ended");
  CHECK(NameLimiter(status).text == "no job is running");
}

TEST_CASE("NameLimiter: a trainer that holds all its steps limits", "[limiter]") {
  v1::Status status = Running("backpressured (trainer)");
  status.mutable_jobs(0)->mutable_ranks(0)->set_text("6 of 6 steps held by the trainer: 41-46");
  CHECK(NameLimiter(status).stage == "trainer");
  CHECK(NameLimiter(status).text == "rank 2: 6 of 6 steps held by the trainer: 41-46");
}

TEST_CASE("NameLimiter: a trainer that has not taken what is ready limits, in numbers",
          "[limiter]") {
  v1::Status status = Running("backpressured (trainer)");
  status.mutable_jobs(0)->mutable_ranks(0)->set_held_steps(1);
  status.mutable_jobs(0)->mutable_ranks(0)->set_ready_steps(7);
  CHECK(NameLimiter(status).text == "rank 2: 1 steps held by the trainer, 7 more ready");
}

// The round of the job waits for `rank`.
v1::Status Held(v1::Status status, int rank, const std::string& reason) {
  v1::JobStatus* const job = status.mutable_jobs(0);
  job->clear_waits();
  job->set_waiting(absl::StrCat("round 8 waits for rank ", rank, ": ", reason));
  job->add_waits()->set_rank(rank);
  job->mutable_waits(0)->set_reason(reason);
  return status;
}

TEST_CASE("NameLimiter: a trainer that waits is held up by what its round waits for", "[limiter]") {
  v1::Status status = Running("waiting");
  CHECK(NameLimiter(status).stage == "pool");
  CHECK(NameLimiter(status).text == "rank 2: pool starved, 3 of 4 threads busy");

  // Of this node, and of another.
  Limiter limiter = NameLimiter(Held(status, 2, "pool starved (4.1 s)"));
  CHECK(limiter.stage == "pool");
  CHECK(limiter.text == "round 8 waits for rank 2: pool starved (4.1 s); 3 of 4 threads busy");
  limiter = NameLimiter(Held(status, 3, "pool starved (4.1 s)"));
  CHECK(limiter.stage == "pool");
  CHECK(limiter.text == "round 8 waits for rank 3: pool starved (4.1 s)");

  limiter = NameLimiter(Held(status, 3, "arena full (4.1 s)"));
  CHECK(limiter.stage == "rounds");
  CHECK(limiter.text == "round 8 waits for rank 3: arena full (4.1 s)");

  limiter = NameLimiter(Held(status, 3, "epoch not begun by the trainer (4.1 s)"));
  CHECK(limiter.stage == "trainer");
  CHECK(limiter.text == "round 8 waits for rank 3: epoch not begun by the trainer (4.1 s)");

  status.mutable_jobs(0)->mutable_ranks(0)->set_planned_steps(5);
  CHECK(NameLimiter(status).stage == "assembler");
}

TEST_CASE("NameLimiter: a round that waits limits before a trainer does", "[limiter]") {
  const v1::Status status = Held(Running("running"), 3, "pool starved (4.1 s)");
  CHECK(NameLimiter(status).stage == "pool");
  CHECK(NameLimiter(status).text == "round 8 waits for rank 3: pool starved (4.1 s)");
}

TEST_CASE("NameLimiter: an epoch that is planned to its end is held up by nothing", "[limiter]") {
  v1::Status status = Running("running");
  status.mutable_jobs(0)->set_epoch_samples_total(299);
  status.mutable_jobs(0)->set_epoch_samples_emitted(299);
  CHECK(NameLimiter(status).stage == "nothing");
  CHECK(NameLimiter(status).text == "the epoch is planned to its end, its last steps are taken");
}

TEST_CASE("NameLimiter: a daemon that reads its data says how far it is", "[limiter]") {
  v1::Status status;
  status.set_state("starting");
  v1::Indexing* const indexing = status.mutable_indexing();
  indexing->set_bytes_done(3'100'000'000);
  indexing->set_bytes_total(12'000'000'000);
  indexing->set_records(5'000'123);
  CHECK(NameLimiter(status).text == "indexing 3.1 of 12.0 GB, 5000123 records so far");
  indexing->set_bytes_done(0);
  indexing->set_bytes_total(1'500'000);
  indexing->set_records(0);
  CHECK(NameLimiter(status).text == "indexing 0.0 of 1.5 MB, 0 records so far");
}

TEST_CASE("NameLimiter: steps that lie ready mean that nothing limits", "[limiter]") {
  CHECK(NameLimiter(Running("running")).stage == "nothing");
}

TEST_CASE("NameLimiter: a job that waits for its trainers says for whom", "[limiter]") {
  v1::Status status = Running("waiting");
  status.mutable_jobs(0)->set_state("attaching");
  status.mutable_jobs(0)->set_waiting("waiting for ranks 2, 3 to attach (12.0 s)");
  CHECK(NameLimiter(status).stage == "trainer");
  CHECK(NameLimiter(status).text == "waiting for ranks 2, 3 to attach (12.0 s)");
}

}  // namespace
}  // namespace odb
