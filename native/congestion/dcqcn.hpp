// DCQCN at the sender (reaction point): the rate of one queue pair, cut by congestion notifications and
// raised again by time and bytes. Pure: it keeps no clock and asks for no timer. The caller that asks for the
// rate passes the time, and events that fell due before it take effect then.
//
// Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3; names as there.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct DcqcnConfig {
  std::int64_t minimum_rate_bps = 10'000'000;
  std::int64_t additive_bps = 40'000'000;   // R_AI
  std::int64_t hyper_bps = 400'000'000;     // R_HAI
  TimePs alpha_timer = 55 * kPsPerUs;       // K
  TimePs increase_timer = 55 * kPsPerUs;    // T
  std::uint64_t byte_counter = 10'000'000;  // B; 0: raise by time alone
  std::uint32_t fast_recovery = 5;          // F
  std::int64_t gain_inverse = 256;          // 1/g
  friend bool operator==(const DcqcnConfig&, const DcqcnConfig&) = default;
};

class Dcqcn final : public Controller {
 public:
  Dcqcn(const DcqcnConfig& config, std::int64_t line_rate_bps)
      : config_(&config),
        line_rate_bps_(line_rate_bps),
        rate_bps_(line_rate_bps),
        target_bps_(line_rate_bps) {}

  std::unique_ptr<Controller> clone() const override { return std::make_unique<Dcqcn>(*this); }
  std::int64_t rate_bps(TimePs now) override {
    advance(now);
    assert(rate_bps_ > 0);
    return rate_bps_;
  }
  std::int64_t seen_rate_bps(TimePs now) const override { return Dcqcn(*this).rate_bps(now); }
  std::int64_t target_bps() const { return target_bps_; }
  double alpha() const { return static_cast<double>(alpha_) / kOne; }

  // A congestion notification packet has come (equations 1 and 2).
  void notified(TimePs now) override {
    advance(now);
    paced_ = true;
    target_bps_ = rate_bps_;
    rate_bps_ = std::max(rate_bps_ - scaled(rate_bps_, alpha_) / 2, config_->minimum_rate_bps);
    alpha_ += (kOne - alpha_) / config_->gain_inverse;
    timer_events_ = byte_events_ = 0;
    sent_bytes_ = 0;
    next_alpha_ = now + config_->alpha_timer;
    next_increase_ = now + config_->increase_timer;
  }

  void sent(std::uint64_t size_bytes, TimePs now) override {
    if (!paced_ || config_->byte_counter == 0) return;
    advance(now);
    for (sent_bytes_ += size_bytes; paced_ && sent_bytes_ >= config_->byte_counter;) {
      sent_bytes_ -= config_->byte_counter;
      ++byte_events_;
      increase();
    }
  }

  // Alpha decays by absolute time and is brought up to date late. A notification alone reads it, and forbids
  // a shift.
  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<Dcqcn>(96));
    Controller::fold(fold, acknowledged);
    fold.exact(rate_bps_, target_bps_, timer_events_, byte_events_);
    fold.own_time(next_alpha_);
    if (!paced_) return;
    fold.exact(sent_bytes_);
    fold.moment(next_increase_);
  }

 private:
  static constexpr std::int64_t kOne = std::int64_t{1} << 30;  // alpha's unit

  static std::int64_t scaled(std::int64_t rate_bps, std::int64_t share) {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(static_cast<Wide>(rate_bps) * share / kOne);
  }

  // The timers that ran out until `now`. Alpha's and the rate's do not look at each other.
  void advance(TimePs now) {
    for (; next_alpha_ <= now && alpha_ >= config_->gain_inverse; next_alpha_ += config_->alpha_timer)
      alpha_ -= alpha_ / config_->gain_inverse;
    for (; paced_ && next_increase_ <= now; next_increase_ += config_->increase_timer) {
      ++timer_events_;
      increase();
    }
  }

  // Fast recovery: the first F events of either kind raise the rate towards the target. Then the target
  // itself goes up slowly. It goes up fast when time and bytes both say so (equations 3 and 4).
  void increase() {
    const std::uint32_t most = std::max(timer_events_, byte_events_);
    const std::uint32_t least = config_->byte_counter == 0 ? 0 : std::min(timer_events_, byte_events_);
    if (least > config_->fast_recovery) {
      target_bps_ += config_->hyper_bps * (least - config_->fast_recovery);
    } else if (most > config_->fast_recovery) {
      target_bps_ += config_->additive_bps;
    }
    target_bps_ = std::min(target_bps_, line_rate_bps_);
    rate_bps_ = (rate_bps_ + target_bps_ + 1) / 2;
    // At the line rate there is nothing left to raise: no timer runs until the next notification.
    paced_ = rate_bps_ < line_rate_bps_;
  }

  const DcqcnConfig* config_;
  std::int64_t line_rate_bps_, rate_bps_, target_bps_;
  std::int64_t alpha_ = kOne;
  std::uint64_t sent_bytes_ = 0;
  TimePs next_alpha_ = kNever, next_increase_ = kNever;
  std::uint32_t timer_events_ = 0, byte_events_ = 0;
};

}  // namespace genie::congestion
