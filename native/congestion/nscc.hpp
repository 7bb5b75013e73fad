// A window that marks and delay move together, after the network signaled congestion control of Ultra
// Ethernet. Pure.
//
// Ultra Ethernet Specification 1.0, section 3.6.13 (NSCC). It has four cases, by whether an acknowledgement
// is marked and whether the queuing delay is above its target. Quick adaptation: after a loss the window
// falls to what was acknowledged in a round trip, where that is less.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct NsccConfig {
  TimePs target = 0;        // queuing delay; 0: 3/4 of the base round trip
  double proportional = 4;  // packets a round trip at no delay, in proportion to what the target leaves
  double fair = 0.25;       // packets a round trip without marks
  double decrease = 0.8;    // gamma: of the share of the delay that is above the target
  double decrease_maximum = 0.5;
  double average = 1.0 / 8;  // weight of the newest delay
  double maximum = 1.5;      // bandwidth-delay products
  friend bool operator==(const NsccConfig&, const NsccConfig&) = default;
};

class Nscc final : public Controller {
 public:
  Nscc(const NsccConfig& config, std::int64_t product_bytes, TimePs base_round_trip, std::uint32_t mtu_bytes)
      : config_(&config),
        mtu_bytes_(mtu_bytes),
        base_(base_round_trip),
        target_(static_cast<double>(config.target > 0 ? config.target : base_round_trip * 3 / 4)),
        maximum_(
            std::max(config.maximum * static_cast<double>(product_bytes), static_cast<double>(mtu_bytes))),
        window_(maximum_) {
    apply();
  }

  void acknowledged(const Acknowledgement& news) override {
    round_bytes_ += news.bytes;
    if (news.now >= round_end_) {  // a round trip is over
      achieved_bytes_ = round_bytes_;
      round_bytes_ = 0;
      round_end_ = news.now + base_;
    }
    if (news.round_trip < 0) return;
    const auto delay = static_cast<double>(std::max<TimePs>(news.round_trip - base_, 0));
    delay_ += config_->average * (delay - delay_);
    const double packets =
        mtu_bytes_ * static_cast<double>(news.bytes) / window_;  // spread over a round trip
    if (!news.congested && delay < target_) {
      window_ += config_->proportional * packets * (1 - delay / target_) + config_->fair * packets;
    } else if (!news.congested) {
      window_ += config_->fair * packets;
    } else if (delay >= target_ && delay_ > target_ && news.now >= cut_until_) {
      window_ *= std::max(1 - config_->decrease * (delay_ - target_) / delay_, 1 - config_->decrease_maximum);
      cut_until_ = news.now + base_;
    }
    apply();
  }

  void lost(TimePs now) override {
    if (now < cut_until_) return;
    window_ = std::min(window_, static_cast<double>(std::max<std::int64_t>(achieved_bytes_, round_bytes_)));
    cut_until_ = now + base_;
    apply();
  }

  bool is_replayed() const override { return true; }
  std::unique_ptr<Controller> clone() const override { return std::make_unique<Nscc>(*this); }
  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<Nscc>(112));
    Controller::fold(fold, acknowledged);
    fold.exact(window_, delay_, round_bytes_, achieved_bytes_);
    fold.not_before(round_end_);
    fold.not_before(cut_until_);
  }

 private:
  void apply() {
    window_ = std::clamp(window_, mtu_bytes_, maximum_);
    assert(window_ >= mtu_bytes_ && window_ <= maximum_);
    window_bytes_ = static_cast<std::int64_t>(window_);
  }

  const NsccConfig* config_;
  double mtu_bytes_;
  TimePs base_;
  double target_, maximum_, window_;
  double delay_ = 0;  // average
  std::int64_t round_bytes_ = 0, achieved_bytes_ = 0;
  TimePs round_end_ = 0, cut_until_ = 0;
};

}  // namespace genie::congestion
