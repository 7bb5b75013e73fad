// Swift: the window follows the distance of the delay to a target that grows with the path and shrinks with
// the window. Pure.
//
// Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM
// 2020, algorithms 1 and 2. Swift has the fabric's window alone here.
#pragma once
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct SwiftConfig {
  TimePs base_target = 0;  // 0: 1.5 times the base round trip
  TimePs flow_range = 0;   // of the part that falls with the window; 0: the base round trip
  double flow_minimum = 0.1, flow_maximum = 100;  // packets: the range's ends
  double additive = 1.0;                          // packets a round trip
  double decrease = 0.8;                          // beta
  double decrease_maximum = 0.5;                  // max_mdf
  double minimum_packets = 0.01;
  friend bool operator==(const SwiftConfig&, const SwiftConfig&) = default;
};

class Swift final : public Controller {
 public:
  Swift(const SwiftConfig& config, std::int64_t line_rate_bps, TimePs base_round_trip,
        std::uint32_t mtu_bytes)
      : config_(&config),
        mtu_bytes_(mtu_bytes),
        base_target_(
            static_cast<double>(config.base_target > 0 ? config.base_target : base_round_trip * 3 / 2)),
        round_trip_(static_cast<double>(base_round_trip)) {
    const double range = static_cast<double>(config.flow_range > 0 ? config.flow_range : base_round_trip);
    slope_ = range / (1 / std::sqrt(config.flow_minimum) - 1 / std::sqrt(config.flow_maximum));
    offset_ = -slope_ / std::sqrt(config.flow_maximum);
    range_ = range;
    // The window of a path that is all its own and may hold what the target allows.
    maximum_ = std::max(
        static_cast<double>(bytes_in(line_rate_bps, static_cast<TimePs>(base_target_ + range))) / mtu_bytes_,
        1.0);
    window_ = std::max(static_cast<double>(bytes_in(line_rate_bps, base_round_trip)) / mtu_bytes_, 1.0);
    moves_waiting_ = true;
    apply();
  }

  std::int64_t rate_bps(TimePs now) override { return seen_rate_bps(now); }
  std::int64_t seen_rate_bps(TimePs) const override {
    return rate_of(window_ * mtu_bytes_, static_cast<TimePs>(round_trip_));
  }
  double window_packets() const { return window_; }

  void acknowledged(const Acknowledgement& news) override {
    if (news.round_trip < 0) return;
    const auto delay = static_cast<double>(news.round_trip);
    round_trip_ = delay;
    const double target = base_target_ + std::clamp(slope_ / std::sqrt(window_) + offset_, 0.0, range_);
    const double packets = static_cast<double>(news.bytes) / mtu_bytes_;
    if (delay < target) {
      window_ += config_->additive * packets / std::max(window_, 1.0);
    } else if (may_decrease(news.now)) {
      cut(std::max(1 - config_->decrease * (delay - target) / delay, 1 - config_->decrease_maximum),
          news.now);
    }
    apply();
  }

  void lost(TimePs now) override {
    if (may_decrease(now)) cut(1 - config_->decrease_maximum, now);
    apply();
  }

  bool is_replayed() const override { return true; }
  std::unique_ptr<Controller> clone() const override { return std::make_unique<Swift>(*this); }
  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<Swift>(104));
    Controller::fold(fold, acknowledged);
    fold.exact(window_, round_trip_);
    fold.not_before(cut_at_, static_cast<TimePs>(round_trip_) + 1);
  }

 private:
  bool may_decrease(TimePs now) const { return static_cast<double>(now - cut_at_) >= round_trip_; }
  void cut(double factor, TimePs now) {
    window_ *= factor;
    cut_at_ = now;
  }
  // Less than a packet is a packet now and then.
  void apply() {
    window_ = std::clamp(window_, config_->minimum_packets, maximum_);
    assert(window_ > 0 && window_ <= maximum_);
    window_bytes_ = static_cast<std::int64_t>(std::max(window_, 1.0) * mtu_bytes_);
    paced_ = window_ < 1;
  }

  const SwiftConfig* config_;
  double mtu_bytes_;
  double base_target_, slope_ = 0, offset_ = 0, range_ = 0;  // ps
  double window_ = 1, maximum_ = 1;                          // packets
  double round_trip_;                                        // ps, the newest
  TimePs cut_at_ = -kNever / 2;
};

}  // namespace genie::congestion
