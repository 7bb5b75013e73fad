// TIMELY: the rate follows the gradient of round trips. Pure.
//
// Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, algorithm 1. It has
// no unique fixed point (Zhu et al., "ECN or Delay", CoNEXT 2016): it keeps round trips between its
// thresholds, not flows equal.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct TimelyConfig {
  TimePs low = 50 * kPsPerUs, high = 500 * kPsPerUs;  // T_low, T_high
  TimePs minimum_round_trip = 20 * kPsPerUs;
  std::int64_t additive_bps = 10'000'000;  // delta
  std::int64_t minimum_rate_bps = 10'000'000;
  std::int64_t segment_bytes = 16 * 1024;  // acknowledged between two updates
  double weight = 0.46;                    // of the newest difference: alpha
  double decrease = 0.26;                  // beta
  std::uint32_t hyper_after = 5;           // falling gradients in a row
  friend bool operator==(const TimelyConfig&, const TimelyConfig&) = default;
};

class Timely final : public Controller {
 public:
  Timely(const TimelyConfig& config, std::int64_t line_rate_bps)
      : config_(&config), line_rate_bps_(static_cast<double>(line_rate_bps)), rate_bps_(line_rate_bps_) {
    paced_ = moves_waiting_ = true;
  }

  std::int64_t rate_bps(TimePs now) override { return seen_rate_bps(now); }
  std::int64_t seen_rate_bps(TimePs) const override {
    assert(rate_bps_ >= 1 && rate_bps_ <= line_rate_bps_);
    return static_cast<std::int64_t>(rate_bps_);
  }

  void acknowledged(const Acknowledgement& news) override {
    bytes_ += news.bytes;
    if (news.round_trip < 0 || bytes_ < config_->segment_bytes) return;
    bytes_ = 0;
    const auto round_trip = static_cast<double>(news.round_trip);
    if (last_ == 0) {
      last_ = round_trip;
      return;
    }
    difference_ = (1 - config_->weight) * difference_ + config_->weight * (round_trip - last_);
    last_ = round_trip;
    const double gradient = difference_ / static_cast<double>(config_->minimum_round_trip);
    const auto low = static_cast<double>(config_->low), high = static_cast<double>(config_->high);
    const auto step = static_cast<double>(config_->additive_bps);
    if (round_trip < low) {
      falling_ = 0;
      rate_bps_ += step;
    } else if (round_trip > high) {
      falling_ = 0;
      rate_bps_ *= 1 - config_->decrease * (1 - high / round_trip);
    } else if (gradient <= 0) {
      rate_bps_ += ++falling_ >= config_->hyper_after ? config_->hyper_after * step : step;
    } else {
      falling_ = 0;
      rate_bps_ *= std::max(1 - config_->decrease * gradient, 0.0);
    }
    rate_bps_ = std::clamp(rate_bps_, static_cast<double>(config_->minimum_rate_bps), line_rate_bps_);
  }

  bool is_replayed() const override { return true; }
  std::unique_ptr<Controller> clone() const override { return std::make_unique<Timely>(*this); }
  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<Timely>(80));
    Controller::fold(fold, acknowledged);
    fold.exact(rate_bps_, last_, difference_, bytes_, std::min(falling_, config_->hyper_after));
  }

 private:
  const TimelyConfig* config_;
  double line_rate_bps_, rate_bps_;
  double last_ = 0, difference_ = 0;
  std::int64_t bytes_ = 0;
  std::uint32_t falling_ = 0;
};

}  // namespace genie::congestion
