// Packets that the peer of a connection cannot have sent: which they are, and how they are counted. Section
// numbers are those of the InfiniBand Architecture Specification, volume 1.
#pragma once
#include <cstdint>

#include "congestion/controllers.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"

namespace genie::roce {

// A packet that its connection does not take, and why. All but the first are dropped and change nothing.
enum class Refusal : std::uint8_t {
  kForGood,       // a request in sequence that can never be right: it ends the connection
  kRead,          // a READ that was not answered before, or where nothing is readable
  kTooFarAhead,   // a request that the peer's window does not reach
  kAcknowledged,  // an answer to what was not asked: an acknowledgement or a READ's data
  kRefused,       // a NAK or RNR NAK of what was not asked
  kNotified,      // a congestion notification that nothing could have caused
};

// The counter that it is counted by.
constexpr const char* counter_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kForGood:
      return "refused";
    case Refusal::kRead:
      return "reads_dropped";
    case Refusal::kTooFarAhead:
      return "forged_requests";
    case Refusal::kAcknowledged:
      return "forged_acks";
    case Refusal::kRefused:
      return "forged_naks";
    case Refusal::kNotified:
      return "forged_cnps";
  }
  return "";
}

// An answer to what was not asked (section 9.7.6.1).
template <class Sink>
void refuse_answer(const Packet& packet, QueuePairCounters& counters, Sink& sink) {
  const bool negative =
      packet.opcode == Opcode::kAcknowledge && (packet.syndrome & kSyndromeKind) != kSyndromePositive;
  ++(negative ? counters.forged_naks : counters.forged_acks);
  sink.refused(packet, negative ? Refusal::kRefused : Refusal::kAcknowledged);
}

// A late answer changes nothing, and is the network's. But some answers would have had to wait for more
// packets than any network holds. A NAK that ends a connection is about what is under way, or has ended it.
template <class Sink>
void late_answer(const Packet& packet, std::uint32_t unacked_psn, QueuePairCounters& counters, Sink& sink) {
  constexpr std::int32_t kLatestPackets = 1 << 20;
  const bool fatal = packet.opcode == Opcode::kAcknowledge &&
                     (packet.syndrome & kSyndromeKind) == kSyndromeNak &&
                     (packet.syndrome & kSyndromeValid) != nak(NakCode::kSequence);
  if (fatal || psn_diff(unacked_psn, packet.psn) > kLatestPackets) refuse_answer(packet, counters, sink);
}

// Notifications have no PSN to be told by. Those that no packet can have caused are not the peer's (A17.9.3).
// No packet can have caused one if none was sent, or if packets have no ECN.
inline bool may_be_notified(const congestion::Config& control, const QueuePairCounters& counters) {
  return counters.data_sent > 0 && congestion::needs_notifications(control.control) &&
         !control.notify_in_acks;
}

template <class Sink>
void refuse_notification(const Packet& packet, QueuePairCounters& counters, Sink& sink) {
  ++counters.forged_cnps;
  sink.refused(packet, Refusal::kNotified);
}

}  // namespace genie::roce
