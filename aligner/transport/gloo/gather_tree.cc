#include "aligner/transport/gloo/gather_tree.h"

#include <cstring>
#include <utility>

namespace odb {
namespace {

constexpr uint64_t kReadySlot = 0;  // exchanges take 2, 3, 4, ...
// Behind each record in the table, and once more behind all of them: the number of the exchange
// (GlooMesh::Part).
constexpr size_t kStampBytes = sizeof(uint64_t);

}  // namespace

absl::Time GatherTree::ShareOf(absl::Time deadline, double share) {
  const absl::Time now = absl::Now();
  return now + share * (deadline - now);
}

void GatherTree::ConnectGroup(Options options, RendezvousStore* store) {
  options_ = std::move(options);
  const auto& groups = options_.shape.groups;
  starts_.clear();
  size_t world_size = 0;
  for (const auto& group : groups) {
    starts_.push_back(world_size);
    world_size += group.size();
  }
  places_.assign(world_size, 0);
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t k = 0; k < groups[i].size(); ++k) {
      const auto rank = static_cast<size_t>(groups[i][k].value());
      places_[rank] = starts_[i] + k;
      if (groups[i][k] == options_.rank) group_ = i;
    }
  }
  table_.assign(world_size * (options_.record_bytes_max + kStampBytes) + kStampBytes, 0);
  exchange_ = 0;
  if (group().size() == 1) return;
  SetStage(&members_mesh_);
  members_mesh_.Connect({group(), options_.rank, options_.connect_timeout, options_.loop->device(),
                         absl::MakeSpan(table_)},
                        store);
}

bool GatherTree::ConnectLeaders(RendezvousStore* store, absl::Time deadline) {
  if (leads() && several_groups()) {
    std::vector<Rank> leaders;
    for (const auto& group : options_.shape.groups) leaders.push_back(group.front());
    SetStage(&leaders_mesh_);
    leaders_mesh_.Connect({std::move(leaders), options_.rank, options_.connect_timeout,
                           options_.loop->device(), absl::MakeSpan(table_)},
                          store);
  }
  connected_ = true;
  if (group().size() == 1) return true;
  SetStage(&members_mesh_);
  if (!leads()) {
    members_mesh_.Receive(0, {kReadySlot, 0, 1});
    return members_mesh_.WaitReceived(deadline);
  }
  for (size_t k = 1; k < group().size(); ++k) {
    members_mesh_.Send(static_cast<int>(k), {kReadySlot, 0, 1});
  }
  return members_mesh_.WaitSent(deadline);
}

void GatherTree::Destroy() {
  connected_ = false;
  // The leaders' first: a member that sees its leader go must not wait for a table any more.
  leaders_mesh_.Destroy();
  members_mesh_.Destroy();
  options_.loop.reset();
}

bool GatherTree::AllGather(absl::string_view record, absl::Time deadline) {
  ++exchange_;
  row_bytes_ = record.size() + kStampBytes;
  const auto rank = static_cast<size_t>(options_.rank.value());
  char* const row = table_.data() + places_[rank] * row_bytes_;
  std::memcpy(row, record.data(), record.size());
  std::memcpy(row + record.size(), &exchange_, kStampBytes);
  return leads() ? GatherAsLeader(deadline) : GatherAsMember(deadline);
}

GlooMesh::Part GatherTree::Rows(size_t first, size_t count) const {
  return {2 * exchange_, first * row_bytes_, count * row_bytes_, exchange_};
}

GlooMesh::Part GatherTree::WholeTable() const {
  return {2 * exchange_ + 1, 0, places_.size() * row_bytes_ + kStampBytes, exchange_};
}

// All that is to come, before anything is sent: Gloo brings what is awaited in one message less.
void GatherTree::PostReceives() {
  const auto& groups = options_.shape.groups;
  SetStage(&members_mesh_);
  for (size_t k = 1; k < group().size(); ++k) {
    members_mesh_.Receive(static_cast<int>(k), Rows(starts_[group_] + k, 1));
  }
  SetStage(&leaders_mesh_);
  for (size_t i = 1; i < groups.size(); ++i) {
    const size_t from = (group_ + groups.size() - i) % groups.size();
    leaders_mesh_.Receive(static_cast<int>(from), Rows(starts_[from], groups[from].size()));
  }
}

void GatherTree::TellLeaders() {
  const size_t groups = options_.shape.groups.size();
  SetStage(&leaders_mesh_);
  for (size_t i = 1; i < groups; ++i) {
    const size_t to = (group_ + i) % groups;
    leaders_mesh_.Send(static_cast<int>(to), Rows(starts_[group_], group().size()));
  }
}

void GatherTree::TellMembers() {
  SetStage(&members_mesh_);
  for (size_t k = 1; k < group().size(); ++k) {
    members_mesh_.Send(static_cast<int>(k), WholeTable());
  }
}

bool GatherTree::GatherAsLeader(absl::Time deadline) {
  GlooLoop* const loop = options_.loop.get();
  const bool flat = options_.shape.flat();
  const absl::Time gathered = flat ? deadline : ShareOf(deadline, kGatherShare);
  const absl::Time met = flat ? deadline : ShareOf(deadline, kMeetShare);
  const bool alone = group().size() == 1;  // then its row is all that the leaders wait for
  const auto begin = [this, alone] {
    PostReceives();
    if (alone) TellLeaders();
  };
  loop->Run(begin, gathered);
  SetStage(&members_mesh_);
  if (!members_mesh_.WaitReceived(gathered)) return false;
  if (!alone) loop->Run([this] { TellLeaders(); }, met);
  SetStage(&leaders_mesh_);
  if (!leaders_mesh_.WaitReceived(met)) return false;
  std::memcpy(table_.data() + places_.size() * row_bytes_, &exchange_, kStampBytes);
  if (!alone) loop->Run([this] { TellMembers(); }, deadline);
  SetStage(&members_mesh_);
  if (!members_mesh_.WaitSent(deadline)) return false;
  SetStage(&leaders_mesh_);
  return leaders_mesh_.WaitSent(deadline);
}

bool GatherTree::GatherAsMember(absl::Time deadline) {
  const auto rank = static_cast<size_t>(options_.rank.value());
  const auto begin = [this, rank] {
    SetStage(&members_mesh_);
    members_mesh_.Receive(0, WholeTable());
    members_mesh_.Send(0, Rows(places_[rank], 1));
  };
  options_.loop->Run(begin, deadline);
  return members_mesh_.WaitReceived(deadline) && members_mesh_.WaitSent(deadline);
}

std::string GatherTree::Table() const {
  const size_t size = row_bytes_ - kStampBytes;
  std::string table;
  table.reserve(places_.size() * size);
  for (const size_t place : places_) table.append(table_.data() + place * row_bytes_, size);
  return table;
}

std::optional<Rank> GatherTree::Suspect(const std::string& message) const {
  if (waiting_ == nullptr) return std::nullopt;
  return waiting_->Suspect(message);
}

void GatherTree::SetStage(const GlooMesh* mesh) {
  waiting_ = mesh;
  waited_for_leader_ = mesh == &leaders_mesh_ || !leads();
}

void GatherTree::Abort() {
  members_mesh_.Abort();
  leaders_mesh_.Abort();
}

}  // namespace odb
