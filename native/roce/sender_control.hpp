// Link between a queue pair's requester and its congestion control: departure times of data, packets in
// flight, and the acknowledgements that change both. Pure.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "congestion/control_tape.hpp"
#include "congestion/controllers.hpp"
#include "core/cloned.hpp"
#include "core/fold.hpp"
#include "core/time.hpp"
#include "roce/types.hpp"

namespace genie::roce {

class SenderControl {
 public:
  explicit SenderControl(const QueuePairConfig& config)
      : config_(&config),
        window_packets_(config.window_packets),
        ack_every_packets_(config.ack_every_packets),
        listens_(
            congestion::needs_acknowledgements(config.congestion.control) ||
            (config.congestion.notify_in_acks && config.congestion.control != congestion::Control::kNone)),
        controller_(congestion::make_controller(config.congestion, config.mtu_bytes)) {
    if (congestion::needs_round_trips(config.congestion.control)) {
      const std::uint32_t places = std::bit_ceil(config.window_packets);
      sent_at_.assign(places, kUnknown);
      sent_mask_ = places - 1;
    }
    follow();
  }

  // When the next packet may begin to leave.
  TimePs data_from() const { return data_from_; }
  std::uint32_t window_packets() const { return window_packets_; }
  // The requester asks for an acknowledgement so often. Inside a window that the controller has made short it
  // asks a few times. Otherwise nothing would be sent while the acknowledgement is on its way.
  std::uint32_t ack_every_packets() const { return ack_every_packets_; }
  bool listens() const { return listens_; }  // to acknowledgements
  // Rate that the controller allows at `now`: its rate, and at most one window in each base round trip, as
  // acknowledged by an idle network. It changes nothing.
  std::int64_t allowed_bps(TimePs now) const {
    if (controller_ == nullptr) return congestion::Controller::kUnlimited;
    const std::int64_t window_bytes = controller_->window_bytes();
    const TimePs base = config_->congestion.base_round_trip;
    std::int64_t rate_bps =
        controller_->paced() ? controller_->seen_rate_bps(now) : congestion::Controller::kUnlimited;
    if (window_bytes != congestion::Controller::kUnlimited && base > 0)
      rate_bps = std::min(rate_bps, congestion::rate_of(static_cast<double>(window_bytes), base));
    return rate_bps;
  }

  // A packet, the last of which has this PSN, begins to leave and takes so many bytes of the wire.
  void departed(std::uint32_t wire_bytes, TimePs start, std::uint32_t psn) {
    if (!sent_at_.empty()) sent_at_[psn & sent_mask_] = start;
    if (!paced_) return;
    rate_bps_ = controller_->rate_bps(start);
    assert(rate_bps_ > 0 && wire_bytes > 0);
    wire_bytes_ = wire_bytes;
    data_from_ = controller_->paced() ? std::max(data_from_, start) + gap() : 0;
    controller_->sent(wire_bytes, start);
    follow();
  }

  void notified(TimePs now) {
    if (controller_ == nullptr) return;
    controller_->notified(now);
    follow();
  }

  // Something is to be sent again.
  void lost(TimePs now) {
    if (controller_ == nullptr) return;
    controller_->lost(now);
    follow();
  }

  // An acknowledgement of `packets` new packets, the last with this PSN. `in_flight` packets are not
  // acknowledged yet; `beyond` counts also those to be sent again. It tells a round trip unless it is about a
  // loss. Called only if listens().
  void acknowledged(bool echo, std::uint32_t psn, bool tells_round_trip, TimePs now, std::int32_t packets,
                    std::int32_t in_flight, std::int32_t beyond, const congestion::Telemetry* telemetry) {
    assert(listens_ && in_flight >= 0 && beyond >= in_flight);
    if (packets > 0) acknowledged_ += static_cast<std::uint64_t>(packets);
    if (echo && config_->congestion.notify_in_acks) controller_->notified(now);
    const std::int64_t mtu_bytes = config_->mtu_bytes;
    congestion::Acknowledgement news{.now = now,
                                     .bytes = std::max(packets, 0) * mtu_bytes,
                                     .flight_bytes = in_flight * mtu_bytes,
                                     .acknowledged = acknowledged_,
                                     .sent = acknowledged_ + static_cast<std::uint64_t>(std::max(beyond, 0)),
                                     .congested = echo,
                                     .telemetry = telemetry};
    if (const TimePs sent = sent_at_.empty() ? kUnknown : sent_at_[psn & sent_mask_];
        tells_round_trip && packets > 0 && sent != kUnknown)
      news.round_trip = now - sent;
    if (tape_ != nullptr) [[unlikely]]
      tape_->add(news);
    controller_->acknowledged(news);
    follow();
    if (!paced_ || wire_bytes_ == 0 || !controller_->moves_waiting()) return;
    // The last packet that was paced takes its time at the new rate, also where the window has held the next
    // one back.
    data_from_ -= gap();
    rate_bps_ = controller_->rate_bps(now);
    data_from_ += gap();
  }

  // `unacked`: the oldest PSN that is not acknowledged; so many packets from it on are under way.
  void fold(Fold& fold, const Fold::Base& unacked, std::uint32_t in_flight) {
    static_assert(has_size<SenderControl>(96));
    fold.exact(rate_bps_, wire_bytes_, ack_every_packets_, paced_);
    fold.not_before(data_from_, gap());
    const Fold::Base acknowledged = fold.packets(acknowledged_, Fold::Way::kSent);
    if (controller_ != nullptr && controller_->is_replayed() && fold.replays()) {
      if (tape_ == nullptr) tape_ = std::make_unique<congestion::ControlTape>(*controller_, bounds());
      // The tape compares windows.
      fold.exact(congestion::ControlLimits::of(*controller_, bounds()).rate_bps);
      tape_->set_in_flight(in_flight);
      fold.replayed(*tape_);
      follow();  // a replay moves the window
    } else {
      fold.exact(window_packets_);
      if (controller_ != nullptr) controller_->fold(fold, acknowledged);
    }
    if (sent_at_.empty()) return;
    assert(in_flight <= sent_at_.size());
    std::vector<TimePs> under_way(in_flight);
    for (std::uint32_t at = 0; at < in_flight; ++at) {
      under_way[at] = sent_at_[(unacked.before + at) & sent_mask_];
      fold.moment(under_way[at]);
    }
    for (std::uint32_t at = 0; at < in_flight; ++at)
      sent_at_[(unacked.after + at) & sent_mask_] = under_way[at];
  }

 private:
  static constexpr TimePs kUnknown = -1;

  congestion::ControlBounds bounds() const {
    return {config_->mtu_bytes, config_->window_packets, config_->ack_every_packets};
  }
  // Time of the last packet at the current rate.
  TimePs gap() const { return serialisation_ps(wire_bytes_, rate_bps_, config_->pacing_unit); }

  // Applies the controller's pacing and window.
  void follow() {
    if (controller_ == nullptr) return;
    paced_ = controller_->paced();
    const congestion::ControlWindow window = congestion::ControlWindow::of(*controller_, bounds());
    window_packets_ = window.packets;
    ack_every_packets_ = window.ack_every_packets;
  }

  const QueuePairConfig* config_;
  TimePs data_from_ = 0;
  std::int64_t rate_bps_ = 0;     // at which it was worked out
  std::uint32_t wire_bytes_ = 0;  // for a packet of so many
  std::uint32_t window_packets_;  // under way, at most
  std::uint32_t ack_every_packets_;
  bool listens_;
  bool paced_ = false;  // the controller moves data_from_
  std::uint32_t sent_mask_ = 0;
  Cloned<congestion::Controller> controller_;
  std::uint64_t acknowledged_ = 0;  // packets, ever; counted for it
  std::vector<TimePs> sent_at_;     // by PSN, a ring, where it wants round trips
  // Of a controller that is replayed, once a state has been observed.
  Cloned<congestion::ControlTape> tape_;
};

}  // namespace genie::roce
