// A trainer that only reads: the C++ consumer of the loader benchmark (loader.py).
//
//   loader_consumer EPOCHS     attaches as the environment says; the last epoch is measured
//
// Prints `begin` when the measured epoch begins, and one line of JSON when it is over.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/odb_client.h"

namespace odb {
namespace {

double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Touches one word of every cache line, so that each line crosses from memory once.
int64_t ReadEveryLine(const TensorView& tensor) {
  constexpr int64_t kWordsPerLine = 8;
  const auto* words = reinterpret_cast<const int64_t*>(tensor.data);
  const int64_t count = tensor.bytes / static_cast<int64_t>(sizeof(int64_t));
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i += kWordsPerLine) sum += words[i];
  return sum;
}

struct Measured {
  double begin = 0;
  double end = 0;
  double first = 0;       // when the first step was there
  double loader_cpu = 0;  // of this thread, within Next() and the step's return
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t padded = 0;
  int64_t bytes = 0;
  int64_t idle = 0;
  int64_t checksum = 0;
  std::vector<double> waits;
};

absl::StatusOr<Measured> RunEpoch(Client* client, int64_t epoch) {
  Measured measured;
  measured.begin = Seconds(CLOCK_MONOTONIC);
  RETURN_IF_ERROR(client->StartEpoch(epoch));
  StepHandle step;
  while (true) {
    const double wall = Seconds(CLOCK_MONOTONIC);
    const double cpu = Seconds(CLOCK_THREAD_CPUTIME_ID);
    step.reset();
    ASSIGN_OR_RETURN(step, client->Next(absl::Now() + absl::Minutes(2)));
    measured.loader_cpu += Seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (step == nullptr) break;
    const double now = Seconds(CLOCK_MONOTONIC);
    measured.waits.push_back(now - wall);
    if (measured.waits.size() == 1) measured.first = now;
    for (int i = 0; i < step->num_tensors(); ++i) {
      const TensorView tensor = step->tensor(i);
      measured.checksum += ReadEveryLine(tensor);
      if (!step->idle()) measured.bytes += tensor.bytes;
    }
    measured.idle += step->idle();
    measured.samples += step->message().local().samples();
    measured.tokens += step->message().local().tokens();
    measured.padded += step->message().local().padded_tokens();
  }
  measured.end = Seconds(CLOCK_MONOTONIC);
  return measured;
}

std::string ToJson(const Measured& m) {
  const auto to_text = [](std::string* out, double wait) {
    absl::StrAppendFormat(out, "%.7f", wait);
  };
  return absl::StrFormat(
      R"({"begin": %.6f, "end": %.6f, "first": %.6f, "loader_cpu": %.6f, "samples": %d, "tokens": %d, )"
      R"("padded": %d, "bytes": %d, "idle": %d, "checksum": %d, "waits": [%s]})",
      m.begin, m.end, m.first, m.loader_cpu, m.samples, m.tokens, m.padded, m.bytes, m.idle,
      m.checksum, absl::StrJoin(m.waits, ", ", to_text));
}

absl::Status Run(int64_t epochs) {
  ASSIGN_OR_RETURN(ClientOptions options, ClientOptions::FromEnvironment());
  options.connect_timeout = absl::Seconds(60);
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(options));
  double first = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const bool last = epoch + 1 == epochs;
    if (last) {
      std::puts("begin");
      std::fflush(stdout);
    }
    ASSIGN_OR_RETURN(Measured measured, RunEpoch(client.get(), epoch));
    if (epoch == 0) first = measured.first;
    measured.first = first;
    if (last) std::puts(ToJson(measured).c_str());
  }
  return client->Close();
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  int64_t epochs = 0;
  if (argc != 2 || !absl::SimpleAtoi(argv[1], &epochs) || epochs < 1) {
    std::fprintf(stderr, "usage: loader_consumer EPOCHS\n");
    return 64;
  }
  const absl::Status status = odb::Run(epochs);
  if (status.ok()) return 0;
  std::fprintf(stderr, "loader_consumer: %s\n", status.ToString().c_str());
  return 1;
}
