#include "server/metrics/limiter.h"

#include <catch2/catch.hpp>

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

TEST_CASE("NameLimiter: a trainer that waits is held up by what its round waits for", "[limiter]") {
  v1::Status status = Running("waiting");
  CHECK(NameLimiter(status).stage == "pool");
  CHECK(NameLimiter(status).text == "pool starved: 3 of 4 threads busy");

  status.mutable_jobs(0)->set_waiting("round 8 waits for rank 3: pool starved (4.1 s)");
  CHECK(NameLimiter(status).stage == "pool");

  status.mutable_jobs(0)->set_waiting("round 8 waits for rank 3: arena full (4.1 s)");
  CHECK(NameLimiter(status).stage == "rounds");
  CHECK(NameLimiter(status).text == "round 8 waits for rank 3: arena full (4.1 s)");

  status.mutable_jobs(0)->clear_waiting();
  status.mutable_jobs(0)->mutable_ranks(0)->set_planned_steps(5);
  CHECK(NameLimiter(status).stage == "assembler");
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
