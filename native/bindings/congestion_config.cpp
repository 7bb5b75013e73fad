// genie_core.CongestionConfig and the parameters of each control.
#include "bindings/congestion_config.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <utility>

namespace genie::bindings {
namespace {

using namespace congestion;

constexpr std::array<std::pair<const char*, Control>, 9> kNames{{
    {"none", Control::kNone},
    {"window", Control::kWindow},
    {"dcqcn", Control::kDcqcn},
    {"dcqcn-timer", Control::kDcqcnTimer},
    {"hpcc", Control::kHpcc},
    {"timely", Control::kTimely},
    {"swift", Control::kSwift},
    {"dctcp", Control::kDctcp},
    {"nscc", Control::kNscc},
}};

std::string name_of(Control control) {
  for (const auto& [name, known] : kNames) {
    if (known == control) return name;
  }
  return "none";
}

Control control_named(const std::string& wanted) {
  std::string names;
  for (const auto& [name, control] : kNames) {
    if (wanted == name) return control;
    names += names.empty() ? name : std::string(", ") + name;
  }
  throw nb::value_error(("congestion control must be one of " + names).c_str());
}

}  // namespace

void register_congestion_config(nb::module_& m) {
  nb::class_<FixedWindowConfig>(m, "WindowConfig")
      .def_rw("window_bytes", &FixedWindowConfig::window_bytes)
      .def_rw("rate_bps", &FixedWindowConfig::rate_bps);
  nb::class_<DcqcnConfig>(m, "DcqcnConfig", "DCQCN's parameters at the sender; times in ps, rates in bits/s.")
      .def_rw("minimum_rate_bps", &DcqcnConfig::minimum_rate_bps)
      .def_rw("additive_bps", &DcqcnConfig::additive_bps)
      .def_rw("hyper_bps", &DcqcnConfig::hyper_bps)
      .def_rw("alpha_timer_ps", &DcqcnConfig::alpha_timer)
      .def_rw("increase_timer_ps", &DcqcnConfig::increase_timer)
      .def_rw("byte_counter_bytes", &DcqcnConfig::byte_counter)
      .def_rw("fast_recovery", &DcqcnConfig::fast_recovery)
      .def_rw("gain_inverse", &DcqcnConfig::gain_inverse);
  nb::class_<DcqcnTimerConfig>(m, "DcqcnTimerConfig")
      .def_rw("minimum_rate_bps", &DcqcnTimerConfig::minimum_rate_bps)
      .def_rw("additive_bps", &DcqcnTimerConfig::additive_bps)
      .def_rw("hyper_bps", &DcqcnTimerConfig::hyper_bps)
      .def_rw("alpha_interval_ps", &DcqcnTimerConfig::alpha_interval)
      .def_rw("decrease_interval_ps", &DcqcnTimerConfig::decrease_interval)
      .def_rw("increase_timer_ps", &DcqcnTimerConfig::increase_timer)
      .def_rw("fast_recovery", &DcqcnTimerConfig::fast_recovery)
      .def_rw("gain", &DcqcnTimerConfig::gain)
      .def_rw("clamp_target", &DcqcnTimerConfig::clamp_target)
      .def_rw("rate_window", &DcqcnTimerConfig::rate_window)
      .def_rw("window_bytes", &DcqcnTimerConfig::window_bytes);
  nb::class_<HpccConfig>(m, "HpccConfig")
      .def_rw("utilisation", &HpccConfig::utilisation)
      .def_rw("stages", &HpccConfig::stages)
      .def_rw("additive_bps", &HpccConfig::additive_bps)
      .def_rw("minimum_rate_bps", &HpccConfig::minimum_rate_bps)
      .def_rw("window", &HpccConfig::window);
  nb::class_<TimelyConfig>(m, "TimelyConfig")
      .def_rw("low_ps", &TimelyConfig::low)
      .def_rw("high_ps", &TimelyConfig::high)
      .def_rw("minimum_round_trip_ps", &TimelyConfig::minimum_round_trip)
      .def_rw("additive_bps", &TimelyConfig::additive_bps)
      .def_rw("minimum_rate_bps", &TimelyConfig::minimum_rate_bps)
      .def_rw("segment_bytes", &TimelyConfig::segment_bytes)
      .def_rw("weight", &TimelyConfig::weight)
      .def_rw("decrease", &TimelyConfig::decrease)
      .def_rw("hyper_after", &TimelyConfig::hyper_after);
  nb::class_<SwiftConfig>(m, "SwiftConfig")
      .def_rw("base_target_ps", &SwiftConfig::base_target)
      .def_rw("flow_range_ps", &SwiftConfig::flow_range)
      .def_rw("flow_minimum", &SwiftConfig::flow_minimum)
      .def_rw("flow_maximum", &SwiftConfig::flow_maximum)
      .def_rw("additive", &SwiftConfig::additive)
      .def_rw("decrease", &SwiftConfig::decrease)
      .def_rw("decrease_maximum", &SwiftConfig::decrease_maximum)
      .def_rw("minimum_packets", &SwiftConfig::minimum_packets);
  nb::class_<DctcpConfig>(m, "DctcpConfig")
      .def_rw("gain", &DctcpConfig::gain)
      .def_rw("additive", &DctcpConfig::additive)
      .def_rw("initial_bytes", &DctcpConfig::initial_bytes)
      .def_rw("maximum_bytes", &DctcpConfig::maximum_bytes);
  nb::class_<NsccConfig>(m, "NsccConfig")
      .def_rw("target_ps", &NsccConfig::target)
      .def_rw("proportional", &NsccConfig::proportional)
      .def_rw("fair", &NsccConfig::fair)
      .def_rw("decrease", &NsccConfig::decrease)
      .def_rw("decrease_maximum", &NsccConfig::decrease_maximum)
      .def_rw("average", &NsccConfig::average)
      .def_rw("maximum", &NsccConfig::maximum);
  nb::class_<Config>(m, "CongestionConfig",
                     "What a sender's congestion control is; times in ps, rates in bits/s.")
      .def(nb::init<>())
      .def_prop_rw(
          "control", [](const Config& c) { return name_of(c.control); },
          [](Config& c, const std::string& name) { c.control = control_named(name); })
      .def_rw("line_rate_bps", &Config::line_rate_bps)
      .def_rw("base_round_trip_ps", &Config::base_round_trip)
      .def_rw("cnp_interval_ps", &Config::cnp_interval)
      .def_rw("notify_in_acks", &Config::notify_in_acks)
      .def_rw("window", &Config::fixed_window)
      .def_rw("dcqcn", &Config::dcqcn)
      .def_rw("dcqcn_timer", &Config::dcqcn_timer)
      .def_rw("hpcc", &Config::hpcc)
      .def_rw("timely", &Config::timely)
      .def_rw("swift", &Config::swift)
      .def_rw("dctcp", &Config::dctcp)
      .def_rw("nscc", &Config::nscc);
}

}  // namespace genie::bindings
