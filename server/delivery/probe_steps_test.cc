#include "server/delivery/probe_steps.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/os/temp_directory.h"

namespace odb {
namespace {

using Shapes = std::vector<std::pair<int64_t, int64_t>>;  // rows, length

Shapes LargestOf(const PlanOptions& plan, int64_t longest, int64_t samples_max = 1 << 20) {
  Shapes shapes;
  for (const StepShape& shape : LargestShapes(plan, longest, samples_max)) {
    shapes.emplace_back(shape.rows, shape.length);
  }
  return shapes;
}

PlanOptions Plan(int64_t budget) {
  PlanOptions plan;
  plan.budget = budget;
  return plan;
}

template <typename T>
T ValueOf(const v1::ProbeTensor& tensor) {
  T value{};
  REQUIRE(tensor.element().size() == sizeof(T));
  std::memcpy(&value, tensor.element().data(), sizeof(T));
  return value;
}

std::vector<int64_t> ShapeOf(const v1::ProbeTensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

TEST_CASE("LargestShapes: the budget with its longest rows, and with the most", "[delivery]") {
  PlanOptions plan = Plan(8192);
  // Two rows of 4 096 are more than one of 5 000; 512 samples of 16 fill the budget too.
  CHECK(LargestOf(plan, 5000, 512) == Shapes{{2, 4096}, {512, 16}, {1, 5000}});
  CHECK(LargestOf(plan, 8192, 512) == Shapes{{1, 8192}, {512, 16}});
  // 8 192 / 82 = 99 tokens in each of ceil(8 192 / 100) rows.
  CHECK(LargestOf(plan, 100, 64) == Shapes{{64, 100}, {64, 99}, {1, 100}});
  // A longer sample is alone.
  CHECK(LargestOf(plan, 20000, 2) == Shapes{{1, 20000}, {1, 8192}, {2, 4096}});

  plan.max_samples = 4;
  plan.pad_to_multiple_of = 64;
  // 5 000 is padded to 5 056.
  CHECK(LargestOf(plan, 5000) == Shapes{{2, 4096}, {4, 2048}, {1, 5056}});
}

TEST_CASE("LargestShapes: with buckets each of them is filled", "[delivery]") {
  PlanOptions plan = Plan(4096);
  plan.shape_buckets = {512, 1024, 3000};

  CHECK(LargestOf(plan, 3000) == Shapes{{4, 1024}, {8, 512}, {1, 3000}});
  // No sample is longer than 600, so the last bucket never comes.
  CHECK(LargestOf(plan, 600) == Shapes{{4, 1024}, {8, 512}, {1, 1024}});
  CHECK(LargestOf(plan, 7000) == Shapes{{1, 9000}, {4, 1024}, {8, 512}, {1, 3000}});
}

struct Fixture {
  Fixture() {
    const std::string path = directory.path() + "/data.jsonl";
    std::ofstream(path) << "{}\n" << std::string(64, 'x') << "\n";
    dataset = std::move(*Dataset::Open({path}));
    options.plan = Plan(64);
    options.sample_tokens_max = 64;
    options.tensors.pad_token_id = 7;
  }
  void Add(const char* name, ExtraLayout layout, std::vector<int64_t> shape) {
    ExtraTensorSpec spec;
    spec.name = name;
    spec.type = ElementType::kInt32;
    spec.layout = layout;
    spec.shape = std::move(shape);
    AppendElement(spec.type, int64_t{5}, &spec.padding);
    options.tensors.extras.push_back(std::move(spec));
  }

  TempDirectory directory = *TempDirectory::Create("/tmp", "odbprobe");
  std::unique_ptr<Dataset> dataset;
  RankRuntime::Options options;
};

TEST_CASE("MakeProbes: token tensors hold what a model may be given", "[delivery]") {
  Fixture f;
  f.options.tensors.ids = ElementType::kInt32;
  f.options.tensors.mask = MaskType::kBool;

  const std::vector<v1::ProbeStep> probes = MakeProbes(f.options, *f.dataset, /*samples_max=*/8);

  REQUIRE(probes.size() == 2);
  CHECK(probes[0].samples() == 1);
  CHECK(probes[0].length() == 64);
  CHECK(probes[1].samples() == 8);
  CHECK(probes[1].length() == 8);
  REQUIRE(probes[1].tensors_size() == 3);
  const v1::ProbeTensor& ids = probes[1].tensors(0);
  CHECK(ids.name() == "input_ids");
  CHECK(ids.dtype() == v1::DTYPE_INT32);
  CHECK(ShapeOf(ids) == std::vector<int64_t>{8, 8});
  CHECK(ValueOf<int32_t>(ids) == 7);
  CHECK(ValueOf<int64_t>(probes[1].tensors(1)) == 7);
  CHECK(ValueOf<uint8_t>(probes[1].tensors(2)) == 1);
}

TEST_CASE("MakeProbes: no sample is longer than a record and its template", "[delivery]") {
  Fixture f;
  f.options.plan = Plan(1 << 20);
  f.options.sample_tokens_max = 0;

  // 64 bytes of text, 4 096 tokens of a template.
  CHECK(MakeProbes(f.options, *f.dataset, 1).front().length() == 64 + 4096);
}

TEST_CASE("MakeProbes: extra tensors are as large as the longest record allows", "[delivery]") {
  Fixture f;
  f.Add("weights", ExtraLayout::kPad, {kTokenSize, 2});
  f.Add("varies", ExtraLayout::kPad, {kAnySize, 4});
  f.Add("both", ExtraLayout::kPad, {kAnySize, kAnySize});
  f.Add("boxes", ExtraLayout::kConcatenate, {kAnySize, 4});

  const std::vector<v1::ProbeStep> probes = MakeProbes(f.options, *f.dataset, /*samples_max=*/8);

  const v1::ProbeStep& most = probes.at(1);
  REQUIRE(most.tensors_size() == 8);
  CHECK(ShapeOf(most.tensors(3)) == std::vector<int64_t>{8, 8, 2});
  CHECK(ValueOf<int32_t>(most.tensors(3)) == 5);
  // 64 bytes: at most 32 numbers.
  CHECK(ShapeOf(most.tensors(4)) == std::vector<int64_t>{8, 8, 4});
  CHECK(ShapeOf(most.tensors(5)) == std::vector<int64_t>{8, 5, 5});
  CHECK(ShapeOf(most.tensors(6)) == std::vector<int64_t>{64, 4});
  CHECK(most.tensors(7).name() == "boxes_offsets");
  CHECK(ShapeOf(most.tensors(7)) == std::vector<int64_t>{9});
  CHECK(ValueOf<int64_t>(most.tensors(7)) == 0);
  CHECK(most.tensors(7).increment() == 8);

  f.options.arena_bytes = 4096;
  for (const v1::ProbeStep& probe : MakeProbes(f.options, *f.dataset, 8)) {
    int64_t bytes = 0;
    for (const v1::ProbeTensor& tensor : probe.tensors()) {
      int64_t elements = 1;
      for (const int64_t size : tensor.shape()) elements *= size;
      bytes += elements * static_cast<int64_t>(tensor.element().size());
    }
    CHECK(bytes <= 4096);
  }
}

}  // namespace
}  // namespace odb
