// When a receiver of marked packets says so: at most one congestion notification packet for each queue pair
// and interval. Pure. Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015,
// section 3.
#pragma once
#include "core/time.hpp"

namespace genie::congestion {

class NotificationPoint {
 public:
  // A marked packet has come: whether a notification is due.
  bool marked(TimePs now, TimePs interval) {
    if (now < next_) return false;
    next_ = now + interval;
    return true;
  }

 private:
  TimePs next_ = 0;
};

}  // namespace genie::congestion
