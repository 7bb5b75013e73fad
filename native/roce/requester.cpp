#include "roce/requester.hpp"

#include <algorithm>
#include <cassert>

#include "core/fold.hpp"

namespace genie::roce {

bool Requester::is_consistent() const {
  const std::int32_t in_flight = psn_diff(send_psn_, unacked_psn_);
  if (in_flight < 0 || psn_diff(sent_end_psn_, send_psn_) < 0) return false;
  if (cursor_ > queue_.size() || reads_ > cursor_) return false;
  if ((state_ == RequesterState::kIdle || state_ == RequesterState::kError) != queue_.empty()) return false;
  if (again_psn_ != again_end_ &&
      (psn_diff(again_psn_, unacked_psn_) < 0 || psn_diff(again_end_, again_psn_) < 0 ||
       psn_diff(sent_end_psn_, again_end_) < 0))
    return false;
  if (cursor_ == queue_.size()) return true;
  const Entry& entry = queue_.at(cursor_);
  const std::int32_t place = psn_diff(send_psn_, entry.first_psn);
  return place >= 0 && place < static_cast<std::int32_t>(entry.packets);
}

std::uint32_t Requester::message_left() const {
  if (cursor_ == queue_.size()) return 0;
  const Entry& entry = queue_.at(cursor_);
  return psn_add(entry.first_psn, entry.packets + kPsnMask + 1 - send_psn_);
}

SendProgress Requester::progress() const {
  if (queue_.empty()) return {};
  const Entry& entry = queue_.at(0);
  const std::uint32_t end_psn = psn_add(entry.first_psn, entry.packets);
  const std::int32_t left = std::min(psn_diff(end_psn, send_psn_), psn_diff(end_psn, sent_end_psn_));
  return {.messages = queue_.size(),
          .unacked_psn = unacked_psn_,
          .end_psn = end_psn,
          .packets = entry.packets,
          .left = static_cast<std::uint32_t>(std::max(left, 0))};
}

Fold::Base Requester::fold(Fold& fold) {
  static_assert(has_size<Requester>(240));
  const auto in_flight = static_cast<std::uint32_t>(std::max(psn_diff(sent_end_psn_, unacked_psn_), 0));
  const Fold::Base psn = fold.packets(unacked_psn_, Fold::Way::kSent, kPsnMask);
  const Fold::Base ssn = fold.base(ssn_, kPsnMask);
  fold.exact(state_, restrained_, credited_, recovering_, gap_, cursor_, since_request_, retries_);
  fold.exact(rnr_retries_, backoff_, last_syndrome_, reads_);
  queue_.fold(fold, psn, ssn, send_psn_);
  for (std::uint32_t* number : {&send_psn_, &sent_end_psn_, &again_psn_, &again_end_, &last_psn_})
    fold.relative(psn, *number, kPsnMask);
  fold.either(psn, post_psn_, kPsnMask);
  if (recovering_) fold.relative(psn, recovered_psn_, kPsnMask);
  if (credited_) fold.relative(ssn, limit_ssn_, kPsnMask);
  fold.moment(deadline_);
  fold.timer(armed_);
  control_.fold(fold, psn, in_flight);
  ports_.fold(fold);
  return psn;
}

void Requester::leave_out_acknowledged() {
  if (psn_diff(again_psn_, unacked_psn_) < 0) again_psn_ = unacked_psn_;
  if (psn_diff(again_end_, again_psn_) < 0) again_end_ = again_psn_;
}

void Requester::go_back(std::uint32_t psn) {
  assert(psn_diff(psn, unacked_psn_) >= 0 && psn_diff(psn, sent_end_psn_) <= 0);
  again_psn_ = again_end_ = psn;
  send_psn_ = psn;
  since_request_ = cursor_ = reads_ = 0;
  while (cursor_ < queue_.size()) {
    const Entry& entry = queue_.at(cursor_);
    if (psn_diff(psn, psn_add(entry.first_psn, entry.packets)) < 0) break;
    if (entry.request.verb == Verb::kRead) ++reads_;
    ++cursor_;
  }
}

}  // namespace genie::roce
