#include "aligner/daemon/odbd_line.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "aligner/transport/in_memory_transport.h"
#include "base/clock.h"
#include "base/os/frame_socket.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kWindowMax = 4;

absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

RecordSizes Sizes() {
  const WireRecordSizes sizes = RecordCodec(kWindowMax).sizes();
  return {sizes.resync, sizes.offer, sizes.confirm};
}

// An aligner of a world of one rank, and odbd's end of its connection.
struct Fixture {
  Fixture() : Fixture(CreateSocketPair().value()) {}
  explicit Fixture(SocketPair pair)
      : network(1, Sizes()),
        odbd(std::move(pair.first)),
        line(OdbdLine::Start(std::move(pair.second)).value()),
        driver(
            line.get(),
            [this](const v1::AlignerSetup&, const RecordSizes&) {
              return network.CreateTransport(Rank(0));
            },
            &clock) {
    line->Open(&driver);
    thread = Thread("driver", [this] {
      run = driver.Run();
      line->Close();
    });
  }
  ~Fixture() {
    odbd.reset();
    thread.Join();
  }

  void Say(const v1::AlignerCommand& command, const std::string& body = "") {
    REQUIRE(odbd->SendAll(command.SerializeAsString(), body, InAMinute()) == absl::OkStatus());
  }
  // The next event that is not a report of waiting, with its table in place.
  v1::AlignerEvent Next() {
    v1::AlignerEvent event;
    while (true) {
      const auto frame = odbd->Next();
      REQUIRE(frame.ok());
      if (frame->has_value()) {
        REQUIRE(event.ParseFromString(std::string((*frame)->message)));
        if (event.has_waiting()) continue;
        if (event.has_gathered()) {
          event.mutable_gathered()->set_table(std::string((*frame)->body));
        }
        return event;
      }
      REQUIRE(WaitReadable(odbd->fd(), InAMinute()) == absl::OkStatus());
      REQUIRE(odbd->Fill() == absl::OkStatus());
    }
  }
  void SayOffer(int64_t round) {
    Offer offer;
    offer.header.round = RoundId(round);
    offer.header.state = OfferState::kReady;
    offer.window.resize(1);
    offer.window[0].length = 5;
    v1::AlignerCommand command;
    command.mutable_offer();
    Say(command, RecordCodec(kWindowMax).EncodeOffer(offer));
  }
  void Open() {
    v1::AlignerCommand setup;
    setup.mutable_setup()->set_world_size(1);
    setup.mutable_setup()->set_window_max(kWindowMax);
    setup.mutable_setup()->set_heartbeat_interval_us(20'000);
    setup.mutable_setup()->set_exchange_timeout_us(30'000'000);
    Say(setup);
    v1::AlignerCommand open;
    open.mutable_open_generation()->set_generation(1);
    Say(open);
    REQUIRE(Next().mesh_ready().generation() == 1);
  }

  InMemoryNetwork network;
  std::optional<FrameSocket> odbd;
  RealClock clock;
  std::unique_ptr<OdbdLine> line;
  AlignmentDriver driver;
  absl::Status run;
  Thread thread;
};

TEST_CASE("OdbdLine: rounds go over the line", "[aligner][line]") {
  Fixture fixture;
  fixture.Open();
  for (int64_t round = 1; round <= 20; ++round) {
    fixture.SayOffer(round);
    const v1::AlignerEvent gathered = fixture.Next();
    REQUIRE(gathered.gathered().round() == round);
    REQUIRE(gathered.gathered().table().size() == Sizes().offer);
    v1::AlignerCommand planned;
    planned.mutable_planned()->set_round(round);
    planned.mutable_planned()->set_generation(1);
    planned.mutable_planned()->set_plan_digest(0xd1);
    fixture.Say(planned);
    REQUIRE(fixture.Next().released().round() == round);
  }
}

TEST_CASE("OdbdLine: a quit ends the driver in peace", "[aligner][line]") {
  Fixture fixture;
  fixture.Open();
  v1::AlignerCommand quit;
  quit.mutable_quit()->set_reason("it is over");
  fixture.Say(quit);
  fixture.thread.Join();
  CHECK(fixture.run == absl::OkStatus());
  CHECK(fixture.line->end() == absl::OkStatus());
}

TEST_CASE("OdbdLine: the end of odbd is seen, in an exchange as well", "[aligner][line]") {
  Fixture fixture;
  fixture.Open();
  const bool exchanging = GENERATE(true, false);
  if (exchanging) {
    fixture.network.FreezeRank(Rank(0));
    fixture.SayOffer(1);
  }
  fixture.odbd.reset();
  fixture.thread.Join();
  CHECK_THAT(fixture.line->end(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_CASE("OdbdLine: what is no command ends the line in one sentence", "[aligner][line]") {
  Fixture fixture;
  SECTION("no frame") {
    REQUIRE(WriteAll(fixture.odbd->fd(), "PRI * HTTP/2.0", InAMinute()) == absl::OkStatus());
    fixture.thread.Join();
    CHECK_THAT(fixture.line->end(), HasMessage("do not begin a frame"));
  }
  SECTION("no command") {
    REQUIRE(fixture.odbd->Send("\xff\xff", "").value());
    fixture.thread.Join();
    CHECK_THAT(fixture.line->end(), HasMessage("it sent 2 bytes that are no command"));
  }
}

TEST_CASE("OdbdLine: a number that is no socket is refused", "[aligner][line]") {
  CHECK(!OdbdLine::Start(FileDescriptor(CreatePipe().value().read.Release())).ok());
}

}  // namespace
}  // namespace odb
