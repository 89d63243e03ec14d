#include "tests/conformance/golden_grouping.h"

#include <fstream>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "simdjson.h"

namespace odb {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;

using PositionOf = std::map<int64_t, int32_t>;

template <typename T>
absl::StatusOr<T> Get(element object, const char* key) {
  T value;
  const simdjson::error_code error = object[key].get(value);
  if (error == simdjson::SUCCESS) return value;
  return absl::InvalidArgumentError(absl::StrCat("field ", key, ": ", error_message(error)));
}

template <typename T>
absl::Status Read(element object, const char* key, T* value) {
  ASSIGN_OR_RETURN(*value, Get<T>(object, key));
  return absl::OkStatus();
}

// One of a few names, in the order of the enum's values.
template <typename Enum>
absl::Status ReadName(element object, const char* key, const std::vector<absl::string_view>& names,
                      Enum* value) {
  ASSIGN_OR_RETURN(const std::string_view name, Get<std::string_view>(object, key));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == absl::string_view(name.data(), name.size())) {
      *value = static_cast<Enum>(i);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("field ", key, " has an unknown name"));
}

absl::StatusOr<std::vector<int64_t>> Integers(array elements) {
  std::vector<int64_t> integers;
  for (const element item : elements) {
    int64_t integer = 0;
    if (item.get(integer) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError("a list holds something that is not an integer");
    }
    integers.push_back(integer);
  }
  return integers;
}

absl::Status ReadRank(element json, PackageRank* rank, std::vector<int64_t>* ids) {
  RETURN_IF_ERROR(Read(json, "finished", &rank->finished));
  RETURN_IF_ERROR(Read(json, "idx_budget", &rank->slots));
  ASSIGN_OR_RETURN(const array samples, Get<array>(json, "samples"));
  for (const element item : samples) {
    array fields;
    if (item.get(fields) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError("a sample is not a list");
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> sample, Integers(fields));
    if (sample.size() != 3) return absl::InvalidArgumentError("a sample has not 3 numbers");
    SampleShape shape;
    shape.length = static_cast<int32_t>(sample[1]);
    shape.vision_load = static_cast<int32_t>(sample[2]);
    shape.id_hash = static_cast<uint64_t>(sample[0]);
    rank->samples.push_back(shape);
    ids->push_back(sample[0]);
  }
  return absl::OkStatus();
}

absl::Status ReadInput(element json, GoldenGrouping* golden) {
  PackageRoundInput* input = &golden->input;
  bool join = false;
  RETURN_IF_ERROR(Read(json, "sync", &input->synchronised));
  RETURN_IF_ERROR(Read(json, "token_budget", &input->token_budget));
  RETURN_IF_ERROR(Read(json, "max_patches", &input->max_patches));
  RETURN_IF_ERROR(Read(json, "join", &join));
  RETURN_IF_ERROR(Read(json, "random_seed", &input->random_seed));
  RETURN_IF_ERROR(Read(json, "grouping_round", &input->grouping_round));
  RETURN_IF_ERROR(Read(json, "max_groups", &input->max_groups));
  RETURN_IF_ERROR(
      ReadName(json, "loss_scaling", {"none", "approx", "exact"}, &input->loss_scaling));
  RETURN_IF_ERROR(
      ReadName(json, "group_order_flip",
               {"none", "rank_epoch_random", "rank_window_random", "rank_window_balanced"},
               &input->group_flip));
  input->termination = join ? Termination::kJoin : Termination::kNonJoin;
  ASSIGN_OR_RETURN(const int64_t world, Get<int64_t>(json, "world"));
  ASSIGN_OR_RETURN(const array ranks, Get<array>(json, "ranks"));
  for (const element rank : ranks) {
    input->ranks.emplace_back();
    golden->ids.emplace_back();
    RETURN_IF_ERROR(ReadRank(rank, &input->ranks.back(), &golden->ids.back()));
  }
  if (static_cast<int64_t>(input->ranks.size()) != world) {
    return absl::InvalidArgumentError("world is not the number of ranks");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Positions(element json, const char* key,
                                               const PositionOf& position_of) {
  ASSIGN_OR_RETURN(const array list, Get<array>(json, key));
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, Integers(list));
  std::vector<int32_t> positions;
  for (const int64_t id : ids) {
    const auto position = position_of.find(id);
    if (position == position_of.end()) {
      return absl::InvalidArgumentError(absl::StrCat("id ", id, " is not of this rank"));
    }
    positions.push_back(position->second);
  }
  return positions;
}

absl::Status ReadOutput(element json, const PositionOf& position_of, PackageRankOutput* output) {
  RETURN_IF_ERROR(Read(json, "all_finished", &output->all_finished));
  RETURN_IF_ERROR(Read(json, "skip", &output->skip));
  ASSIGN_OR_RETURN(output->overflow, Positions(json, "overflow", position_of));
  ASSIGN_OR_RETURN(const array groups, Get<array>(json, "groups"));
  for (const element item : groups) {
    PackageGroup group;
    ASSIGN_OR_RETURN(group.samples, Positions(item, "ids", position_of));
    RETURN_IF_ERROR(Read(item, "total_batch_size", &group.total_batch_size));
    ASSIGN_OR_RETURN(const element tokens, Get<element>(item, "total_tokens"));
    if (!tokens.is_null()) {
      ASSIGN_OR_RETURN(group.total_tokens, Get<int64_t>(item, "total_tokens"));
    }
    output->groups.push_back(std::move(group));
  }
  return absl::OkStatus();
}

absl::Status ReadCase(element json, GoldenGrouping* golden) {
  RETURN_IF_ERROR(Read(json, "case", &golden->number));
  ASSIGN_OR_RETURN(const element input, Get<element>(json, "input"));
  RETURN_IF_ERROR(ReadInput(input, golden));
  ASSIGN_OR_RETURN(const array outputs, Get<array>(json, "output"));
  if (outputs.size() != golden->ids.size()) {
    return absl::InvalidArgumentError("output does not name every rank");
  }
  for (const element item : outputs) {
    const std::vector<int64_t>& ids = golden->ids[golden->outputs.size()];
    PositionOf position_of;
    for (size_t i = 0; i < ids.size(); ++i) position_of[ids[i]] = static_cast<int32_t>(i);
    golden->outputs.emplace_back();
    RETURN_IF_ERROR(ReadOutput(item, position_of, &golden->outputs.back()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GoldenGrouping>> ReadGoldenGroupings(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<GoldenGrouping> cases;
  simdjson::dom::parser parser;
  std::string line;
  while (std::getline(file, line)) {
    element json;
    GoldenGrouping golden;
    absl::Status status = absl::OkStatus();
    if (parser.parse(line).get(json) != simdjson::SUCCESS) {
      status = absl::InvalidArgumentError("not JSON");
    } else {
      status = ReadCase(json, &golden);
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", cases.size() + 1, ": ", status.message()));
    }
    cases.push_back(std::move(golden));
  }
  return cases;
}

}  // namespace odb
