// Acknowledgements that a controller has taken, and its limits before each. A state that recurs brings the
// same ones again. The controller takes them once more for each period that is skipped, as long as its limits
// let the same packets through.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "congestion/controller.hpp"
#include "core/fold.hpp"

namespace genie::congestion {

// Bounds of a queue pair, in packets of `mtu_bytes`.
struct ControlBounds {
  std::uint32_t mtu_bytes = 0, window_packets = 0, ack_every_packets = 0;
};

// The packets that a controller lets be under way.
struct ControlWindow {
  std::uint32_t packets = 0;            // at most
  std::uint32_t ack_every_packets = 0;  // an acknowledgement is asked for so often

  static ControlWindow of(const Controller& controller, const ControlBounds& bounds) {
    const std::int64_t window_bytes = controller.window_bytes();
    if (window_bytes == Controller::kUnlimited) return {bounds.window_packets, bounds.ack_every_packets};
    const std::int64_t packets = (window_bytes + bounds.mtu_bytes - 1) / bounds.mtu_bytes;
    const auto most = static_cast<std::uint32_t>(std::clamp<std::int64_t>(packets, 1, bounds.window_packets));
    return {most, std::min(bounds.ack_every_packets, std::max(most / 4, 1u))};
  }
};

// All that others see of a controller.
struct ControlLimits {
  ControlWindow window;
  std::int64_t rate_bps = 0;  // of packets; 0: they are not paced

  // True if a sender with at most so many packets under way does the same at both limits. A window that is
  // not reached holds back no packet.
  bool lets_pass_as(const ControlLimits& other, std::uint64_t packets) const {
    if (window.packets != other.window.packets && std::min(window.packets, other.window.packets) <= packets)
      return false;
    return window.ack_every_packets == other.window.ack_every_packets && rate_bps == other.rate_bps;
  }

  static ControlLimits of(const Controller& controller, const ControlBounds& bounds) {
    return {.window = ControlWindow::of(controller, bounds),
            .rate_bps = controller.paced() ? controller.seen_rate_bps(0) : 0};
  }
};

class ControlTape final : public Fold::Replayed {
 public:
  // The controller lives as long as the tape.
  ControlTape(Controller& controller, const ControlBounds& bounds)
      : controller_(controller), bounds_(bounds) {}

  // A tape is of one controller: a copy of that one has none yet.
  static std::unique_ptr<ControlTape> clone() { return nullptr; }

  // Before the controller takes it.
  void add(const Acknowledgement& news);

  // Packets that are under way at the latest look, which `repeats` begins from.
  void set_in_flight(std::uint32_t packets) { in_flight_ = packets; }
  void observed(TimePs now) override;
  void fold(Fold& fold) override;
  std::int64_t repeats(const Fold::Period& period, std::int64_t most) const override;
  void replay(const Fold::Period& period, std::int64_t periods) override;
  bool reads_odometers() const override { return controller_.reads_telemetry(); }

 private:
  struct Entry {
    Acknowledgement news;     // without telemetry
    ControlLimits limits;     // before it
    std::uint32_t hop_count;  // of its telemetry, in hops_

    // Packets under way before it, the most since the acknowledgement before.
    std::uint64_t in_flight(std::uint32_t mtu_bytes) const {
      assert(news.acknowledged <= news.sent && news.bytes >= 0);
      return news.sent - news.acknowledged + static_cast<std::uint64_t>(news.bytes) / mtu_bytes;
    }
  };
  class Repetition;

  void keep(const Acknowledgement& news);
  void drop(std::size_t entries);
  std::size_t first_from(TimePs time) const;
  std::size_t hops_before(std::size_t entry) const;

  Controller& controller_;
  ControlBounds bounds_;
  TimePs from_ = kNever;  // all from it on are there; kNever: none is kept
  std::uint32_t in_flight_ = 0;
  std::uint32_t dropped_ = 0;  // times that the older half went, since a state was observed
  std::vector<Entry> entries_;
  std::vector<Hop> hops_;  // of all entries, in their order
};

}  // namespace genie::congestion
