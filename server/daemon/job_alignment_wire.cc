#include "server/daemon/job_alignment_wire.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/os/frame_socket.h"

namespace odb {
namespace {

constexpr int kArbiterNode = 0;
// What a frame holds, less what its message may need.
constexpr int64_t kTableBytesMax = int64_t{FrameSocket::kFrameBytesMax} - (int64_t{1} << 20);

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "";
  return name;
}

std::string DescribeRanks(const std::vector<Rank>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", ", [](std::string* out, Rank rank) {
                        absl::StrAppend(out, rank.value());
                      }));
}

int64_t ToMicroseconds(absl::Duration duration) {
  return duration == absl::InfiniteDuration() ? 0 : absl::ToInt64Microseconds(duration);
}

}  // namespace

absl::Status ValidateOptions(const JobAlignment::Options& options) {
  const auto invalid = [](absl::string_view name, const auto& got, absl::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrCat(name, " must be ", allowed, ", got ", got));
  };
  if (options.world_size < 1) return invalid("world_size", options.world_size, ">= 1");
  if (options.window_max < 1) return invalid("window_max", options.window_max, ">= 1");
  if (options.job_key.empty()) return invalid("job_key", "nothing", "given");
  if (options.aligner_path.empty()) return invalid("aligner_path", "nothing", "given");
  if (options.rendezvous.empty()) return invalid("rendezvous", "nothing", "given");
  if (options.heartbeat_interval <= absl::ZeroDuration()) {
    return invalid("heartbeat_interval", absl::FormatDuration(options.heartbeat_interval), "> 0");
  }
  if (options.exchange_timeout < 2 * options.heartbeat_interval) {
    return invalid("exchange_timeout", absl::FormatDuration(options.exchange_timeout),
                   ">= 2 x heartbeat_interval");
  }
  if (options.stall_timeout <= absl::ZeroDuration()) {
    return invalid("stall_timeout", absl::FormatDuration(options.stall_timeout), "> 0 or inf");
  }
  const double table_bytes =
      1.0 * options.world_size * static_cast<double>(OfferRecordBytes(options.window_max));
  if (table_bytes > kTableBytesMax) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a table of %d ranks with windows of %d samples has %.0f bytes, more than the limit of %d",
        options.world_size, options.window_max, table_bytes, kTableBytesMax));
  }
  return absl::OkStatus();
}

v1::AlignerSetup MakeSetup(const JobAlignment::Options& options) {
  v1::AlignerSetup setup;
  setup.set_world_size(options.world_size);
  setup.set_window_max(options.window_max);
  setup.set_heartbeat_interval_us(ToMicroseconds(options.heartbeat_interval));
  setup.set_exchange_timeout_us(ToMicroseconds(options.exchange_timeout));
  setup.set_stall_timeout_us(ToMicroseconds(options.stall_timeout));
  setup.set_rendezvous(options.rendezvous);
  setup.set_job_token(options.job_token);
  setup.set_job_key(options.job_key);
  setup.set_interface(options.interface);
  setup.set_config_digest(options.config_digest);
  setup.set_multi_node(options.multi_node);
  setup.set_topology(options.topology);
  return setup;
}

v1::NodeHello MakeHello(const JobAlignment::Options& options, const RecordCodec& codec) {
  v1::NodeHello hello;
  hello.set_wire_version(kWireVersion);
  hello.set_job_key(options.job_key);
  hello.set_job_token(options.job_token);
  hello.set_node(options.node);
  hello.set_world_size(options.world_size);
  hello.set_host(HostName());
  const auto add = [&hello](const std::string& key, const std::string& value) {
    v1::Digest* const digest = hello.add_digests();
    digest->set_key(key);
    digest->set_value(value);
  };
  add("record_bytes", absl::StrCat(codec.sizes().offer));
  add("topology", options.topology);
  for (const auto& [key, value] : options.digests) add(key, value);
  return hello;
}

v1::NodeEvent MakeGenerationFailed(Generation generation, const std::string& reason,
                                   std::optional<Rank> suspect, RoundId last_completed,
                                   bool connected) {
  v1::NodeEvent event;
  v1::GenerationFailed* const failed = event.mutable_failed();
  failed->set_generation(generation.value());
  failed->set_reason(reason);
  failed->set_suspect(suspect.has_value() ? static_cast<int32_t>(suspect->value()) : -1);
  failed->set_last_completed_round(last_completed.value());
  failed->set_connected(connected);
  return event;
}

JobAlignment::Ending ToEnding(const v1::IterationEnding& told) {
  JobAlignment::Ending ending;
  ending.iterator = told.iterator();
  ending.steps = told.steps();
  for (const int32_t rank : told.behind()) ending.behind.push_back(Rank(rank));
  return ending;
}

absl::Status AsJobError(const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::AbortedError(status.message());
}

std::string DescribeMissing(const std::vector<Rank>& missing, absl::Duration waited) {
  return absl::StrFormat("waiting for %s to attach (%.1f s)", DescribeRanks(missing),
                         absl::ToDoubleSeconds(waited));
}

absl::Status NameArbiterNode(const absl::Status& status, const std::vector<int>& node_of_rank) {
  std::vector<Rank> ranks;
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    if (node_of_rank[rank] == kArbiterNode) ranks.push_back(Rank(static_cast<int64_t>(rank)));
  }
  if (ranks.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("node ", kArbiterNode, " with ", DescribeRanks(ranks),
                                   " is gone: ", status.message()));
}

}  // namespace odb
