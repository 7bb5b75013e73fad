// A window and a rate that never change: what a queue pair's rate limiter does.
#pragma once
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct FixedWindowConfig {
  std::int64_t window_bytes = 0;  // 0: the bandwidth-delay product; below: none
  std::int64_t rate_bps = 0;      // of each queue pair; 0: the port's
  friend bool operator==(const FixedWindowConfig&, const FixedWindowConfig&) = default;
};

class FixedWindow final : public Controller {
 public:
  FixedWindow(std::int64_t window_bytes, std::int64_t rate_bps) : own_bps_(rate_bps) {
    if (window_bytes > 0) window_bytes_ = window_bytes;
    paced_ = rate_bps > 0;
  }
  std::unique_ptr<Controller> clone() const override { return std::make_unique<FixedWindow>(*this); }
  std::int64_t rate_bps(TimePs now) override { return seen_rate_bps(now); }
  std::int64_t seen_rate_bps(TimePs) const override { return own_bps_; }

 private:
  std::int64_t own_bps_;
};

}  // namespace genie::congestion
