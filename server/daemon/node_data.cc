#include "server/daemon/node_data.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/control_group.h"
#include "base/status_macros.h"
#include "server/daemon/config.h"
#include "server/daemon/config_tensors.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/step_estimate.h"
#include "server/preprocess/byte_tokenizer.h"
#include "server/preprocess/conversation_transform.h"
#include "server/preprocess/corpus_transform.h"
#include "server/preprocess/quarantine.h"
#include "server/preprocess/tokenized_transform.h"
#include "server/preprocess/tokenizer_file.h"

namespace odb {
namespace {

constexpr int64_t kEstimatedFrom = 256;  // records

ConversationFormat FormatOf(const v1::Config& config) {
  if (config.format() == "alpaca") return ConversationFormat::kAlpaca;
  if (config.format() == "sharegpt") return ConversationFormat::kShareGpt;
  if (config.format() == "messages") return ConversationFormat::kMessages;
  return ConversationFormat::kAuto;
}

OverLengthPolicy OverLengthOf(const v1::Config& config) {
  if (config.max_length_policy() == "truncate") return OverLengthPolicy::kTruncate;
  if (config.max_length_policy() == "alone") return OverLengthPolicy::kAlone;
  return OverLengthPolicy::kQuarantine;
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> OpenTokenizer(const v1::Config& config) {
  if (config.tokenizer() == "bytes") return MakeByteTokenizer();
  return LoadTokenizerFile(config.tokenizer());
}

// Of each source; empty if the records are text.
std::vector<TokenType> TokenTypesOf(const Dataset& dataset) {
  std::vector<TokenType> types;
  bool is_corpus = false;
  for (int32_t source = 0; source < dataset.num_sources(); ++source) {
    types.push_back(dataset.token_type(source));
    is_corpus |= types.back() != TokenType::kNone;
  }
  if (!is_corpus) types.clear();
  return types;
}

bool IsTokenized(const v1::Config& config, const Dataset& dataset) {
  return config.format() == "tokenized" || !TokenTypesOf(dataset).empty();
}

// Samples that were tokenized before come with no tokenizer, unless one is named: what it takes for
// a token is then checked.
bool KnowsVocabulary(const v1::Config& config, const Dataset& dataset) {
  return !IsTokenized(config, dataset) || config.tokenizer() != "bytes";
}

int32_t PadTokenOf(const v1::Config& config, const Dataset& dataset, const Tokenizer& tokenizer) {
  if (config.pad_token_id() >= 0) return config.pad_token_id();
  return KnowsVocabulary(config, dataset) ? tokenizer.pad_token_id() : 0;
}

absl::Status CheckCorpusConfig(const v1::Config& config) {
  if (config.extra_tensors_size() > 0) {
    return absl::InvalidArgumentError(
        "extra_tensors are set, but data is an indexed corpus, which holds token ids only");
  }
  if (config.format() == "auto" || config.format() == "tokenized") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("format is ", config.format(),
                                                 ", but data is an indexed corpus of token ids; ",
                                                 "allowed with it: auto, tokenized"));
}

absl::StatusOr<std::unique_ptr<Transform>> OpenTransform(const v1::Config& config,
                                                         const Dataset& dataset,
                                                         const Tokenizer& tokenizer) {
  LengthLimits limits;
  limits.max_length = EffectiveMaxLength(config);
  limits.over_length = OverLengthOf(config);
  limits.label_shift = config.label_shift() == "data" ? LabelShift::kData : LabelShift::kModel;
  const int32_t vocab_size = KnowsVocabulary(config, dataset) ? tokenizer.vocab_size() : 0;
  std::vector<TokenType> token_types = TokenTypesOf(dataset);
  if (!token_types.empty()) {
    RETURN_IF_ERROR(CheckCorpusConfig(config));
    return MakeCorpusTransform({limits, vocab_size, std::move(token_types)});
  }
  if (config.format() == "tokenized") {
    TokenizedOptions tokenized;
    tokenized.limits = limits;
    tokenized.vocab_size = vocab_size;
    ASSIGN_OR_RETURN(tokenized.extras, ExtraTensorsOf(config));
    return MakeTokenizedTransform(tokenized);
  }
  TransformOptions conversations;
  conversations.format = FormatOf(config);
  conversations.max_length = limits.max_length;
  conversations.over_length = limits.over_length;
  conversations.label_shift = limits.label_shift;
  return MakeConversationTransform(conversations, &tokenizer);
}

std::string OwnDirectory() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t slash = self.rfind('/');
  return slash == std::string::npos ? "." : self.substr(0, slash);
}

}  // namespace

ContentDigests NodeData::digests() const {
  return {dataset->manifest_digest(), tokenizer->digest(), transform->digest()};
}

std::string NodeData::Describe() const {
  const int32_t sources = dataset->num_sources();
  return absl::StrCat(WithThousandsSeparators(dataset->size()), " records in ",
                      sources == 1 ? dataset->name(0) : absl::StrCat(sources, " files"));
}

absl::StatusOr<NodeData> OpenNodeData(const v1::Config& config, ScanProgress* progress,
                                      std::shared_ptr<const Tokenizer> tokenizer) {
  NodeData data;
  const std::vector<std::string> paths(config.data().begin(), config.data().end());
  DatasetOptions dataset;
  dataset.max_record_bytes = config.max_record_bytes();
  dataset.allow_empty_sources = config.views_size() > 0;
  dataset.progress = progress;
  data.tokenizer = std::move(tokenizer);
  if (data.tokenizer == nullptr) {
    ASSIGN_OR_RETURN(data.tokenizer, OpenTokenizer(config));
  }
  ASSIGN_OR_RETURN(data.dataset, Dataset::Open(paths, dataset));
  ASSIGN_OR_RETURN(data.transform, OpenTransform(config, *data.dataset, *data.tokenizer));
  data.pad_token_id = PadTokenOf(config, *data.dataset, *data.tokenizer);
  StepEstimateOptions estimate;
  estimate.budget = config.token_budget();
  estimate.max_samples = config.max_samples_per_group();
  estimate.pad_to_multiple_of = config.pad_to_multiple_of();
  estimate.shape_buckets.assign(config.shape_buckets().begin(), config.shape_buckets().end());
  estimate.window = config.window();
  data.estimated_steps =
      EstimateSteps(SampleLengths(*data.dataset, *data.transform, config.seed(), kEstimatedFrom),
                    data.dataset->size(), estimate);
  return data;
}

absl::StatusOr<std::vector<StreamData>> OpenStreams(const v1::Config& config,
                                                    ScanProgress* progress) {
  ASSIGN_OR_RETURN(std::vector<StreamConfig> streams, StreamsOf(config));
  std::vector<StreamData> opened;
  for (StreamConfig& stream : streams) {
    absl::StatusOr<NodeData> data = OpenNodeData(
        stream.config, progress, opened.empty() ? nullptr : opened.front().data.tokenizer);
    if (!data.ok() && !opened.empty()) {
      return absl::Status(data.status().code(),
                          absl::StrCat("stream ", stream.name, ": ", data.status().message()));
    }
    RETURN_IF_ERROR(data.status());
    opened.push_back({std::move(stream), *std::move(data)});
  }
  return opened;
}

int DataExitCode(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return kExitConfig;  // memory_limit
  return absl::IsPermissionDenied(status) ? kExitNoPermission : kExitDataError;
}

CpuShare EffectiveWorkers(const v1::Config& config) {
  if (config.workers() > 0) return {config.workers(), "workers"};
  cpu_set_t cpus;
  const int in_mask = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  const ControlGroupLimits group = ReadControlGroups("");
  CpuShare share = {UsableCpus(in_mask, group.cpu_millis), absl::StrCat(in_mask, " CPUs")};
  if (group.cpu_millis > 0) {
    absl::StrAppend(&share.origin, ", of which ", group.cpu_file, " allows ",
                    static_cast<double>(group.cpu_millis) / 1000);
  }
  return share;
}

absl::StatusOr<MemoryLimit> NodeMemoryLimit(const v1::Config& config) {
  const ControlGroupLimits group = ReadControlGroups("");
  ASSIGN_OR_RETURN(MemoryLimit limit,
                   ChooseMemoryLimit(config.memory_limit(), group, ReadMachineMemory("")));
  if (limit.is_kept() && group.memory_bytes > 0 && group.memory_left < limit.bytes) {
    SPDLOG_WARN("{}, but only {} of the control group are free: others use the rest ({})",
                limit.Describe(), DescribeBytes(group.memory_left), group.memory_file);
  }
  return limit;
}

absl::StatusOr<std::string> FindAligner(const v1::Config& config) {
  if (!config.aligner_path().empty()) {
    if (access(config.aligner_path().c_str(), X_OK) == 0) return config.aligner_path();
    return absl::FailedPreconditionError(
        absl::StrCat("aligner_path ", config.aligner_path(), " is no program that can be run"));
  }
  const std::string own = OwnDirectory();
  for (const char* place : {"/odb-aligner", "/../../aligner/daemon/odb-aligner"}) {
    const std::string path = own + place;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("there is no odb-aligner beside odbd in ", own, "; name it with aligner_path"));
}

}  // namespace odb
