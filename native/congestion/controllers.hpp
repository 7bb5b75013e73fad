// All controls behind one configuration.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "congestion/controller.hpp"
#include "congestion/dcqcn.hpp"
#include "congestion/dcqcn_timer.hpp"
#include "congestion/dctcp.hpp"
#include "congestion/fixed_window.hpp"
#include "congestion/hpcc.hpp"
#include "congestion/nscc.hpp"
#include "congestion/swift.hpp"
#include "congestion/timely.hpp"

namespace genie::congestion {

struct Config {
  Control control = Control::kNone;
  std::int64_t line_rate_bps = 0;
  TimePs base_round_trip = 0;           // of a packet on an idle network
  TimePs cnp_interval = 50 * kPsPerUs;  // least time between two notifications of one queue pair
  bool notify_in_acks = false;          // acknowledgements of marked packets notify, instead of CNPs
  DcqcnConfig dcqcn;
  DcqcnTimerConfig dcqcn_timer;
  HpccConfig hpcc;
  TimelyConfig timely;
  SwiftConfig swift;
  DctcpConfig dctcp;
  NsccConfig nscc;
  FixedWindowConfig fixed_window;
  friend bool operator==(const Config&, const Config&) = default;

  std::int64_t product_bytes() const { return bytes_in(line_rate_bps, base_round_trip); }
};

// Of one queue pair; it refers to the configuration. None for kNone.
inline std::unique_ptr<Controller> make_controller(const Config& config, std::uint32_t mtu_bytes) {
  switch (config.control) {
    case Control::kNone:
      return nullptr;
    case Control::kWindow:
      return std::make_unique<FixedWindow>(
          config.fixed_window.window_bytes != 0 ? config.fixed_window.window_bytes : config.product_bytes(),
          config.fixed_window.rate_bps);
    case Control::kDcqcn:
      return std::make_unique<Dcqcn>(config.dcqcn, config.line_rate_bps);
    case Control::kDcqcnTimer:
      return std::make_unique<DcqcnTimer>(config.dcqcn_timer, config.line_rate_bps);
    case Control::kHpcc:
      return std::make_unique<Hpcc>(config.hpcc, config.line_rate_bps, config.base_round_trip);
    case Control::kTimely:
      return std::make_unique<Timely>(config.timely, config.line_rate_bps);
    case Control::kSwift:
      return std::make_unique<Swift>(config.swift, config.line_rate_bps, config.base_round_trip, mtu_bytes);
    case Control::kDctcp:
      return std::make_unique<Dctcp>(config.dctcp, config.product_bytes(), mtu_bytes);
    case Control::kNscc:
      return std::make_unique<Nscc>(config.nscc, config.product_bytes(), config.base_round_trip, mtu_bytes);
  }
  return nullptr;
}

}  // namespace genie::congestion
