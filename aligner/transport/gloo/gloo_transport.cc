#include "aligner/transport/gloo/gloo_transport.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aligner/transport/gloo/gather_tree.h"
#include "aligner/transport/gloo/gloo_loop.h"
#include "aligner/transport/gloo/rendezvous_store.h"
#include "base/hash.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// How long a leader that only saw another leader go waits for the note that says why. A member that
// saw its leader go waits longer, since its leader may be waiting for a note as well.
constexpr absl::Duration kNoteWait = absl::Milliseconds(300);
constexpr absl::Duration kMemberNoteWait = absl::Milliseconds(900);
constexpr char kNoteKey[] = "failure";

// "[/build/gloo-x/pair.cc:589] Connection closed by peer" without the bracket.
std::string CleanMessage(absl::string_view message) {
  const size_t end = message.find("] ");
  if (absl::StartsWith(message, "[") && end != absl::string_view::npos &&
      absl::StrContains(message.substr(0, end), ".cc:")) {
    message.remove_prefix(end + 2);
  }
  return std::string(message);
}

absl::Status ToStatus(const std::string& message) {
  if (absl::StrContains(message, "Timed out") || absl::StrContains(message, "timeout")) {
    return absl::DeadlineExceededError(message);
  }
  return absl::UnavailableError(message);
}

// What must be equal on all ranks of a mesh.
std::string DescribeMesh(const GlooTransport::Options& options, const MeshSpec& mesh,
                         const MeshShape& shape) {
  std::string text =
      absl::StrCat("world size ", options.world_size, ", record bytes ", options.sizes.resync, "/",
                   options.sizes.offer, "/", options.sizes.confirm);
  if (mesh.node_of_rank.empty()) return text;
  absl::StrAppend(&text, ", ", shape.flat() ? "flat" : "hierarchical", " over nodes ",
                  absl::Hex(Hash64(absl::StrJoin(mesh.node_of_rank, ","))));
  return text;
}

std::string SizesKey(Rank rank) { return absl::StrCat("sizes_", rank.value()); }

// Waits until each of `ranks` has said how it counts; a difference is an error.
absl::Status CompareSizes(RendezvousStore* store, const std::vector<Rank>& ranks, Rank rank,
                          const std::string& own, absl::Time deadline,
                          std::optional<Rank>* suspect) {
  for (const Rank peer : ranks) {
    const auto value = store->Fetch({SizesKey(peer)}, deadline);
    if (!value.ok() || value->front() != own) *suspect = peer;
    RETURN_IF_ERROR(value.status());
    if (value->front() == own) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", peer.value(), " has ", value->front(), ", rank ", rank.value(), " has ", own));
  }
  return absl::OkStatus();
}

}  // namespace

// The mesh of one generation, and what Interrupt needs of it.
class GlooTransport::State {
 public:
  void Interrupt(Generation generation) {
    MutexLock lock(&mutex_);
    if (generation > interrupted_) interrupted_ = generation;
    if (generation >= generation_) tree.Abort();
  }
  bool Interrupted(Generation generation) {
    MutexLock lock(&mutex_);
    return generation <= interrupted_;
  }
  void set_generation(Generation generation) {
    MutexLock lock(&mutex_);
    generation_ = generation;
  }
  Generation generation() {
    MutexLock lock(&mutex_);
    return generation_;
  }

  GatherTree tree;  // of the thread that opens and exchanges, but for Abort
  bool hierarchical = false;

 private:
  Mutex mutex_;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  Generation interrupted_ ABSL_GUARDED_BY(mutex_);
};

GlooTransport::GlooTransport(Options options, KeyValueStore* store)
    : options_(std::move(options)), store_(store), state_(std::make_unique<State>()) {}

GlooTransport::~GlooTransport() { Close(); }

RendezvousStore GlooTransport::StoreAt(const std::string& below, absl::Time deadline) const {
  const Generation generation = state_->generation();
  return RendezvousStore(store_,
                         absl::StrCat(options_.key_prefix, "g", generation.value(), "/", below),
                         deadline, [this, generation] { return state_->Interrupted(generation); });
}

// Throws what Gloo throws.
absl::Status GlooTransport::Connect(const MeshSpec& mesh, const MeshShape& shape,
                                    absl::Time deadline, std::optional<Rank>* suspect) {
  const std::string own = DescribeMesh(options_, mesh, shape);
  const auto is_own = [this](const std::vector<Rank>& group) {
    return std::find(group.begin(), group.end(), options_.rank) != group.end();
  };
  const std::vector<Rank>& group = *std::find_if(shape.groups.begin(), shape.groups.end(), is_own);
  std::vector<Rank> all;
  for (int rank = 0; rank < options_.world_size; ++rank) all.push_back(Rank(rank));

  RendezvousStore store = StoreAt("", deadline);
  RETURN_IF_ERROR(store.Publish(SizesKey(options_.rank), own));
  RETURN_IF_ERROR(CompareSizes(&store, group, options_.rank, own, deadline, suspect));

  GatherTree::Options tree;
  tree.shape = shape;
  tree.rank = options_.rank;
  tree.record_bytes_max = options_.sizes.largest();
  tree.connect_timeout = options_.connect_timeout;
  ASSIGN_OR_RETURN(tree.loop, GlooLoop::Create(options_.interface.address));
  RendezvousStore group_store = StoreAt(absl::StrCat("of_", group.front().value(), "/"), deadline);
  state_->tree.ConnectGroup(std::move(tree), &group_store);
  if (options_.rank == group.front()) {
    // A rank of another node that does not come is to be named before the group gives up.
    const absl::Time all_there =
        shape.flat() ? deadline : GatherTree::ShareOf(deadline, GatherTree::kGatherShare);
    RETURN_IF_ERROR(CompareSizes(&store, all, options_.rank, own, all_there, suspect));
  }
  if (state_->Interrupted(mesh.generation)) return absl::CancelledError("interrupted");
  if (state_->tree.ConnectLeaders(&store, deadline)) return absl::OkStatus();
  return absl::CancelledError("interrupted");
}

absl::Status GlooTransport::OpenTree(const MeshSpec& mesh, absl::Time deadline,
                                     std::optional<Rank>* suspect) {
  ASSIGN_OR_RETURN(const MeshShape shape,
                   ShapeMesh(options_.topology, options_.world_size, mesh.node_of_rank));
  state_->hierarchical = !shape.flat();
  try {
    return Connect(mesh, shape, deadline, suspect);
  } catch (const std::exception& error) {
    const std::string message = CleanMessage(error.what());
    Close();
    *suspect = state_->tree.Suspect(message);
    return ToStatus(absl::StrCat("connecting the mesh: ", message));
  }
}

OpenResult GlooTransport::Open(const MeshSpec& mesh, absl::Time deadline) {
  Close();
  OpenResult result;
  state_->set_generation(mesh.generation);
  if (options_.world_size > 1) {
    result.status = OpenTree(mesh, deadline, &result.suspect);
    result.address = {options_.interface.name, options_.interface.address};
  }
  if (state_->Interrupted(mesh.generation)) result.status = absl::CancelledError("interrupted");
  if (result.status.ok()) return result;
  Close();
  ShareFailure(&result.status, &result.suspect);
  return result;
}

ExchangeResult GlooTransport::Exchange(ExchangeKind kind, absl::string_view record,
                                       absl::Time deadline) {
  ExchangeResult result;
  const size_t size = options_.sizes.of(kind);
  if (record.size() != size) {
    result.status = absl::InvalidArgumentError(
        absl::StrCat("a record has ", record.size(), " bytes, not ", size));
    return result;
  }
  if (state_->Interrupted(state_->generation())) {
    result.status = absl::CancelledError("interrupted");
  } else if (options_.world_size == 1) {
    result.table = std::string(record);
    return result;
  } else if (!state_->tree.connected()) {
    result.status = absl::FailedPreconditionError("no mesh is open");
    return result;
  } else {
    try {
      if (state_->tree.AllGather(record, deadline)) {
        result.table = state_->tree.Table();
        return result;
      }
      result.status = absl::CancelledError("interrupted");
    } catch (const std::exception& error) {
      const std::string message = CleanMessage(error.what());
      Close();
      result.suspect = state_->tree.Suspect(message);
      result.status = ToStatus(message);
    }
  }
  Close();
  ShareFailure(&result.status, &result.suspect);
  return result;
}

void GlooTransport::ShareFailure(absl::Status* status, std::optional<Rank>* suspect) const {
  if (!state_->hierarchical || absl::IsCancelled(*status)) return;
  if (absl::IsUnavailable(*status) && state_->tree.waited_for_leader()) {
    const absl::Duration wait = state_->tree.leads() ? kNoteWait : kMemberNoteWait;
    RendezvousStore store = StoreAt("", absl::Now() + wait);
    const auto note = store.Fetch({kNoteKey}, store.deadline());
    const size_t space = note.ok() ? note->front().find(' ') : std::string::npos;
    int rank = 0;
    if (space != std::string::npos && absl::SimpleAtoi(note->front().substr(0, space), &rank)) {
      *suspect = Rank(rank);
      *status = absl::UnavailableError(note->front().substr(space + 1));
      return;
    }
  }
  if (!suspect->has_value()) return;
  // Only a help: without it the others name the leader.
  StoreAt("", absl::Now() + kNoteWait)
      .Publish(kNoteKey, absl::StrCat((*suspect)->value(), " ", status->message()))
      .IgnoreError();
}

void GlooTransport::Close() {
  try {
    state_->tree.Destroy();
  } catch (const std::exception&) {
    // Sockets that are broken already: there is nothing left to close.
  }
}

void GlooTransport::Interrupt(Generation generation) {
  state_->Interrupt(generation);
  store_->Cancel();
}

}  // namespace odb
