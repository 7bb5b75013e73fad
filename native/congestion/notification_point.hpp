// When a receiver of marked packets says so: for the first mark at once, and then once an interval if a mark
// came in it. Pure; without a timer: the first packet after an interval's end says what was marked in it. Zhu
// et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3.
#pragma once
#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie::congestion {

class NotificationPoint {
 public:
  // A packet has come, marked or not: whether a notification is due.
  bool arrived(bool marked, TimePs now, TimePs interval) {
    pending_ |= marked;
    if (!pending_ || now < next_) return false;
    pending_ = false;
    next_ = now + interval;
    return true;
  }
  // A mark waits for its interval's end.
  bool pending() const { return pending_; }

  void fold(Fold& fold) {
    static_assert(has_size<NotificationPoint>(16));
    fold.exact(pending_);
    fold.not_before(next_);
  }

 private:
  TimePs next_ = 0;
  bool pending_ = false;
};

}  // namespace genie::congestion
