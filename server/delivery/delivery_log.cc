#include "server/delivery/delivery_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {

void DeliveryLog::AddStep(LoggedStep step) {
  Entry entry;
  entry.is_step = true;
  entry.iterator = step.message.iterator();
  entry.index = step.message.index();
  step.message.set_step_id(++step_id_);
  *entry.update.mutable_step() = std::move(step.message);
  entry.step = std::move(step);
  sequence_of_step_[step_id_] = sequence_;
  ++num_steps_;
  Add(std::move(entry));
}

void DeliveryLog::AddEnd(v1::TrainerUpdate end) {
  Entry entry;
  entry.iterator = end.has_abandoned() ? end.abandoned().iterator() : end.epoch_end().iterator();
  entry.index = end.has_abandoned() ? end.abandoned().position() : end.epoch_end().steps();
  entry.update = std::move(end);
  Add(std::move(entry));
}

// A replica that has left before this entry never sees it.
void DeliveryLog::Add(Entry entry) {
  entry.done.resize(replicas_);
  entry.given.resize(replicas_);
  entry.taken.resize(replicas_);
  for (size_t replica = 0; replica < replicas_; ++replica) {
    const bool is_behind = entry.iterator < left_[replica] || (entry.iterator == left_[replica] &&
                                                               entry.index >= left_after_[replica]);
    // The end that it left at, and an abandoned one, it has to know.
    const bool is_its_end = !entry.is_step && entry.index == left_after_[replica];
    entry.done[replica] = is_behind && !is_its_end;
  }
  entries_.emplace(sequence_++, std::move(entry));
}

const v1::TrainerUpdate* DeliveryLog::Next(int32_t replica) {
  const auto who = static_cast<size_t>(replica);
  for (auto entry = entries_.lower_bound(next_[who]); entry != entries_.end(); ++entry) {
    next_[who] = entry->first + 1;
    if (entry->second.done[who]) continue;
    entry->second.given[who] = true;
    return &entry->second.update;
  }
  return nullptr;
}

const v1::TrainerUpdate* DeliveryLog::Peek(int32_t replica) const {
  const auto who = static_cast<size_t>(replica);
  for (auto entry = entries_.lower_bound(next_[who]); entry != entries_.end(); ++entry) {
    if (!entry->second.done[who]) return &entry->second.update;
  }
  return nullptr;
}

void DeliveryLog::Rewind(int32_t replica, int64_t last_step_id) {
  const auto who = static_cast<size_t>(replica);
  next_[who] = sequence_;
  for (const auto& [sequence, entry] : entries_) {
    if (entry.done[who]) continue;
    if (entry.is_step && entry.update.step().step_id() <= last_step_id) continue;
    next_[who] = sequence;
    return;
  }
}

std::optional<DeliveryLog::StepRef> DeliveryLog::Find(int64_t step_id) const {
  const auto sequence = sequence_of_step_.find(step_id);
  if (sequence == sequence_of_step_.end()) return std::nullopt;
  const Entry& entry = entries_.at(sequence->second);
  return StepRef{entry.iterator, entry.index};
}

void DeliveryLog::Return(int32_t replica, int64_t step_id, Outcome* outcome) {
  const auto sequence = sequence_of_step_.find(step_id);
  if (sequence == sequence_of_step_.end()) return;
  const auto entry = entries_.find(sequence->second);
  // Steps that were never given cannot come back.
  if (!entry->second.given[static_cast<size_t>(replica)]) return;
  Finish(entry, replica, outcome);
}

void DeliveryLog::Leave(int32_t replica, int64_t iterator, int64_t taken, Outcome* outcome) {
  left_[static_cast<size_t>(replica)] = iterator;
  left_after_[static_cast<size_t>(replica)] = taken;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool is_behind =
        entry->second.iterator == iterator &&
        (entry->second.is_step ? entry->second.index >= taken : entry->second.index > taken);
    entry = is_behind ? Finish(entry, replica, outcome) : std::next(entry);
  }
}

void DeliveryLog::GoOn(int32_t replica, int64_t iterator, Outcome* outcome) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool is_past = !entry->second.is_step && entry->second.iterator < iterator;
    entry = is_past ? Finish(entry, replica, outcome) : std::next(entry);
  }
}

void DeliveryLog::AccountTaken(int64_t iterator, int64_t taken, Outcome* outcome) {
  for (auto& [sequence, entry] : entries_) {
    if (!entry.is_step || entry.accounted || entry.iterator != iterator || entry.index >= taken) {
      continue;
    }
    entry.accounted = true;
    const v1::Counts& local = entry.update.step().local();
    TakenStep step;
    step.records = entry.step.records;
    step.tokens = local.tokens();
    step.padded_tokens = local.padded_tokens();
    step.emitted_samples = entry.update.step().emitted_samples();
    outcome->taken.emplace_back(iterator, std::move(step));
  }
}

void DeliveryLog::DropAll(Outcome* outcome) {
  for (auto entry = entries_.begin(); entry != entries_.end();) entry = Erase(entry, outcome);
}

std::vector<int64_t> DeliveryLog::HeldSteps() const {
  std::vector<int64_t> ids;
  for (const auto& [sequence, entry] : entries_) {
    if (!entry.is_step) continue;
    if (std::find(entry.taken.begin(), entry.taken.end(), true) == entry.taken.end()) continue;
    ids.push_back(entry.update.step().step_id());
  }
  return ids;
}

std::optional<int64_t> DeliveryLog::GivenEnd(int32_t replica, int64_t iterator) const {
  for (const auto& [sequence, entry] : entries_) {
    if (entry.is_step || entry.iterator != iterator || !entry.update.has_epoch_end()) continue;
    if (entry.given[static_cast<size_t>(replica)]) return entry.index;
  }
  return std::nullopt;
}

void DeliveryLog::MarkTaken(int32_t replica, int64_t iterator, int64_t taken) {
  for (auto& [sequence, entry] : entries_) {
    if (!entry.is_step || entry.iterator != iterator || entry.index >= taken) continue;
    entry.taken[static_cast<size_t>(replica)] = true;
  }
}

DeliveryLog::Entries::iterator DeliveryLog::Finish(Entries::iterator entry, int32_t replica,
                                                   Outcome* outcome) {
  entry->second.done[static_cast<size_t>(replica)] = true;
  for (const bool is_done : entry->second.done) {
    if (!is_done) return std::next(entry);
  }
  return Erase(entry, outcome);
}

DeliveryLog::Entries::iterator DeliveryLog::Erase(Entries::iterator entry, Outcome* outcome) {
  const Entry& gone = entry->second;
  if (gone.is_step) {
    --num_steps_;
    sequence_of_step_.erase(gone.update.step().step_id());
    if (gone.step.extent.has_value()) outcome->freed.push_back(*gone.step.extent);
    if (!gone.accounted) {
      outcome->abandoned_samples += static_cast<int64_t>(gone.step.records.size());
    }
  }
  return entries_.erase(entry);
}

std::string DescribeSteps(absl::Span<const int64_t> step_ids) {
  std::string text;
  for (size_t begin = 0; begin < step_ids.size();) {
    size_t end = begin + 1;
    while (end < step_ids.size() && step_ids[end] == step_ids[end - 1] + 1) ++end;
    if (!text.empty()) absl::StrAppend(&text, ", ");
    absl::StrAppend(&text, step_ids[begin]);
    if (end - begin > 1) absl::StrAppend(&text, "–", step_ids[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace odb
