// Acknowledgements that a controller has taken, and what it let through after each. A state that recurs
// brings the same ones again: the controller takes them once more for each period that is skipped, as long as
// it lets the same through.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "congestion/controllers.hpp"
#include "core/fold.hpp"
#include "roce/types.hpp"

namespace genie::roce {

// The packets that a controller lets be under way.
struct ControlWindow {
  std::uint32_t packets = 0;            // at most
  std::uint32_t ack_every_packets = 0;  // an acknowledgement is asked for so often
  friend bool operator==(const ControlWindow&, const ControlWindow&) = default;

  static ControlWindow of(const congestion::Controller& controller, const QueuePairConfig& config) {
    const std::int64_t window_bytes = controller.window_bytes();
    if (window_bytes == congestion::Controller::kUnlimited)
      return {config.window_packets, config.ack_every_packets};
    const std::int64_t packets = (window_bytes + config.mtu_bytes - 1) / config.mtu_bytes;
    const auto most = static_cast<std::uint32_t>(std::clamp<std::int64_t>(packets, 1, config.window_packets));
    return {most, std::min(config.ack_every_packets, std::max(most / 4, 1u))};
  }
};

// All that others see of a controller.
struct ControlLimits {
  ControlWindow window;
  std::int64_t rate_bps = 0;  // of packets; 0: they are not paced
  friend bool operator==(const ControlLimits&, const ControlLimits&) = default;

  static ControlLimits of(const congestion::Controller& controller, const QueuePairConfig& config) {
    return {.window = ControlWindow::of(controller, config),
            .rate_bps = controller.paced() ? controller.seen_rate_bps(0) : 0};
  }
};

class ControlTape final : public Fold::Replayed {
 public:
  // Both live as long as the tape.
  ControlTape(congestion::Controller& controller, const QueuePairConfig& config)
      : controller_(controller), config_(config) {}

  void add(const congestion::Acknowledgement& news);

  void observed(TimePs now) override;
  void fold(Fold& fold) override;
  std::int64_t repeats(TimePs from, TimePs to, std::int64_t most) const override;
  void replay(TimePs from, TimePs to, std::int64_t periods) override;

 private:
  struct Entry {
    congestion::Acknowledgement news;
    ControlLimits limits;  // after it
  };
  class Period;

  congestion::Controller& controller_;
  const QueuePairConfig& config_;
  TimePs from_ = kNever;       // all after it are there; kNever: none is kept
  std::uint32_t dropped_ = 0;  // times that the older half went, since a state was observed
  std::vector<Entry> entries_;
};

}  // namespace genie::roce
