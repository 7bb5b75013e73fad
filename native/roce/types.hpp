// Inputs and outputs of a queue pair: send requests, packets, deliveries, configuration, counters.
#pragma once
#include <cstdint>

#include "congestion/controllers.hpp"
#include "core/time.hpp"
#include "roce/opcode.hpp"

namespace genie::roce {

inline constexpr std::uint32_t kPsnMask = 0xFFFFFF;
inline constexpr std::uint32_t kMessageMaxBytes = 1u << 31;
// PSNs in flight must be less than half of the circle to be told apart. Those of one message are in flight
// within a window. Those of a READ are in flight all at once.
inline constexpr std::uint32_t kMessageMaxPackets = (1u << 23) - 1, kReadMaxPackets = 1u << 22;

// PSNs of a message, at least one (section 9.7.2).
constexpr std::uint32_t packets_of(std::uint32_t size_bytes, std::uint32_t mtu_bytes) {
  return size_bytes == 0 ? 1 : (size_bytes - 1) / mtu_bytes + 1;
}

// Distance from b to a on the circle of 24-bit PSNs, in [-2^23, 2^23) (section 9.7.1).
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}
constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) { return (psn + count) & kPsnMask; }

enum class Status : std::uint8_t {
  kOk,
  kRetryExceeded,     // no acknowledgement after all retries
  kRnrRetryExceeded,  // the peer never had a receive posted
  kInvalidRequest,    // NAK codes of the peer
  kRemoteAccess,
  kRemoteOperation,
  kBadResponse,  // a READ's data that does not match its request
  kTooLong,      // longer than a message may be
  kFlushed,      // the queue pair was in error already
};

// The reason for which a send request failed, in words.
constexpr const char* describe(Status status) {
  switch (status) {
    case Status::kOk:
      return "no error";
    case Status::kRetryExceeded:
      return "no acknowledgement after all retries";
    case Status::kRnrRetryExceeded:
      return "no receive posted after all retries";
    case Status::kInvalidRequest:
      return "the peer refused the request";
    case Status::kRemoteAccess:
      return "the peer refused access to its memory";
    case Status::kRemoteOperation:
      return "the peer failed";
    case Status::kBadResponse:
      return "the peer answered a READ with what was not asked for";
    case Status::kTooLong:
      return "longer than a message may be";
    case Status::kFlushed:
      return "the connection had failed before";
  }
  return "unknown error";
}

enum class Verb : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead };

struct SendRequest {
  Verb verb = Verb::kWrite;
  bool solicited = false;  // wakes a peer that waits for solicited completions only
  std::uint64_t handle = 0;
  std::uint32_t size_bytes = 0;
  std::uint32_t immediate = 0;
  std::uint64_t local_address = 0;  // of the payload; of a READ: where it goes
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
};

struct Packet {
  Opcode opcode = Opcode::kAcknowledge;
  bool ack_request = false;
  std::uint8_t syndrome = 0;
  bool solicited : 1 = false;
  bool congested : 1 = false;  // the network has marked it: CE in the IP header
  bool echo : 1 = false;       // of an acknowledgement: what it acknowledges had a mark (BECN in the BTH)
  bool trimmed : 1 = false;    // of a NAK: the network has reported the loss, and the path is up
  bool placed : 1 = false;     // receiver only: the payload lies where it belongs since the packet came
  // Index of the queue pair's source port by which it leaves. A receiver knows it in the twin alone.
  std::uint8_t port = 0;
  std::uint32_t psn = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t immediate = 0;
  std::uint32_t msn = 0;
  std::uint32_t rkey = 0;
  std::uint32_t message_bytes = 0;   // of the RETH
  std::uint64_t remote_address = 0;  // of the RETH
  std::uint64_t local_address = 0;   // sender only: where the payload lies
};

struct Delivery {
  std::uint32_t size_bytes = 0;
  std::uint32_t immediate = 0;
  bool has_immediate = false;
  bool is_send = false;
  bool solicited = false;
  TimePs first = 0;                  // arrival of the message's first packet
  std::uint64_t remote_address = 0;  // of a WRITE
};

struct QueuePairConfig {
  std::uint32_t mtu_bytes = 4096;
  std::uint32_t window_packets = 256;         // sent and not acknowledged, at most
  std::uint32_t ack_every_packets = 16;       // ask for an acknowledgement inside long messages
  TimePs ack_timeout = 67 * 1000 * kPsPerUs;  // local ACK timeout 14: 4.096 us * 2^14 (section 9.7.6.1.3)
  std::uint32_t retry_limit = 7;
  std::uint32_t rnr_retry_limit = 7;  // 7: for ever (section 9.7.5.2.8)
  std::uint8_t rnr_timer = 12;        // sent in RNR NAKs: index of kRnrDelay10us
  TimePs rnr_unit = 10 * kPsPerUs;    // of that table; dilation stretches it
  std::uint32_t reads_max = 16;       // READs under way, at most, asked for and answered
  // The peer's window: requests beyond it are not the peer's. 0: not known.
  std::uint32_t peer_window_packets = 0;
  // Packets that come early are kept, and missing ones asked for when one comes so many PSNs after them (with
  // spray: one of the same source port); 0: none is kept. Without spray, only where payload needs no place of
  // its own (the twin).
  std::uint32_t reordering_packets = 0;
  bool selective_repeat = false;  // the sender repeats only the packets that are asked for again
  // UDP source ports that packets leave by in turn. Above 1, the packets of WRITEs each say where they
  // belong. The responder places those that come early at once.
  std::uint32_t spray = 1;
  // REPS: acknowledgements say which of the source ports are good. In the twin alone.
  bool recycle_ports = false;
  congestion::Config congestion;
  TimePs pacing_unit = 1;  // to which times between paced packets are rounded
  friend bool operator==(const QueuePairConfig&, const QueuePairConfig&) = default;
};

struct QueuePairCounters {
  std::uint64_t data_sent = 0, data_received = 0, acks_sent = 0, acks_received = 0, retransmitted = 0;
  std::uint64_t duplicates = 0, out_of_sequence = 0, naks_sent = 0, naks_received = 0;
  std::uint64_t rnr_naks_sent = 0, rnr_naks_received = 0, timeouts = 0, refused = 0;
  std::uint64_t responses_sent = 0, responses_received = 0;  // data of READs, in packets
  std::uint64_t congestion_marks = 0, cnps_sent = 0, cnps_received = 0;
  // Dropped, because the peer cannot have sent them (Refusal).
  std::uint64_t reads_dropped = 0, forged_requests = 0, forged_acks = 0, forged_naks = 0, forged_cnps = 0;

  void fold(Fold& fold) {
    static_assert(has_size<QueuePairCounters>(184));
    fold.packets(data_sent, Fold::Way::kSent);
    fold.packets(data_received, Fold::Way::kReceived);
    for (std::uint64_t* usual : {&acks_sent, &acks_received}) fold.total(*usual);
    for (std::uint64_t* other : {&retransmitted, &duplicates, &out_of_sequence, &naks_sent, &naks_received,
                                 &rnr_naks_sent, &rnr_naks_received, &timeouts, &refused, &responses_sent,
                                 &responses_received, &congestion_marks, &cnps_sent, &cnps_received,
                                 &reads_dropped, &forged_requests, &forged_acks, &forged_naks, &forged_cnps})
      fold.rare(*other);
  }

  QueuePairCounters& operator+=(const QueuePairCounters& other) {
    data_sent += other.data_sent;
    data_received += other.data_received;
    acks_sent += other.acks_sent;
    acks_received += other.acks_received;
    retransmitted += other.retransmitted;
    duplicates += other.duplicates;
    out_of_sequence += other.out_of_sequence;
    naks_sent += other.naks_sent;
    naks_received += other.naks_received;
    rnr_naks_sent += other.rnr_naks_sent;
    rnr_naks_received += other.rnr_naks_received;
    timeouts += other.timeouts;
    refused += other.refused;
    responses_sent += other.responses_sent;
    responses_received += other.responses_received;
    congestion_marks += other.congestion_marks;
    cnps_sent += other.cnps_sent;
    cnps_received += other.cnps_received;
    reads_dropped += other.reads_dropped;
    forged_requests += other.forged_requests;
    forged_acks += other.forged_acks;
    forged_naks += other.forged_naks;
    forged_cnps += other.forged_cnps;
    return *this;
  }
};

}  // namespace genie::roce
