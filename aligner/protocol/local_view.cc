#include "aligner/protocol/local_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aligner/protocol/describe.h"
#include "base/status_macros.h"

namespace odb {
namespace {

bool IsFatal(ClosingReason reason) {
  return reason == ClosingReason::kTrainerLost || reason == ClosingReason::kDaemonStopping ||
         reason == ClosingReason::kFailed;
}

bool SameContent(const Offer& a, const Offer& b) {
  return a.header.state == b.header.state && a.header.epoch == b.header.epoch &&
         a.header.iterator == b.header.iterator && a.header.dropped == b.header.dropped &&
         a.header.unread == b.header.unread && a.window == b.window;
}

}  // namespace

LocalState LocalStateOf(const OfferHeader& head) {
  LocalState state;
  state.round = head.round;
  state.epoch = head.epoch;
  state.iterator = head.iterator;
  state.not_ready_reason = head.not_ready_reason;
  state.closing_reason =
      head.state == OfferState::kClosing ? head.closing_reason : ClosingReason::kNone;
  state.waiting = head.waiting;
  state.position = head.position;
  state.modality_mask = head.modality_mask;
  return state;
}

absl::Status LocalView::SetOffer(Offer offer) {
  const OfferState state = offer.header.state;
  const bool usable = state == OfferState::kReady
                          ? !offer.window.empty()
                          : state == OfferState::kDry && offer.window.empty();
  const bool changed = offer_.has_value() && offer_->header.round == offer.header.round &&
                       !SameContent(*offer_, offer);
  if (!usable || changed) {
    return absl::InternalError(absl::StrCat(
        usable ? "changed its offer of round " : "sent an unusable offer of round ",
        offer.header.round.value(), " (", Describe(state), ", ", offer.window.size(), " samples)"));
  }
  offer_ = std::move(offer);
  return absl::OkStatus();
}

OfferHeader LocalView::HeadOf(RoundId round) const {
  const bool state_is_current = state_.round >= round;
  const bool is_closing = IsFatal(state_.closing_reason) ||
                          (state_is_current && state_.closing_reason != ClosingReason::kNone);
  OfferHeader head;
  head.epoch = state_.epoch;
  head.iterator = state_.iterator;
  head.position = state_.position;
  head.waiting = state_.waiting;
  head.modality_mask = state_.modality_mask;
  if (is_closing) {
    head.state = OfferState::kClosing;
    head.closing_reason = state_.closing_reason;
    return head;
  }
  if (!offer_.has_value() || offer_->header.round != round) {
    const bool odbd_is_behind = !state_is_current && state_.round > RoundId(0);
    head.not_ready_reason = odbd_is_behind ? NotReadyReason::kPlanning : state_.not_ready_reason;
    return head;
  }
  const OfferHeader& offered = offer_->header;
  const bool same_iteration = offered.epoch == head.epoch && offered.iterator == head.iterator;
  if (!same_iteration || offered.position > head.position) {  // the state is older than the offer
    head.position = offered.position;
    head.waiting = offered.waiting;
  }
  head.state = offered.state;
  head.epoch = offered.epoch;
  head.iterator = offered.iterator;
  head.modality_mask = offered.modality_mask;
  head.dropped = offered.dropped;
  head.unread = offered.unread;
  return head;
}

const std::vector<SampleShape>& LocalView::window() const {
  INVARIANT(offer_.has_value(), "there is no offer");
  return offer_->window;
}

}  // namespace odb
