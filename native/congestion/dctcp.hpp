// DCTCP: once a window, as much of it goes as there were marks. Pure.
//
// Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; RFC 8257. It begins with the bandwidth-delay
// product instead of slow start, as RDMA does.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"

namespace genie::congestion {

struct DctcpConfig {
  double gain = 1.0 / 16;          // g
  double additive = 1.0;           // packets a round trip
  std::int64_t initial_bytes = 0;  // 0: the bandwidth-delay product
  std::int64_t maximum_bytes = 0;  // 0: eight times that
  friend bool operator==(const DctcpConfig&, const DctcpConfig&) = default;
};

class Dctcp final : public Controller {
 public:
  Dctcp(const DctcpConfig& config, std::int64_t product_bytes, std::uint32_t mtu_bytes)
      : config_(&config),
        mtu_bytes_(mtu_bytes),
        window_(static_cast<double>(config.initial_bytes > 0 ? config.initial_bytes : product_bytes)),
        maximum_(static_cast<double>(config.maximum_bytes > 0 ? config.maximum_bytes : 8 * product_bytes)) {
    apply();
  }

  double alpha() const { return alpha_; }

  void acknowledged(const Acknowledgement& news) override {
    acknowledged_ += static_cast<double>(news.bytes);
    if (news.congested) marked_ += static_cast<double>(news.bytes);
    if (!cut_) {
      if (news.congested) {  // at the first mark of a window, by what was learned before
        window_ *= 1 - alpha_ / 2;
        cut_ = true;
      } else {
        window_ += config_->additive * mtu_bytes_ * static_cast<double>(news.bytes) / window_;
      }
    }
    if (news.acknowledged > window_end_) {
      if (acknowledged_ > 0) alpha_ += config_->gain * (marked_ / acknowledged_ - alpha_);
      acknowledged_ = marked_ = 0;
      window_end_ = news.sent;
      cut_ = false;
    }
    apply();
  }

  void lost(TimePs) override {
    window_ /= 2;
    apply();
  }

  bool is_replayed() const override { return true; }
  std::unique_ptr<Controller> clone() const override { return std::make_unique<Dctcp>(*this); }
  void fold(Fold& fold, const Fold::Base& acknowledged) override {
    static_assert(has_size<Dctcp>(96));
    Controller::fold(fold, acknowledged);
    fold.exact(window_, alpha_, acknowledged_, marked_, cut_);
    fold.relative(acknowledged, window_end_);
  }

 private:
  void apply() {
    window_ = std::clamp(window_, mtu_bytes_, std::max(maximum_, mtu_bytes_));
    assert(window_ >= mtu_bytes_ && alpha_ >= 0 && alpha_ <= 1);
    window_bytes_ = static_cast<std::int64_t>(window_);
  }

  const DctcpConfig* config_;
  double mtu_bytes_, window_, maximum_;
  double alpha_ = 1, acknowledged_ = 0, marked_ = 0;  // bytes of this window
  std::uint64_t window_end_ = 0;                      // packets, ever
  bool cut_ = false;                                  // in this window
};

}  // namespace genie::congestion
