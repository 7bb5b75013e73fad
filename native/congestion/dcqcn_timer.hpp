// DCQCN as network cards and their models have it: the rate is cut at most once in an interval, and raised by
// time alone. Pure.
//
// A notification is noted. Every `decrease_interval` from the first, what was noted cuts the rate. Every
// `alpha_interval`, alpha moves up or down. Raises of the rate start anew `increase_timer` after each cut.
// Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, gives the equations. The
// intervals are those of Li et al., "HPCC", SIGCOMM 2019, whose experiments compare with DCQCN.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct DcqcnTimerConfig {
  std::int64_t minimum_rate_bps = 100'000'000;
  std::int64_t additive_bps = 50'000'000;
  std::int64_t hyper_bps = 100'000'000;
  TimePs alpha_interval = 1 * kPsPerUs;
  TimePs decrease_interval = 4 * kPsPerUs;
  TimePs increase_timer = 900 * kPsPerUs;
  std::uint32_t fast_recovery = 1;  // raises to the target before it moves
  double gain = 1.0 / 256;
  bool clamp_target = false;      // the target follows every cut, also those with no raise between
  bool rate_window = false;       // the window shrinks with the rate
  std::int64_t window_bytes = 0;  // 0: none
  friend bool operator==(const DcqcnTimerConfig&, const DcqcnTimerConfig&) = default;
};

class DcqcnTimer final : public Controller {
 public:
  DcqcnTimer(const DcqcnTimerConfig& config, std::int64_t line_rate_bps)
      : config_(&config),
        line_rate_bps_(line_rate_bps),
        rate_bps_(line_rate_bps_),
        target_bps_(line_rate_bps_) {
    set_window();
  }

  std::unique_ptr<Controller> clone() const override { return std::make_unique<DcqcnTimer>(*this); }
  std::int64_t rate_bps(TimePs now) override {
    advance(now);
    assert(rate_bps_ > 0);
    return rate_bps_;
  }
  std::int64_t seen_rate_bps(TimePs now) const override { return DcqcnTimer(*this).rate_bps(now); }

  void notified(TimePs now) override {
    advance(now);
    if (next_alpha_ == kNever) {  // the first
      paced_ = true;
      next_alpha_ = now + config_->alpha_interval;
      next_decrease_ = now + config_->decrease_interval + 1000;  // 1 ns: always after alpha
      noted_for_decrease_ = true;
    } else {
      noted_for_alpha_ = noted_for_decrease_ = true;
    }
  }

  void acknowledged(const Acknowledgement& news) override { advance(news.now); }

  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<DcqcnTimer>(96));
    Controller::fold(fold, acknowledged);
    fold.exact(rate_bps_, target_bps_, alpha_, raises_, noted_for_alpha_, noted_for_decrease_);
    fold.moment(next_alpha_);
    fold.moment(next_decrease_);
    fold.moment(next_increase_);
  }

 private:
  void advance(TimePs now) {
    while (true) {
      const TimePs next = std::min({next_alpha_, next_decrease_, next_increase_});
      if (next > now) return;
      if (next == next_alpha_) {
        next_alpha_ += config_->alpha_interval;
        alpha_ = (1 - config_->gain) * alpha_ + (noted_for_alpha_ ? config_->gain : 0);
        noted_for_alpha_ = false;
      } else if (next == next_increase_) {  // before a cut at the same time, as it was set before that
        next_increase_ += config_->increase_timer;
        increase();
      } else {
        next_decrease_ += config_->decrease_interval;
        if (noted_for_decrease_) decrease(next);
        noted_for_decrease_ = false;
      }
    }
  }

  void decrease(TimePs at) {
    if (config_->clamp_target || raises_ != 0 || next_increase_ == kNever) target_bps_ = rate_bps_;
    const double lower = static_cast<double>(rate_bps_) * (1 - alpha_ / 2);
    rate_bps_ = std::max(static_cast<std::int64_t>(lower), config_->minimum_rate_bps);
    raises_ = 0;
    next_increase_ = at + config_->increase_timer;
    set_window();
  }

  void increase() {
    if (raises_ >= config_->fast_recovery) {
      const std::int64_t step =
          raises_ == config_->fast_recovery ? config_->additive_bps : config_->hyper_bps;
      target_bps_ = std::min(target_bps_ + step, line_rate_bps_);
    }
    rate_bps_ = (rate_bps_ + target_bps_) / 2;
    ++raises_;
    set_window();
  }

  void set_window() {
    if (config_->window_bytes == 0) return;
    const double share =
        config_->rate_window ? static_cast<double>(rate_bps_) / static_cast<double>(line_rate_bps_) : 1;
    window_bytes_ = static_cast<std::int64_t>(static_cast<double>(config_->window_bytes) * share);
  }

  const DcqcnTimerConfig* config_;
  std::int64_t line_rate_bps_, rate_bps_, target_bps_;
  double alpha_ = 1;
  TimePs next_alpha_ = kNever, next_decrease_ = kNever, next_increase_ = kNever;
  std::uint32_t raises_ = 0;  // since the last cut
  bool noted_for_alpha_ = false, noted_for_decrease_ = false;
};

}  // namespace genie::congestion
