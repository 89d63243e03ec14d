#include "batching/plan_check.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

absl::Status CheckAtLeast(absl::string_view name, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must be >= ", least, ", got ", value));
}

absl::string_view StateName(OfferState state) {
  switch (state) {
    case OfferState::kNotReady:
      return "NOT_READY";
    case OfferState::kReady:
      return "READY";
    case OfferState::kDry:
      return "DRY";
    case OfferState::kClosing:
      return "CLOSING";
  }
  return "unknown";
}

// Each may be a row of a group, so a step of the budget must hold it.
absl::Status CheckBuckets(const PlanOptions& options) {
  int64_t least = 1;
  for (const int32_t bucket : options.shape_buckets) {
    RETURN_IF_ERROR(CheckAtLeast("a shape bucket", bucket, least));
    if (bucket % options.pad_to_multiple_of != 0) {
      return absl::InvalidArgumentError(absl::StrCat("a shape bucket must be a multiple of ",
                                                     options.pad_to_multiple_of, ", got ", bucket));
    }
    if (bucket > options.budget) {
      return absl::InvalidArgumentError(absl::StrCat("a shape bucket must be <= the budget of ",
                                                     options.budget, ", got ", bucket));
    }
    least = int64_t{bucket} + 1;
  }
  return absl::OkStatus();
}

absl::Status CheckSample(const SampleShape& sample, size_t rank, size_t position) {
  const auto refuse = [&](absl::string_view field, int64_t value, absl::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrCat(field, " of sample ", position,
                                                   " in the window of rank ", rank, " must be ",
                                                   allowed, ", got ", value));
  };
  if (sample.length <= 0) return refuse("length", sample.length, "> 0 tokens");
  if (sample.loss_tokens < 0) return refuse("loss_tokens", sample.loss_tokens, ">= 0");
  if (sample.vision_load < 0) return refuse("vision_load", sample.vision_load, ">= 0");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlanOptions(const PlanOptions& options) {
  if (options.policy != Policy::kPaper && options.policy != Policy::kBalanced) {
    return absl::InvalidArgumentError(absl::StrCat("policy must be paper or balanced, got number ",
                                                   static_cast<int>(options.policy)));
  }
  RETURN_IF_ERROR(CheckAtLeast("max_wait_rounds", options.max_wait_rounds, 0));
  RETURN_IF_ERROR(CheckAtLeast("budget", options.budget, 1));
  RETURN_IF_ERROR(CheckAtLeast("max_samples", options.max_samples, 0));
  RETURN_IF_ERROR(CheckAtLeast("max_vision_load", options.max_vision_load, 0));
  RETURN_IF_ERROR(CheckAtLeast("pad_to_multiple_of", options.pad_to_multiple_of, 1));
  RETURN_IF_ERROR(CheckBuckets(options));
  RETURN_IF_ERROR(CheckAtLeast("max_steps", options.max_steps, 1));
  if (options.termination == Termination::kNonJoin) {
    RETURN_IF_ERROR(CheckAtLeast("quota", options.quota, 0));
  }
  return absl::OkStatus();
}

absl::Status CheckPlanContext(const PlanOptions& options, const PlanContext& context) {
  RETURN_IF_ERROR(CheckAtLeast("emitted_before", context.emitted_before, 0));
  if (options.termination == Termination::kNonJoin && context.emitted_before > options.quota) {
    return absl::InvalidArgumentError(absl::StrCat("emitted_before must be <= the quota of ",
                                                   options.quota, " samples, got ",
                                                   context.emitted_before));
  }
  return absl::OkStatus();
}

absl::Status CheckNodes(const PlanOptions& options, size_t num_ranks) {
  const size_t num_nodes_given = options.node_of_rank.size();
  if (num_nodes_given == 0 || num_nodes_given == num_ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("node_of_rank must name the node of each of ",
                                                 num_ranks, " ranks, or none, got ",
                                                 num_nodes_given));
}

absl::Status CheckOffers(absl::Span<const Offer> offers) {
  if (offers.empty()) return absl::InvalidArgumentError("a plan needs at least one rank, got 0");
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer& offer = offers[rank];
    const OfferState state = offer.header.state;
    if (state != OfferState::kReady && state != OfferState::kDry) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " must be READY or DRY in a round, got ", StateName(state)));
    }
    if (state == OfferState::kReady && offer.window.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the window of rank ", rank, " is READY and must hold samples, got 0"));
    }
    if (state == OfferState::kDry && !offer.window.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the window of rank ", rank,
                                                     " is DRY and must be empty, got ",
                                                     offer.window.size(), " samples"));
    }
    for (size_t i = 0; i < offer.window.size(); ++i) {
      RETURN_IF_ERROR(CheckSample(offer.window[i], rank, i));
    }
  }
  return absl::OkStatus();
}

}  // namespace odb
