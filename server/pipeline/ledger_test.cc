#include "server/pipeline/ledger.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

QuarantineEntry EntryAt(int64_t line) {
  QuarantineEntry entry;
  entry.file = "data.jsonl";
  entry.line = line;
  entry.reason = QuarantineReason::kInvalidJson;
  return entry;
}

TEST_CASE("Ledger: every snapshot adds up, whoever writes meanwhile", "[pipeline]") {
  Ledger ledger(Ledger::Options{/*num_records=*/1000, /*max_bad_share=*/1});
  std::vector<Thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back("writer", [&ledger, writer] {
      for (int i = 0; i < 1000; ++i) {
        ledger.Read(2);
        ledger.ReadBad(i, EntryAt(i));
        if ((i + writer) % 2 == 0) {
          ledger.Emit(2);
        } else {
          ledger.Abandon(2);
        }
      }
    });
  }

  bool always = true;
  for (int i = 0; i < 1000; ++i) {
    const v1::Ledger seen = ledger.Snapshot();
    always = always && seen.read() == seen.emitted() + seen.quarantined() + seen.in_flight() +
                                          seen.abandoned();
  }
  for (Thread& writer : writers) writer.Join();

  CHECK(always);
  CHECK(ledger.Snapshot().read() == 12000);
  CHECK(ledger.Snapshot().in_flight() == 0);
}

TEST_CASE("Ledger: a record is listed once, however many epochs read it", "[pipeline]") {
  Ledger ledger(Ledger::Options{/*num_records=*/20'000, /*max_bad_share=*/1});

  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int64_t i = 0; i < 10'500; ++i) ledger.ReadBad(i, EntryAt(i));
  }

  const v1::ListQuarantineReply list = ledger.ListQuarantine(20'000);
  CHECK(list.total() == 10'500);
  CHECK(list.items_size() == Ledger::kQuarantineKept);
  REQUIRE(list.by_reason_size() == 1);
  CHECK(list.by_reason(0).reason() == "invalid_json");
  CHECK(list.by_reason(0).count() == 10'500);
  CHECK(ledger.ListQuarantine(0).items_size() == 100);
  CHECK(ledger.Snapshot().quarantined() == 21'000);
}

TEST_CASE("Ledger: the share of bad records counts from 1000 on, or at an epoch's end",
          "[pipeline]") {
  Ledger ledger(Ledger::Options{/*num_records=*/2000, /*max_bad_share=*/0.05});
  for (int64_t i = 0; i < 60; ++i) ledger.ReadBad(i, EntryAt(i + 1));
  ledger.Read(939);

  CHECK(ledger.CheckBadShare(/*epoch_end=*/false).ok());  // 999 were read
  CHECK_THAT(ledger.CheckBadShare(/*epoch_end=*/true), HasCode(absl::StatusCode::kDataLoss));
  ledger.Read(1);
  const absl::Status status = ledger.CheckBadShare(/*epoch_end=*/false);
  CHECK_THAT(status, HasMessage("60 of 1000 records read are bad (6.0 %)"));
  CHECK_THAT(status, HasMessage("data.jsonl:5 "));
  CHECK_FALSE(HasMessage("data.jsonl:6 ").match(status));

  ledger.Read(200);  // 60 of 1200 is the share that is allowed
  CHECK(ledger.CheckBadShare(/*epoch_end=*/false).ok());
}

}  // namespace
}  // namespace odb
