#include "server/metrics/metric_families.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace odb {
namespace {

v1::Status ExampleStatus() {
  v1::Status status;
  status.set_version("1.2.3");
  status.set_state("running");
  status.set_limiter("trainer");
  status.set_records(1000);
  status.mutable_pool()->set_threads(4);
  status.mutable_pool()->set_busy(1);
  status.mutable_memory()->set_limit(1 << 30);
  status.mutable_memory()->set_arenas(4096);
  v1::Ledger* const ledger = status.mutable_ledger();
  ledger->set_read(700);
  ledger->set_emitted(600);
  ledger->set_quarantined(20);
  ledger->set_in_flight(80);
  v1::StreamStatus* const eval = status.add_streams();
  eval->set_name("eval");
  eval->set_records(50);
  eval->mutable_ledger()->set_read(100);
  eval->mutable_ledger()->set_emitted(100);
  v1::JobStatus* const job = status.add_jobs();
  job->set_job(7);
  job->set_stream("train");
  job->set_state("running");
  job->set_steps(40);
  job->set_fill(0.875);
  v1::RankStatus* const rank = job->add_ranks();
  rank->set_rank(3);
  rank->set_steps(20);
  rank->set_trainer_waited_us(1'500'000);
  return status;
}

bool Has(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("MetricFamilies: what the status says, with stream, job and rank as labels",
          "[metrics]") {
  const std::string text = prometheus::TextSerializer().Serialize(MetricFamilies(ExampleStatus()));

  CHECK(Has(text, "odbd_info{version=\"1.2.3\"} 1"));
  CHECK(Has(text, "odbd_state{state=\"running\"} 1"));
  CHECK(Has(text, "odbd_state{state=\"draining\"} 0"));
  CHECK(Has(text, "odbd_limiter{stage=\"trainer\"} 1"));
  CHECK(Has(text, "odbd_limiter{stage=\"nothing\"} 0"));
  CHECK(Has(text, "odbd_pool_busy_threads 1"));
  CHECK(Has(text, "odbd_memory_limit_bytes 1073741824"));
  CHECK(Has(text, "odbd_memory_used_bytes{stage=\"arenas\"} 4096"));
  CHECK(Has(text, "# TYPE odbd_samples_read_total counter"));
  CHECK(Has(text, "odbd_samples_read_total{stream=\"train\"} 600"));
  CHECK(Has(text, "odbd_samples_read_total{stream=\"eval\"} 100"));
  CHECK(Has(text, "odbd_samples_quarantined_total{stream=\"train\"} 20"));
  CHECK(Has(text, "odbd_samples_in_flight{stream=\"train\"} 80"));
  CHECK(Has(text, "odbd_job_steps_total{job=\"7\",stream=\"train\"} 40"));
  CHECK(Has(text, "odbd_job_fill_ratio{job=\"7\",stream=\"train\"} 0.875"));
  CHECK(Has(text, "odbd_rank_steps_total{job=\"7\",stream=\"train\",rank=\"3\"} 20"));
  CHECK(Has(text, "odbd_rank_trainer_waited_seconds{job=\"7\",stream=\"train\",rank=\"3\"} 1.5"));
}

TEST_CASE("MetricFamilies: each name once, counters end in _total, and each has a sentence",
          "[metrics]") {
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : MetricFamilies(ExampleStatus())) {
    INFO(family.name);
    CHECK(names.insert(family.name).second);
    const bool is_total =
        family.name.size() > 6 && family.name.substr(family.name.size() - 6) == "_total";
    CHECK(is_total == (family.type == prometheus::MetricType::Counter));
    CHECK(family.help.back() == '.');
    CHECK_FALSE(family.metric.empty());
  }
}

TEST_CASE("MetricFamilies: a daemon that has not read its data yet has neither samples nor jobs",
          "[metrics]") {
  v1::Status status;
  status.set_state("starting");
  const std::string text = prometheus::TextSerializer().Serialize(MetricFamilies(status));
  CHECK(Has(text, "odbd_state{state=\"starting\"} 1"));
  CHECK(Has(text, "odbd_limiter{stage=\"nothing\"} 1"));
  CHECK(text.find("samples") == std::string::npos);
}

}  // namespace
}  // namespace odb
