// The end of a reliable connection that is asked: checks requests, places data, answers. Pure; part of
// QueuePair (queue_pair.hpp), whose sink it gets without the queue pair. Section numbers are those of the
// InfiniBand Architecture Specification, volume 1.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "congestion/notification_point.hpp"
#include "core/time.hpp"
#include "roce/forgery.hpp"
#include "roce/opcode.hpp"
#include "roce/spraying.hpp"
#include "roce/types.hpp"

namespace genie::roce {

class Responder {
 public:
  Responder(const QueuePairConfig& config, std::uint32_t first_psn)
      : config_(&config), expected_psn_(first_psn & kPsnMask) {
    asked_end_psn_ = trimmed_end_psn_ = expected_psn_;
    if (config.reordering_packets > 0)  // all that may be under way, within reason
      early_.resize(std::bit_ceil(std::size_t{
          std::max(std::clamp(config.window_packets, config.reordering_packets, 65536u), config.spray)}));
    for (Early& port : early_) port.newest_psn = psn_add(expected_psn_, kPsnMask);
  }

  bool is_consistent() const;
  std::uint32_t expected_psn() const { return expected_psn_; }
  // True if the peer's window is known, so that requests beyond it are known to be forged.
  bool knows_forged() const { return config_->peer_window_packets > 0; }

  // Answers keep the order of their requests: while a READ's data is going out, acknowledgements wait.
  bool has_control() const { return cnp_due_ || ((ack_due_ || nak_ == Nak::kDue) && !answering_); }
  bool has_response() const { return answering_; }

  // The next congestion notification, acknowledgement or NAK, if one is due (sections 9.7.5.1 and 9.7.5.2).
  template <class Sink>
  bool take_control(Packet& packet, QueuePairCounters& counters, Sink& sink) {
    if (!has_control()) return false;
    packet = Packet{};
    if (cnp_due_) {
      packet.opcode = Opcode::kCnp;  // A17.9.3
      packet.port = ports_.next(config_->spray);
      cnp_due_ = false;
      ++counters.cnps_sent;
      return true;
    }
    packet.opcode = Opcode::kAcknowledge;
    packet.msn = msn_;
    if (nak_ == Nak::kDue) {
      nak_ = Nak::kSent;
      if (config_->selective_repeat && (kept_ > 0 || is_trimmed()))
        packet.msn = asked_end_psn_ = kept_ == 0       ? trimmed_end_psn_
                                      : !knows_ports() ? first_early()
                                                       : lost_end();
      packet.psn = nak_psn_;
      packet.syndrome = nak_syndrome_;
      packet.trimmed = is_trimmed();
      ++((nak_syndrome_ & kSyndromeKind) == kSyndromeRnrNak ? counters.rnr_naks_sent : counters.naks_sent);
    } else {
      // The last one received: acknowledgements coalesce. Only its data acknowledges a READ: a requester that
      // missed the data may take another answer with the READ's PSN for its end (Linux's rxe does).
      packet.psn = after_read_ ? before_read_psn_ : psn_add(expected_psn_, kPsnMask);
      if (after_read_) packet.msn = before_read_msn_;
      const std::int64_t receives = sink.receives_left();
      starved_ = receives == 0;
      packet.syndrome = ack_with_credits(receives);
      ++counters.acks_sent;
    }
    packet.port = ports_.next(config_->spray);
    packet.echo = echo_;
    if (config_->recycle_ports && ports_.has_come()) ports_.give_back(packet);
    echo_ = false;
    ack_due_ = config_->recycle_ports && ports_.has_come();
    return true;
  }

  // The next packet of a READ's data (section 9.7.5.1.4).
  template <class Sink>
  bool take_response(Packet& packet, QueuePairCounters& counters, Sink& sink) {
    if (!answering_) return false;
    Read& read = reads_.front();
    const bool first = read.sent_bytes == 0;
    const std::uint32_t left = read.size_bytes - read.sent_bytes;
    const bool last = left <= config_->mtu_bytes;
    packet = Packet{};
    packet.opcode = first && last ? Opcode::kReadResponseOnly
                    : first       ? Opcode::kReadResponseFirst
                    : last        ? Opcode::kReadResponseLast
                                  : Opcode::kReadResponseMiddle;
    packet.psn = read.psn;
    packet.port = ports_.next(config_->spray);
    packet.payload_bytes = last ? left : config_->mtu_bytes;
    packet.local_address = read.address + read.sent_bytes;
    if (has_aeth(packet.opcode)) {
      packet.syndrome = ack_with_credits(sink.receives_left());
      packet.msn = read.msn;
    }
    read.psn = psn_add(read.psn, 1);
    read.sent_bytes += packet.payload_bytes;
    ++counters.responses_sent;
    if (last) {
      reads_.erase(reads_.begin());
      answering_ = !reads_.empty();
    }
    return true;
  }

  // A request packet (section 9.7.4.1).
  template <class Sink>
  void request(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink) {
    if (broken_) return;
    const std::int32_t ahead = psn_diff(packet.psn, expected_psn_);
    if (config_->recycle_ports) {  // each packet's port goes back at once, whether it is in sequence or not
      ports_.came(packet.port, packet.congested);
      ack_due_ = true;
    }
    // Where nothing is readable no READ is the peer's, and its NAK would end what a blind sender cannot see.
    if (packet.opcode == Opcode::kReadRequest && !sink.readable()) return drop_read(packet, counters, sink);
    if (ahead < 0) {
      ++counters.duplicates;
      duplicate(packet, counters, sink);
    } else if (knows_forged() && ahead >= static_cast<std::int32_t>(config_->peer_window_packets)) {
      ++counters.forged_requests;
      sink.refused(packet, Refusal::kTooFarAhead);
    } else if (ahead > 0) {
      // One NAK for each gap: until the expected packet comes, later ones are dropped (section 9.7.5.2), or
      // kept.
      ++counters.out_of_sequence;
      keep(packet, static_cast<std::uint32_t>(ahead), sink);
      const bool lost = !knows_ports() ? ahead >= static_cast<std::int32_t>(config_->reordering_packets)
                                       : !is_asked_for() && is_lost(expected_psn_);
      if (nak_ == Nak::kNone && lost) refuse(nak(NakCode::kSequence));
    } else if (packet.opcode == Opcode::kReadRequest) {
      read(packet, counters, sink);
    } else {
      execute(packet, now, counters, sink);
      if (kept_ > 0 || trimmed_) execute_early(now, counters, sink);
    }
  }

  // A packet of which the network has kept the header alone: it is missing, and asked for at once.
  void trimmed(std::uint32_t psn, QueuePairCounters& counters) {
    const std::int32_t ahead = psn_diff(psn, expected_psn_);
    if (broken_ || ahead < 0) return;
    ++counters.out_of_sequence;
    if (!trimmed_ || psn_diff(psn_add(psn, 1), trimmed_end_psn_) > 0) trimmed_end_psn_ = psn_add(psn, 1);
    trimmed_ = true;
    if (psn_diff(psn, asked_end_psn_) < 0) asked_end_psn_ = psn;  // to be asked for once more
    if (ahead == 0 || nak_ == Nak::kNone) refuse(nak(NakCode::kSequence));
  }

  // A packet has come, which the network may have marked on its way here.
  void look_for_marks(bool marked, TimePs now, QueuePairCounters& counters) {
    if (!marked && !notify_.pending()) return;
    if (marked) ++counters.congestion_marks;
    const congestion::Config& control = config_->congestion;
    if (control.notify_in_acks || congestion::needs_echo(control.control)) {
      echo_ = true;
    } else if (congestion::needs_notifications(control.control) &&
               notify_.arrived(marked, now, control.cnp_interval)) {
      cnp_due_ = true;
    }
  }

  // Receives have been posted: a requester that ran out of credits hears of it (section 9.7.7.2).
  void receives_posted() {
    if (starved_ && !broken_) ack_due_ = true;
    starved_ = false;
  }

  // True where a state can be folded: nothing has come early or trimmed, and no READ is answered.
  bool can_fold() const;
  // Bases of the PSNs that it expects and of its MSNs.
  struct Bases {
    Fold::Base psn, msn;
  };
  Bases fold(Fold& fold);

 private:
  // Of the last gap or refusal: nothing is wrong, its NAK is to be sent, it has been sent and the gap is
  // still there.
  enum class Nak : std::uint8_t { kNone, kDue, kSent };
  // The message of which some packets have come and others have not.
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  struct Early {  // a packet that has come before its turn
    Packet packet;
    bool kept = false;
    std::uint32_t newest_psn = 0;  // that has come by the source port of this number, of a sprayed queue pair
  };
  struct Read {  // its data, on the way to the requester
    std::uint32_t psn = 0, msn = 0;
    std::uint32_t size_bytes = 0, sent_bytes = 0;
    std::uint64_t address = 0;
    bool again = false;  // asked for once more
  };
  struct Answered {  // a READ that may be asked for once more, whole or in part
    std::uint32_t psn = 0, rkey = 0, size_bytes = 0;
    std::uint64_t address = 0;
  };

  // True if packets take several source ports, and early ones are placed on arrival.
  bool is_sprayed_pair() const { return config_->spray > 1 && !early_.empty(); }
  // True if a PSN determines the source port by which its packet first left.
  bool knows_ports() const { return is_sprayed_pair() && !config_->recycle_ports; }
  Early& early_at(std::uint32_t psn) {
    assert(!early_.empty());
    return early_[psn & (early_.size() - 1)];
  }

  template <class Sink>
  void keep(const Packet& packet, std::uint32_t ahead, Sink& sink) {
    if (ahead >= early_.size() || packet.opcode == Opcode::kReadRequest) return;
    Early& early = early_at(packet.psn);
    if (early.kept) return;
    early.packet = packet;
    if (is_sprayed_pair() && !place_early(early.packet, sink)) return;
    early.kept = true;
    has_come(packet.psn);
    if (kept_++ == 0 || psn_diff(packet.psn, newest_early_psn_) > 0) newest_early_psn_ = packet.psn;
  }

  // Places a sprayed packet that has come before others, by its own RETH. False where the packet has no RETH
  // or a wrong one. A wrong one is refused in its turn.
  template <class Sink>
  bool place_early(Packet& packet, Sink& sink) {
    const std::uint32_t size_bytes = packet.payload_bytes;
    if (!is_sprayed(packet.opcode) || size_bytes > std::min(config_->mtu_bytes, packet.message_bytes) ||
        (size_bytes > 0 && (!sink.may_write(packet.rkey, packet.remote_address, size_bytes) ||
                            !sink.place(packet, packet.remote_address))))
      return false;
    packet.placed = true;
    return true;
  }

  // Executes the kept packets that follow the one that has just arrived.
  template <class Sink>
  void execute_early(TimePs now, QueuePairCounters& counters, Sink& sink) {
    while (kept_ > 0 && !broken_ && nak_ != Nak::kDue) {
      Early& next = early_at(expected_psn_);
      if (!next.kept || next.packet.psn != expected_psn_) break;
      next.kept = false;
      --kept_;
      execute(next.packet, now, counters, sink);
    }
    if (trimmed_ && psn_diff(trimmed_end_psn_, expected_psn_) <= 0)
      trimmed_ = false;  // PSNs turn: not for ever
    // Another gap, with as many after it as make it a loss, or one that is known to be lost.
    if (nak_ != Nak::kNone || broken_ || is_asked_for()) return;
    if ((config_->selective_repeat && is_trimmed()) || (kept_ > 0 && is_overtaken()))
      refuse(nak(NakCode::kSequence));
  }
  // True if a packet that has not arrived yet is known to be trimmed.
  bool is_trimmed() const { return trimmed_ && psn_diff(trimmed_end_psn_, expected_psn_) > 0; }
  std::uint32_t first_early();
  // True if the expected packet counts as lost, by the packets after it that have arrived.
  bool is_overtaken() {
    if (knows_ports()) return is_lost(expected_psn_);
    return psn_diff(newest_early_psn_, expected_psn_) >=
           static_cast<std::int32_t>(config_->reordering_packets);
  }
  // True if the expected packet has been requested again and has not arrived yet.
  bool is_asked_for() const {
    const std::int32_t left = psn_diff(asked_end_psn_, expected_psn_);  // PSNs turn: no more than a window
    return left > 0 && left <= static_cast<std::int32_t>(config_->window_packets);
  }
  // True if a missing packet of a sprayed queue pair is lost. A path keeps order, and a later packet of the
  // same source port has arrived.
  bool is_lost(std::uint32_t psn) const {
    const std::int32_t ahead = psn_diff(early_[port_of(psn, config_->spray)].newest_psn, psn);
    return ahead >= static_cast<std::int32_t>(config_->reordering_packets) &&
           ahead < static_cast<std::int32_t>(early_.size());
  }
  // After the packets from the expected one on that are lost; those behind it may only be late.
  std::uint32_t lost_end();
  void has_come(std::uint32_t psn) {
    if (!knows_ports()) return;
    std::uint32_t& newest = early_[port_of(psn, config_->spray)].newest_psn;
    if (psn_diff(psn, newest) > 0) newest = psn;
  }

  // True if a READ asks for more than its PSNs can tell apart.
  bool too_long(const Packet& packet) const {
    return packet.message_bytes > kMessageMaxBytes ||
           packets_of(packet.message_bytes, config_->mtu_bytes) > kReadMaxPackets;
  }

  void refuse(std::uint8_t syndrome) { refuse(syndrome, expected_psn_); }

  // A NAK carries the PSN that is refused and acknowledges all before it (section 9.7.5.2.1).
  void refuse(std::uint8_t syndrome, std::uint32_t psn) {
    nak_ = Nak::kDue;
    nak_syndrome_ = syndrome;
    nak_psn_ = psn;
  }

  // Refuses a request in sequence, or a READ that was answered before, that can never be right now. The
  // connection is of no more use to its requester.
  template <class Sink>
  void refuse_for_good(NakCode code, const Packet& packet, QueuePairCounters& counters, Sink& sink) {
    ++counters.refused;
    refuse(nak(code), packet.psn);
    broken_ = true;
    sink.refused(packet, Refusal::kForGood);
  }

  template <class Sink>
  void drop_read(const Packet& packet, QueuePairCounters& counters, Sink& sink) {
    ++counters.reads_dropped;
    sink.refused(packet, Refusal::kRead);
  }

  // A duplicate is not executed again but acknowledged; a READ's data is sent again (section 9.7.5.1.5).
  template <class Sink>
  void duplicate(const Packet& packet, QueuePairCounters& counters, Sink& sink) {
    if (packet.opcode != Opcode::kReadRequest) {
      if (nak_ != Nak::kDue) ack_due_ = true;
      return;
    }
    // The sender of any other knows neither PSN nor key: its NAK would end the connection of those who do.
    if (!was_answered(packet)) return drop_read(packet, counters, sink);
    if (packet.message_bytes > 0 && !sink.may_read(packet.rkey, packet.remote_address, packet.message_bytes))
      return refuse_for_good(NakCode::kRemoteAccess, packet, counters, sink);
    // Those that follow it will be asked for again too.
    std::erase_if(reads_, [&](const Read& pending) { return psn_diff(pending.psn, packet.psn) >= 0; });
    answering_ = !reads_.empty();
    if (reads_.size() < config_->reads_max) answer(packet, msn_, true);
  }

  // True for a READ that was answered before, or the rest of one from a packet on (section 9.7.5.1.5).
  bool was_answered(const Packet& packet) const;

  // A READ (section 9.7.4.1.7): as many PSNs as its data has packets.
  template <class Sink>
  void read(const Packet& packet, QueuePairCounters& counters, Sink& sink) {
    // A peer that asks for more has all that was asked for before: what goes out again is not waited for.
    if (reads_.size() >= config_->reads_max)
      std::erase_if(reads_, [](const Read& pending) { return pending.again; });
    answering_ = !reads_.empty();
    if (message_ != Message::kNone || too_long(packet) || reads_.size() >= config_->reads_max)
      return refuse_for_good(NakCode::kInvalidRequest, packet, counters, sink);
    if (packet.message_bytes > 0 && !sink.may_read(packet.rkey, packet.remote_address, packet.message_bytes))
      return refuse_for_good(NakCode::kRemoteAccess, packet, counters, sink);
    nak_ = Nak::kNone;
    ack_due_ = false;  // the data acknowledges all before it
    if (!after_read_) {
      before_read_psn_ = psn_add(expected_psn_, kPsnMask);
      before_read_msn_ = msn_;
      after_read_ = true;
    }
    expected_psn_ = psn_add(expected_psn_, packets_of(packet.message_bytes, config_->mtu_bytes));
    msn_ = (msn_ + 1) & kPsnMask;
    // No more can be asked for again than may be under way at once.
    if (answered_.size() >= config_->reads_max) answered_.erase(answered_.begin());
    answered_.push_back({packet.psn, packet.rkey, packet.message_bytes, packet.remote_address});
    answer(packet, msn_, false);
  }

  void answer(const Packet& packet, std::uint32_t msn, bool again) {
    answering_ = true;
    reads_.push_back({.psn = packet.psn,
                      .msn = msn,
                      .size_bytes = packet.message_bytes,
                      .sent_bytes = 0,
                      .address = packet.remote_address,
                      .again = again});
  }

  template <class Sink>
  void execute(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink) {
    const bool first = is_first(packet.opcode), last = is_last(packet.opcode), sends = is_send(packet.opcode);
    // Opcode, opcode sequence and length (section 9.7.4.1): only the last packet of a message may be short,
    // and only an only one empty. Atomics and invalidation are not supported.
    const bool known =
        is_sprayed(packet.opcode) ? config_->spray > 1 : is_send(packet.opcode) || is_write(packet.opcode);
    const bool in_sequence =
        first ? message_ == Message::kNone : message_ == (sends ? Message::kSend : Message::kWrite);
    const std::uint32_t least = !last ? config_->mtu_bytes : first ? 0 : 1;
    if (!known || !in_sequence || packet.payload_bytes < least || packet.payload_bytes > config_->mtu_bytes)
      return refuse_for_good(NakCode::kInvalidRequest, packet, counters, sink);
    if (first) {
      message_received_ = 0;
      message_first_ = now;
      if (!sends) {
        if (packet.message_bytes > 0 &&
            !sink.may_write(packet.rkey, packet.remote_address, packet.message_bytes))
          return refuse_for_good(NakCode::kRemoteAccess, packet, counters, sink);
        write_address_ = packet.remote_address;
        message_bytes_ = packet.message_bytes;
      }
    }
    const std::uint64_t end = std::uint64_t{message_received_} + packet.payload_bytes;
    const std::uint64_t most = sends ? kMessageMaxBytes : message_bytes_;
    if (end > most || (last && !sends && end != most))
      return refuse_for_good(NakCode::kInvalidRequest, packet, counters, sink);
    // A receive is used by a SEND's first packet and by an immediate (section 9.7.5.2.8).
    const bool uses_receive = sends ? first : has_immediate(packet.opcode);
    if (uses_receive && !sink.take_receive()) {
      refuse(static_cast<std::uint8_t>(kSyndromeRnrNak | (config_->rnr_timer & kSyndromeValue)));
      return;
    }
    message_ = last ? Message::kNone : sends ? Message::kSend : Message::kWrite;
    nak_ = Nak::kNone;
    after_read_ = false;
    if (packet.payload_bytes > 0 &&
        !sink.place(packet, sends ? message_received_ : write_address_ + message_received_))
      return refuse_for_good(NakCode::kInvalidRequest, packet, counters, sink);  // 9.7.4.1.6: too long
    message_received_ += packet.payload_bytes;
    has_come(expected_psn_);
    expected_psn_ = psn_add(expected_psn_, 1);
    if (packet.ack_request) ack_due_ = true;
    if (!last) return;
    msn_ = (msn_ + 1) & kPsnMask;
    sink.delivered(Delivery{.size_bytes = message_received_,
                            .immediate = packet.immediate,
                            .has_immediate = has_immediate(packet.opcode),
                            .is_send = sends,
                            .solicited = packet.solicited,
                            .first = message_first_,
                            .remote_address = sends ? 0 : write_address_});
  }

  // Rarely touched first: what every packet asks for lies last, beside the requester's.
  std::vector<Read> reads_;         // to be answered, oldest first; at most config.reads_max
  std::vector<Answered> answered_;  // the latest, as many as may be under way
  std::vector<Early> early_;        // by PSN, a ring
  std::uint32_t kept_ = 0;          // of it
  std::uint32_t newest_early_psn_ = 0;
  std::uint32_t asked_end_psn_ = 0;    // before it, what is missing has been asked for
  std::uint32_t trimmed_end_psn_ = 0;  // after the last of which only the header came
  congestion::NotificationPoint notify_;
  std::uint32_t before_read_psn_ = 0, before_read_msn_ = 0;  // of the request before the latest READs
  TimePs message_first_ = 0;
  std::uint64_t write_address_ = 0;
  std::uint32_t message_received_ = 0, message_bytes_ = 0, nak_psn_ = 0;
  std::uint8_t nak_syndrome_ = 0;
  Message message_ = Message::kNone;
  bool starved_ = false;  // the last ACK said that no receive is left
  const QueuePairConfig* config_;
  std::uint32_t expected_psn_, msn_ = 0;
  Nak nak_ = Nak::kNone;
  bool ack_due_ = false, cnp_due_ = false, broken_ = false;
  bool answering_ = false;   // reads_ has some
  bool after_read_ = false;  // the latest request is a READ
  bool trimmed_ = false;     // trimmed_end_psn_ means something
  bool echo_ = false;        // a mark that the next acknowledgement says
  AnswerPorts ports_;
};

}  // namespace genie::roce
