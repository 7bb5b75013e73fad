// HPCC: the rate follows the queue and the utilisation that every port on the path reports. Pure.
//
// Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1; the window is the rate
// times the base round trip.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct HpccConfig {
  double utilisation = 0.95;               // eta
  std::uint32_t stages = 0;                // maxStage: additive raises before a multiplicative one
  std::int64_t additive_bps = 50'000'000;  // W_AI, as a rate
  std::int64_t minimum_rate_bps = 100'000'000;
  bool window = true;  // otherwise only the rate
  friend bool operator==(const HpccConfig&, const HpccConfig&) = default;
};

class Hpcc final : public Controller {
 public:
  Hpcc(const HpccConfig& config, std::int64_t line_rate_bps, TimePs base_round_trip)
      : config_(&config),
        line_rate_bps_(line_rate_bps),
        base_(static_cast<double>(base_round_trip)),
        rate_bps_(line_rate_bps_),
        reference_bps_(line_rate_bps_) {
    paced_ = moves_waiting_ = true;
    set_window();
  }

  std::unique_ptr<Controller> clone() const override { return std::make_unique<Hpcc>(*this); }
  std::int64_t rate_bps(TimePs now) override { return seen_rate_bps(now); }
  std::int64_t seen_rate_bps(TimePs) const override {
    assert(rate_bps_ > 0 && rate_bps_ <= line_rate_bps_);
    return rate_bps_;
  }
  double utilisation() const { return utilisation_; }

  void acknowledged(const Acknowledgement& news) override {
    if (news.telemetry == nullptr || news.telemetry->count == 0) return;
    if (last_.count == 0) {
      remember(*news.telemetry);
      updated_at_ = news.sent;
      return;
    }
    const bool round = news.acknowledged > updated_at_;  // once a round trip the reference moves
    if (measure(*news.telemetry)) react(round);
    remember(*news.telemetry);
    if (round) updated_at_ = news.sent;
  }

  bool is_replayed() const override { return true; }
  bool reads_telemetry() const override { return true; }

  // Replayed, and so never compared: readings in the units of a header are not those of the period before.
  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<Hpcc>(1376));
    Controller::fold(fold, acknowledged);
    fold.exact(rate_bps_, reference_bps_, utilisation_, stage_, last_.count);
    fold.relative(acknowledged, updated_at_);
    for (std::size_t at = 0; at < last_.count; ++at) {
      Hop& hop = last_.hops[at];
      fold.exact(hop.queue_bytes, hop.rate_bps, hop.port);
      fold.moment(hop.time);
      fold.reading(hop.sent_bytes);
    }
  }

 private:
  void remember(const Telemetry& now) {  // not the places that no port has written to
    std::transform(now.hops.begin(), now.hops.begin() + now.count, last_.hops.begin(),
                   [](const Hop& hop) { return as_carried(hop); });
    last_.count = now.count;
  }

  // The most used port, averaged over a round trip. On another path, the ports that it has in common with the
  // one before.
  bool measure(const Telemetry& now) {
    double most = 0, elapsed = 0;
    for (std::size_t at = 0; at < std::min(now.count, last_.count); ++at) {
      const Hop hop = as_carried(now.hops[at]), &before = last_.hops[at];
      if (hop.port != before.port) continue;
      const auto delta = static_cast<double>(hop.time - before.time);
      if (delta <= 0) continue;
      assert(hop.sent_bytes >= before.sent_bytes);
      const auto rate = static_cast<double>(hop.rate_bps);
      const double bits = static_cast<double>(hop.sent_bytes - before.sent_bytes) * 8e12;
      const double queued = static_cast<double>(std::min(hop.queue_bytes, before.queue_bytes)) * 8e12;
      const double use = bits / delta / rate + queued / base_ / rate;
      if (use > most) {
        most = use;
        elapsed = delta;
      }
    }
    if (elapsed == 0) return false;
    const double share = std::min(elapsed, base_) / base_;
    utilisation_ = utilisation_ * (1 - share) + most * share;
    return true;
  }

  void react(bool round) {
    const double excess = utilisation_ / config_->utilisation;
    const bool multiply = excess >= 1 || stage_ >= config_->stages;
    // After an idle time nothing is in excess: no more than the line rate, which an integer holds.
    const double divided = static_cast<double>(reference_bps_) / (multiply ? excess : 1);
    rate_bps_ = static_cast<std::int64_t>(std::min(divided, static_cast<double>(line_rate_bps_)));
    rate_bps_ = std::clamp(rate_bps_ + config_->additive_bps, config_->minimum_rate_bps, line_rate_bps_);
    set_window();
    if (!round) return;
    reference_bps_ = rate_bps_;
    stage_ = multiply ? 0 : stage_ + 1;
  }

  void set_window() {
    if (config_->window)
      window_bytes_ = static_cast<std::int64_t>(static_cast<double>(rate_bps_) * base_ / 8e12);
  }

  const HpccConfig* config_;
  std::int64_t line_rate_bps_;
  double base_;
  std::int64_t rate_bps_, reference_bps_;  // R and, of W_c, the rate
  double utilisation_ = 1;
  Telemetry last_;
  std::uint64_t updated_at_ = 0;
  std::uint32_t stage_ = 0;
};

}  // namespace genie::congestion
