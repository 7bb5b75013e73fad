// Congestion-control interface of a queue pair's sender: the rate of its packets and the bytes that it may
// have in flight. Pure: no clock and no timers. The caller passes the time, and events that fell due before
// it take effect then.
#pragma once
#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie::congestion {

enum class Control : std::uint8_t {
  kNone,
  kWindow,
  kDcqcn,
  kDcqcnTimer,
  kHpcc,
  kTimely,
  kSwift,
  kDctcp,
  kNscc
};

// Signals that a congestion control needs from the network or the receiver.
constexpr bool needs_notifications(Control control) {  // CNPs
  return control == Control::kDcqcn || control == Control::kDcqcnTimer;
}
constexpr bool needs_echo(Control control) {  // marks echoed in acknowledgements
  return control == Control::kDctcp || control == Control::kNscc;
}
constexpr bool needs_marks(Control control) { return needs_notifications(control) || needs_echo(control); }
constexpr bool needs_round_trips(Control control) {
  return control == Control::kTimely || control == Control::kSwift || control == Control::kNscc;
}
constexpr bool needs_acknowledgements(Control control) {  // with or without marks
  return control != Control::kNone && control != Control::kWindow && control != Control::kDcqcn;
}
constexpr bool needs_telemetry(Control control) { return control == Control::kHpcc; }

// Telemetry of one port on a packet's path, as of the packet's departure from the port.
struct Hop {
  TimePs time = 0;
  std::int64_t queue_bytes = 0;  // left behind
  std::uint64_t sent_bytes = 0;  // ever
  std::int64_t rate_bps = 0;
  std::uint32_t port = 0;
};
// The values that a packet's header can carry, in units of 1 ns, 80 B and 128 B (HPCC, SIGCOMM 2019,
// section 5, as its authors' simulator has it). The twin keeps the whole values, which a period moves.
constexpr Hop as_carried(Hop hop) {
  hop.time -= hop.time % kPsPerNs;
  hop.queue_bytes -= hop.queue_bytes % 80;
  hop.sent_bytes -= hop.sent_bytes % 128;
  return hop;
}
inline constexpr std::size_t kHopsMax = 32;  // ports after them write nothing
struct Telemetry {
  std::array<Hop, kHopsMax> hops;
  std::uint32_t count = 0;
};

// An acknowledgement that says something new.
struct Acknowledgement {
  TimePs now = 0;
  TimePs round_trip = -1;          // of the packet that asked for it; -1: not known
  std::int64_t bytes = 0;          // newly acknowledged
  std::int64_t flight_bytes = 0;   // still under way
  std::uint64_t acknowledged = 0;  // packets, ever
  std::uint64_t sent = 0;          // packets, ever, without those sent again
  bool congested = false;          // the receiver had a mark
  const Telemetry* telemetry = nullptr;
};

class Controller {
 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  virtual ~Controller() = default;

  // True if packets keep to rate_bps(); every call may change it.
  bool paced() const { return paced_; }
  // True if a new rate also moves the packet that waits already; otherwise it applies from the next one on.
  bool moves_waiting() const { return moves_waiting_; }
  // Bytes that may be in flight; one packet may always.
  std::int64_t window_bytes() const {
    assert(window_bytes_ >= 0);
    return window_bytes_;
  }

  virtual std::int64_t rate_bps(TimePs) { return kUnlimited; }
  // The result of rate_bps() without its effects on the state.
  virtual std::int64_t seen_rate_bps(TimePs) const { return kUnlimited; }
  virtual void sent(std::uint64_t /*size_bytes*/, TimePs) {}  // called while paced
  virtual void notified(TimePs) {}                            // a congestion notification packet has come
  virtual void acknowledged(const Acknowledgement&) {}
  virtual void lost(TimePs) {}  // something is to be sent again
  // True where the state changes with acknowledgements and losses alone, so that it need not be compared: the
  // same acknowledgements bring it on.
  virtual bool is_replayed() const { return false; }
  virtual bool reads_telemetry() const { return false; }
  virtual std::unique_ptr<Controller> clone() const = 0;
  // `acknowledged`: the number of packets ever acknowledged, to which others are relative.
  virtual void fold(Fold& fold, const Fold::Base& /*acknowledged*/) {
    static_assert(has_size<Controller>(24));
    fold.exact(paced_, moves_waiting_, window_bytes_);
  }

 protected:
  Controller() = default;
  Controller(const Controller&) = default;
  Controller& operator=(const Controller&) = default;

  bool paced_ = false, moves_waiting_ = false;
  std::int64_t window_bytes_ = kUnlimited;
};

// Bytes that a rate of `rate_bps` sends in `time`, and the rate that sends `size_bytes` in `time`.
inline std::int64_t bytes_in(std::int64_t rate_bps, TimePs time) {
  return static_cast<std::int64_t>(static_cast<double>(rate_bps) * static_cast<double>(time) / 8e12);
}
inline std::int64_t rate_of(double size_bytes, TimePs time) {
  return static_cast<std::int64_t>(std::clamp(size_bytes * 8e12 / static_cast<double>(time), 1.0, 1e15));
}

}  // namespace genie::congestion
