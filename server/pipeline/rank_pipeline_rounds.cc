#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/pipeline/rank_pipeline.h"

// The rounds of RankPipeline: agreeing with the other ranks, and what follows from a plan.

namespace odb {
namespace {

// The exchange is woken; this only bounds a wait that nobody wakes.
constexpr absl::Duration kWaitSlice = absl::Seconds(1);

}  // namespace

absl::StatusOr<RankPipeline::Agreement> RankPipeline::Agree() {
  while (true) {
    ASSIGN_OR_RETURN(const TrainerMailbox::View view, ReadMailbox());
    SayState(view, NotReadyReason::kPlanning, Stage::kExchanging);
    absl::StatusOr<GatheredRound> gathered =
        deps_.exchange->WaitGathered(absl::Now() + kLookInterval);
    if (absl::IsDeadlineExceeded(gathered.status())) continue;
    RETURN_IF_ERROR(gathered.status());

    ASSIGN_OR_RETURN(Agreement agreement, PlanGathered(*std::move(gathered)));
    const RoundId round = round_.next();
    deps_.exchange->Planned(
        round, agreement.abandoned ? AbandonDigest(round) : agreement.planned->plan.digest);
    const absl::Status released = AwaitRelease(round);
    if (absl::IsAborted(released)) {
      RETURN_IF_ERROR(ReadMailbox().status());  // not an own failure, which may be Aborted too
      continue;
    }
    RETURN_IF_ERROR(released);
    round_ = round;
    published_.reset();
    return agreement;
  }
}

absl::StatusOr<RankPipeline::Agreement> RankPipeline::PlanGathered(GatheredRound gathered) const {
  if (gathered.round != round_.next()) {
    return absl::InternalError(absl::StrCat("round ", gathered.round.value(),
                                            " was gathered, expected ", round_.next().value()));
  }
  Agreement agreement;
  agreement.abandoned = gathered.abandon;
  if (agreement.abandoned) return agreement;
  if (!published_.has_value() ||
      gathered.offers.size() != static_cast<size_t>(deps_.views->world_size())) {
    return absl::InternalError("a round was gathered without this rank's offer");
  }
  PlanContext context;
  context.epoch = iteration_.epoch;
  context.iterator = iteration_.iterator;
  context.round = gathered.round;
  context.emitted_before = iteration_.emitted_samples;
  ASSIGN_OR_RETURN(const PlanOptions options, OptionsOfPlan());
  ASSIGN_OR_RETURN(agreement.planned,
                   deps_.plans->Get(options, context, std::move(gathered.offers)));
  return agreement;
}

absl::StatusOr<PlanOptions> RankPipeline::OptionsOfPlan() const {
  PlanOptions options = options_.plan;
  if (!deps_.node_of_rank) return options;
  const std::vector<int> nodes = deps_.node_of_rank();
  if (nodes.size() != static_cast<size_t>(deps_.views->world_size())) {
    return absl::InternalError(absl::StrCat("the nodes of ", nodes.size(), " ranks are known, of ",
                                            deps_.views->world_size()));
  }
  options.node_of_rank.assign(nodes.begin(), nodes.end());
  return options;
}

absl::Status RankPipeline::AwaitRelease(RoundId round) {
  while (true) {
    RETURN_IF_ERROR(ReadMailbox().status());
    const absl::Status released = deps_.exchange->WaitReleased(round, absl::Now() + kWaitSlice);
    if (!absl::IsDeadlineExceeded(released)) return released;
  }
}

absl::Status RankPipeline::EmitSteps(const PlannedRound& planned) {
  const auto own = static_cast<size_t>(options_.rank.value());
  const Plan& plan = planned.plan;
  // First of all: a neighbour that has ended would take its samples with it.
  absl::StatusOr<std::vector<std::vector<WindowSample>>> groups =
      deps_.windows->Take(round_, plan.groups[own]);
  if (!groups.ok()) {
    RETURN_IF_ERROR(ReadMailbox().status());
    return groups.status();
  }
  window_.PutBack(deps_.windows->TakeBack(options_.rank, round_, plan.leftovers[own]));
  offered_ = 0;

  uint32_t modality_mask = 0;
  iteration_.quarantined = 0;
  for (const Offer& offer : planned.offers) {
    modality_mask |= offer.header.modality_mask;
    iteration_.quarantined += offer.header.dropped;
  }
  if (options_.carry_left_over) iteration_.carry_over.AddEmitted(planned.offers, plan);

  mailbox_.AddUnassembled(plan.num_steps());
  for (size_t i = 0; i < groups->size(); ++i) {
    PlannedStep step = DescribeStep(plan, i);
    step.modality_mask = modality_mask;
    step.samples = std::move((*groups)[i]);
    const absl::Status pushed = Push(std::move(step));
    if (pushed.ok()) continue;
    // The pipeline is being stopped: nobody takes this step or the ones behind it.
    int64_t samples = 0;
    for (; i < groups->size(); ++i) samples += plan.groups[own][i].samples.size();
    deps_.ledger->Abandon(samples);
    return pushed;
  }
  if (!plan.epoch_end) return absl::OkStatus();
  RETURN_IF_ERROR(deps_.ledger->CheckBadShare(/*epoch_end=*/true));
  return EndIteration(/*abandoned=*/false);
}

// All of the next step but its samples.
PlannedStep RankPipeline::DescribeStep(const Plan& plan, size_t index) {
  PlannedStep step;
  step.epoch = iteration_.epoch;
  step.iterator = iteration_.iterator;
  step.round = round_;
  step.index = iteration_.steps++;
  step.totals = plan.totals[index];
  step.emitted_samples = iteration_.emitted_samples += step.totals.samples;
  step.total_samples = TotalSamples();

  MutexLock lock(&mutex_);
  ++snapshot_.steps;
  snapshot_.tokens += step.totals.tokens;
  snapshot_.padded_tokens += step.totals.padded_tokens;
  for (const auto& steps_of_rank : plan.groups) {
    snapshot_.idle_slots += steps_of_rank[index].samples.empty() ? 1 : 0;
  }
  snapshot_.emitted_samples = step.emitted_samples;
  snapshot_.total_samples = step.total_samples;
  return step;
}

absl::Status RankPipeline::EndIteration(bool abandoned) {
  IterationEnd end;
  end.epoch = iteration_.epoch;
  end.iterator = iteration_.iterator;
  end.abandoned = abandoned;
  end.steps = iteration_.steps;
  end.samples = iteration_.emitted_samples;
  end.quarantined = iteration_.quarantined;
  if (abandoned) {
    // All ranks stand here: what they took of the steps is theirs, the rest was never emitted.
    position_ = end.steps = mailbox_.Read().current->taken;
    iteration_.over = true;
    carried_.clear();
    AbandonWindow(absl::CancelledError("the round was abandoned"));
  } else {
    iteration_.all_planned = true;
    const int64_t unread = iteration_.reader->num_records() - iteration_.reader->position();
    deps_.coverage->LeftOver(end.iterator, options_.rank, window_.size() + unread);
    end.left_over = ListLeftOver();
    if (options_.carry_left_over) {
      carried_ = iteration_.carry_over.NotEmitted(*deps_.views, *deps_.dataset, end.epoch);
    }
    // Neighbours may still have to take theirs of what was offered here.
    deps_.ledger->Abandon(window_.size());
    window_.Clear();
  }
  iteration_.reader.reset();
  return Push(std::move(end));
}

void RankPipeline::AbandonWindow(const absl::Status& why) {
  const int64_t offered = deps_.windows->Withdraw(options_.rank, why);
  deps_.ledger->Abandon(window_.size() + offered);
  window_.Clear();
  offered_ = 0;
}

std::vector<SampleId> RankPipeline::ListLeftOver() const {
  std::vector<SampleId> ids;
  for (int32_t i = 0; i < window_.size(); ++i) ids.push_back(window_.at(i).sample.id);
  const ViewReader& reader = *iteration_.reader;
  for (int64_t i = reader.position(); i < reader.num_records(); ++i) {
    if (static_cast<int64_t>(ids.size()) >= kLeftOverListed) break;
    ids.push_back(deps_.dataset->ref(reader.record_at(i)).id());
  }
  return ids;
}

absl::Status RankPipeline::Push(PipelineOutput output) {
  return deps_.output->Push(std::move(output), absl::InfiniteFuture());
}

int64_t RankPipeline::TotalSamples() const {
  const int64_t usable = deps_.views->total_size() - iteration_.quarantined;
  if (options_.plan.termination == Termination::kJoin) return usable;
  return std::min(usable, options_.plan.quota);
}

}  // namespace odb
