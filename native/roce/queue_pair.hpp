// One end of a reliable connection. Pure: no clock, no random numbers, no bytes; effects go to a sink.
//
// The driver calls post, receive and timer when something happens, and take_control and take_data when its
// NIC port has room. Section numbers are those of the InfiniBand Architecture Specification, volume 1.
//
// A sink has:
//   void ready(QueuePair&)                                    control or data can be taken
//   void arm_timer(QueuePair&, TimePs at)                     call timer() at this time; times armed before
//                                                             stay pending
//   void sent(QueuePair&, handle, Status, retransmits)        a send request is over
//   bool may_write(QueuePair&, rkey, address, size_bytes)     whether a peer may write there
//   bool take_receive(QueuePair&)                             uses one posted receive; false: none left
//   void place(QueuePair&, const Packet&, address)            the payload belongs there: at the RDMA address
//                                                             of a WRITE, at an offset in the message of a
//                                                             SEND
//   void delivered(QueuePair&, const Delivery&)               a message is complete
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"

namespace genie::roce {

enum class RequesterState : std::uint8_t { kIdle, kActive, kRnrWait, kError };

class QueuePair {
 public:
  QueuePair(const QueuePairConfig& config, std::uint32_t id, std::uint32_t first_psn,
            std::uint32_t peer_first_psn)
      : config_(&config),
        id_(id),
        send_psn_(first_psn & kPsnMask),
        unacked_psn_(first_psn & kPsnMask),
        sent_end_psn_(first_psn & kPsnMask),
        post_psn_(first_psn & kPsnMask),
        expected_psn_(peer_first_psn & kPsnMask) {}

  std::uint32_t id() const { return id_; }
  RequesterState state() const { return state_; }
  const QueuePairCounters& counters() const { return counters_; }
  std::size_t pending() const { return count_; }
  std::uint32_t expected_psn() const { return expected_psn_; }
  std::uint32_t unacked_psn() const { return unacked_psn_; }
  std::uint32_t send_psn() const { return send_psn_; }
  std::uint8_t last_syndrome() const { return last_syndrome_; }

  bool has_control() const { return ack_due_ || nak_due_; }
  bool has_data() const {
    return state_ == RequesterState::kActive && cursor_ != count_ &&
           psn_diff(send_psn_, unacked_psn_) < static_cast<std::int32_t>(config_->window_packets);
  }

  // Hands a message to the connection (section 10.7.1). In error it is flushed at once.
  template <class Sink>
  void post(const SendRequest& request, Sink& sink) {
    if (state_ == RequesterState::kError) {
      sink.sent(*this, request.handle, Status::kFlushed, 0);
      return;
    }
    if (count_ == queue_.size()) grow();
    const std::uint32_t packets = packets_of(request.size_bytes);
    queue_[(head_ + count_) & (queue_.size() - 1)] = Entry{request, post_psn_, packets, 0};
    ++count_;
    post_psn_ = psn_add(post_psn_, packets);
    if (state_ == RequesterState::kIdle) state_ = RequesterState::kActive;
    if (has_data()) sink.ready(*this);
  }

  // The next acknowledgement or NAK, if one is due (sections 9.7.5.1 and 9.7.5.2).
  bool take_control(Packet& packet) {
    if (!has_control()) return false;
    packet = Packet{};
    packet.opcode = Opcode::kAcknowledge;
    packet.msn = msn_;
    if (nak_due_) {
      // A NAK carries the PSN that is expected and acknowledges all before it (section 9.7.5.2.1).
      packet.psn = expected_psn_;
      packet.syndrome = nak_syndrome_;
      nak_due_ = false;
      ++((nak_syndrome_ & kSyndromeKind) == kSyndromeRnrNak ? counters_.rnr_naks_sent : counters_.naks_sent);
    } else {
      packet.psn = psn_add(expected_psn_, kPsnMask);  // the last one received: acknowledgements coalesce
      packet.syndrome = kSyndromeAck;
      ++counters_.acks_sent;
    }
    ack_due_ = false;
    return true;
  }

  // The next data packet, if the window allows one (section 9.7.2).
  template <class Sink>
  bool take_data(TimePs now, Packet& packet, Sink& sink) {
    if (!has_data()) return false;
    Entry& entry = entry_at_cursor();
    const std::uint32_t index = static_cast<std::uint32_t>(psn_diff(send_psn_, entry.first_psn));
    const std::uint32_t offset = index * config_->mtu_bytes;
    const bool last = index + 1 == entry.packets;
    packet = Packet{};
    packet.opcode = opcode_of(entry.request.verb, index == 0, last);
    packet.psn = send_psn_;
    packet.payload_bytes = last ? entry.request.size_bytes - offset : config_->mtu_bytes;
    packet.local_address = entry.request.local_address + offset;
    if (has_reth(packet.opcode)) {
      packet.remote_address = entry.request.remote_address;
      packet.rkey = entry.request.rkey;
      packet.message_bytes = entry.request.size_bytes;
    }
    if (has_immediate(packet.opcode)) packet.immediate = entry.request.immediate;
    if (psn_diff(send_psn_, sent_end_psn_) < 0) {
      ++entry.retransmits;
      ++counters_.retransmitted;
    }
    send_psn_ = psn_add(send_psn_, 1);
    if (psn_diff(send_psn_, sent_end_psn_) > 0) sent_end_psn_ = send_psn_;
    if (last) ++cursor_;
    // Ask at the end of a message, now and then inside it, and when the window closes (section 9.7.5.1.2).
    packet.ack_request =
        last || ++since_request_ >= config_->ack_every_packets ||
        psn_diff(send_psn_, unacked_psn_) >= static_cast<std::int32_t>(config_->window_packets);
    if (packet.ack_request) since_request_ = 0;
    ++counters_.data_sent;
    if (deadline_ == kNever) restart_timer(now, sink);
    return true;
  }

  // A packet of this connection has arrived. Neither congestion notifications nor responses to READs and
  // atomics, which it never asks for, concern it.
  template <class Sink>
  void receive(const Packet& packet, TimePs now, Sink& sink) {
    if (packet.opcode == Opcode::kAcknowledge) {
      ++counters_.acks_received;
      acknowledged(packet, now, sink);
    } else if (is_request(packet.opcode)) {
      ++counters_.data_received;
      request(packet, now, sink);
      if (has_control()) sink.ready(*this);
    }
  }

  // The time of arm_timer has come.
  template <class Sink>
  void timer(TimePs now, Sink& sink) {
    if (now < armed_) return;  // armed before an earlier one took its place
    armed_ = kNever;
    if (deadline_ == kNever) return;
    if (now < deadline_) {  // the deadline moved on while this timer was pending
      arm(sink);
      return;
    }
    deadline_ = kNever;
    if (state_ == RequesterState::kRnrWait) {
      state_ = RequesterState::kActive;
      if (has_data()) sink.ready(*this);
      return;
    }
    if (state_ != RequesterState::kActive) return;
    // Nothing acknowledged for a whole timeout: send again from the oldest (section 9.9.2.4.1).
    ++counters_.timeouts;
    if (retries_++ >= config_->retry_limit) {
      fail(Status::kRetryExceeded, sink);
      return;
    }
    go_back(unacked_psn_);
    restart_timer(now, sink);
    sink.ready(*this);
  }

 private:
  struct Entry {
    SendRequest request;
    std::uint32_t first_psn = 0, packets = 0, retransmits = 0;
  };

  std::uint32_t packets_of(std::uint32_t size_bytes) const {
    return size_bytes == 0 ? 1 : (size_bytes + config_->mtu_bytes - 1) / config_->mtu_bytes;
  }

  static Opcode opcode_of(Verb verb, bool first, bool last) {
    const bool imm = verb == Verb::kSendImm || verb == Verb::kWriteImm;
    if (verb == Verb::kSend || verb == Verb::kSendImm) {
      if (first && last) return imm ? Opcode::kSendOnlyImm : Opcode::kSendOnly;
      if (last) return imm ? Opcode::kSendLastImm : Opcode::kSendLast;
      return first ? Opcode::kSendFirst : Opcode::kSendMiddle;
    }
    if (first && last) return imm ? Opcode::kWriteOnlyImm : Opcode::kWriteOnly;
    if (last) return imm ? Opcode::kWriteLastImm : Opcode::kWriteLast;
    return first ? Opcode::kWriteFirst : Opcode::kWriteMiddle;
  }

  Entry& entry_at(std::size_t place) { return queue_[(head_ + place) & (queue_.size() - 1)]; }
  Entry& entry_at_cursor() { return entry_at(cursor_); }

  void grow() {
    std::vector<Entry> larger(queue_.empty() ? 8 : queue_.size() * 2);
    for (std::size_t place = 0; place < count_; ++place) larger[place] = entry_at(place);
    queue_ = std::move(larger);
    head_ = 0;
  }

  template <class Sink>
  void arm(Sink& sink) {
    if (armed_ <= deadline_) return;  // an earlier timer is pending and will move itself
    armed_ = deadline_;
    sink.arm_timer(*this, deadline_);
  }

  template <class Sink>
  void restart_timer(TimePs now, Sink& sink) {
    deadline_ = now + config_->ack_timeout;
    arm(sink);
  }

  void go_back(std::uint32_t psn) {
    send_psn_ = psn;
    since_request_ = 0;
    cursor_ = 0;
    while (cursor_ < count_ &&
           psn_diff(psn, psn_add(entry_at_cursor().first_psn, entry_at_cursor().packets)) >= 0)
      ++cursor_;
  }

  // All packets before `psn` have arrived: retires finished messages. True when that is news.
  template <class Sink>
  bool advance_to(std::uint32_t psn, Sink& sink) {
    if (psn_diff(psn, unacked_psn_) <= 0 || psn_diff(psn, sent_end_psn_) > 0) return false;
    unacked_psn_ = psn;
    while (count_ > 0) {
      const Entry& entry = entry_at(0);
      if (psn_diff(psn_add(entry.first_psn, entry.packets), psn) > 0) break;
      const std::uint64_t handle = entry.request.handle;
      const std::uint32_t retransmits = entry.retransmits;
      head_ = (head_ + 1) & (queue_.size() - 1);
      --count_;
      if (cursor_ > 0) --cursor_;
      sink.sent(*this, handle, Status::kOk, retransmits);
    }
    if (psn_diff(send_psn_, unacked_psn_) < 0) go_back(unacked_psn_);  // acknowledged while being sent again
    return true;
  }

  // Requester: responses (section 9.7.6). A ghost, for a PSN that is not in flight, changes nothing
  // (9.7.6.1).
  template <class Sink>
  void acknowledged(const Packet& packet, TimePs now, Sink& sink) {
    if (state_ == RequesterState::kError || state_ == RequesterState::kIdle) return;
    const std::uint8_t kind = packet.syndrome & kSyndromeKind;
    const bool positive = kind == kSyndromePositive;
    if (!positive && kind != kSyndromeRnrNak && kind != kSyndromeNak) return;  // reserved
    // A NAK's PSN itself is not acknowledged, but it has been sent.
    const std::uint32_t next = positive ? psn_add(packet.psn, 1) : packet.psn;
    const std::uint32_t end = positive ? sent_end_psn_ : psn_add(sent_end_psn_, kPsnMask);
    if (psn_diff(next, unacked_psn_) < 0 || psn_diff(next, end) > 0) return;
    const bool progress = advance_to(next, sink);
    if (progress) {
      retries_ = 0;
      rnr_retries_ = 0;
    }
    if (positive) {
      if (progress) progressed(now, sink);
      return;
    }
    last_syndrome_ = packet.syndrome;
    if (kind == kSyndromeRnrNak) {
      receiver_not_ready(packet, now, sink);
    } else {
      refused(packet, now, sink);
    }
  }

  template <class Sink>
  void progressed(TimePs now, Sink& sink) {
    if (count_ == 0) {
      state_ = RequesterState::kIdle;
      deadline_ = kNever;
    } else if (state_ == RequesterState::kRnrWait) {
      // A duplicate got through: what is left waits on.
    } else if (send_psn_ == unacked_psn_) {
      deadline_ = kNever;  // nothing in flight
    } else {
      restart_timer(now, sink);
    }
    if (has_data()) sink.ready(*this);
  }

  // RNR NAK (section 9.7.5.2.8): wait as long as it says, then send again from its PSN.
  template <class Sink>
  void receiver_not_ready(const Packet& packet, TimePs now, Sink& sink) {
    if (state_ == RequesterState::kRnrWait) return;
    ++counters_.rnr_naks_received;
    if (config_->rnr_retry_limit < 7 && rnr_retries_++ >= config_->rnr_retry_limit) {
      fail(Status::kRnrRetryExceeded, sink);
      return;
    }
    go_back(packet.psn);
    state_ = RequesterState::kRnrWait;
    deadline_ =
        now + static_cast<TimePs>(kRnrDelay10us[packet.syndrome & kSyndromeValue]) * config_->rnr_unit;
    arm(sink);
  }

  // NAK (section 9.9.2.4.2): a sequence error is sent again, any other ends the connection.
  template <class Sink>
  void refused(const Packet& packet, TimePs now, Sink& sink) {
    ++counters_.naks_received;
    if ((packet.syndrome & kSyndromeValid) == nak(NakCode::kSequence)) {
      if (state_ != RequesterState::kActive) return;
      if (retries_++ >= config_->retry_limit) {
        fail(Status::kRetryExceeded, sink);
        return;
      }
      go_back(packet.psn);
      restart_timer(now, sink);
      if (has_data()) sink.ready(*this);
      return;
    }
    switch (packet.syndrome & kSyndromeValue) {
      case static_cast<std::uint8_t>(NakCode::kRemoteAccess):
        return fail(Status::kRemoteAccess, sink);
      case static_cast<std::uint8_t>(NakCode::kRemoteOperation):
        return fail(Status::kRemoteOperation, sink);
      default:
        return fail(Status::kInvalidRequest, sink);
    }
  }

  // The oldest message ends with `status`, all others are flushed (section 10.3.1.7).
  template <class Sink>
  void fail(Status status, Sink& sink) {
    state_ = RequesterState::kError;
    deadline_ = kNever;
    while (count_ > 0) {
      const std::uint64_t handle = entry_at(0).request.handle;
      const std::uint32_t retransmits = entry_at(0).retransmits;
      head_ = (head_ + 1) & (queue_.size() - 1);
      --count_;
      sink.sent(*this, handle, status, retransmits);
      status = Status::kFlushed;
    }
    cursor_ = 0;
  }

  // Responder: a request packet (section 9.7.4.1).
  template <class Sink>
  void request(const Packet& packet, TimePs now, Sink& sink) {
    if (broken_) return;
    const std::int32_t ahead = psn_diff(packet.psn, expected_psn_);
    if (ahead < 0) {
      // A duplicate is not executed again, only acknowledged (section 9.7.5.1.3).
      ++counters_.duplicates;
      if (!nak_due_) ack_due_ = true;
      return;
    }
    if (ahead > 0) {
      // One NAK for each gap: until the expected packet comes, later ones are dropped (section 9.7.5.2).
      ++counters_.out_of_sequence;
      if (!nak_outstanding_) refuse(nak(NakCode::kSequence));
      return;
    }
    execute(packet, now, sink);
  }

  void refuse(std::uint8_t syndrome) {
    nak_due_ = true;
    nak_outstanding_ = true;
    nak_syndrome_ = syndrome;
  }

  // A request that can never be right: the connection is of no more use to its requester.
  void refuse_for_good(NakCode code) {
    ++counters_.refused;
    refuse(nak(code));
    broken_ = true;
  }

  template <class Sink>
  void execute(const Packet& packet, TimePs now, Sink& sink) {
    const bool first = is_first(packet.opcode);
    const bool last = is_last(packet.opcode);
    // Opcode, opcode sequence and length (section 9.7.4.1): only the last packet of a message may be short,
    // and only an only one empty.
    const bool known = is_send(packet.opcode) || is_write(packet.opcode);
    const bool in_sequence = first != in_message_ && (first || is_send(packet.opcode) == message_is_send_);
    const std::uint32_t least = !last ? config_->mtu_bytes : first ? 0 : 1;
    if (!known || !in_sequence || packet.payload_bytes < least || packet.payload_bytes > config_->mtu_bytes)
      return refuse_for_good(NakCode::kInvalidRequest);
    if (first) {
      message_is_send_ = is_send(packet.opcode);
      message_received_ = 0;
      message_first_ = now;
      if (!message_is_send_) {
        if (packet.message_bytes > 0 &&
            !sink.may_write(*this, packet.rkey, packet.remote_address, packet.message_bytes))
          return refuse_for_good(NakCode::kRemoteAccess);
        write_address_ = packet.remote_address;
        message_bytes_ = packet.message_bytes;
      }
    }
    const std::uint64_t end = std::uint64_t{message_received_} + packet.payload_bytes;
    const std::uint64_t most = message_is_send_ ? kMessageMaxBytes : message_bytes_;
    if (end > most || (last && !message_is_send_ && end != most))
      return refuse_for_good(NakCode::kInvalidRequest);
    // A receive is used by a SEND's first packet and by an immediate (section 9.7.5.2.8).
    const bool uses_receive = message_is_send_ ? first : has_immediate(packet.opcode);
    if (uses_receive && !sink.take_receive(*this)) {
      refuse(static_cast<std::uint8_t>(kSyndromeRnrNak | (config_->rnr_timer & kSyndromeValue)));
      return;
    }
    in_message_ = !last;
    nak_outstanding_ = false;
    nak_due_ = false;
    if (packet.payload_bytes > 0)
      sink.place(*this, packet, message_is_send_ ? message_received_ : write_address_ + message_received_);
    message_received_ += packet.payload_bytes;
    expected_psn_ = psn_add(expected_psn_, 1);
    if (packet.ack_request) ack_due_ = true;
    if (!last) return;
    msn_ = (msn_ + 1) & kPsnMask;
    sink.delivered(*this, Delivery{.size_bytes = message_received_,
                                   .immediate = packet.immediate,
                                   .has_immediate = has_immediate(packet.opcode),
                                   .is_send = message_is_send_,
                                   .first = message_first_});
  }

  const QueuePairConfig* config_;
  std::uint32_t id_;

  // Requester. PSNs: unacked_ <= send_ <= sent_end_ <= post_ on the circle.
  RequesterState state_ = RequesterState::kIdle;
  std::uint8_t last_syndrome_ = 0;
  std::uint32_t send_psn_;      // next to be sent
  std::uint32_t unacked_psn_;   // oldest not acknowledged
  std::uint32_t sent_end_psn_;  // after the highest ever sent: before it is a retransmission
  std::uint32_t post_psn_;      // after the last posted message
  std::uint32_t since_request_ = 0, retries_ = 0, rnr_retries_ = 0;
  std::vector<Entry> queue_;  // ring of a power of two
  std::size_t head_ = 0, count_ = 0;
  std::size_t cursor_ = 0;                     // place of the message that send_psn_ lies in
  TimePs deadline_ = kNever, armed_ = kNever;  // when the timer means something; when the driver will call

  // Responder.
  std::uint32_t expected_psn_;
  std::uint32_t msn_ = 0;
  bool ack_due_ = false, nak_due_ = false, nak_outstanding_ = false, broken_ = false;
  std::uint8_t nak_syndrome_ = 0;
  bool in_message_ = false, message_is_send_ = false;
  std::uint32_t message_received_ = 0, message_bytes_ = 0;
  std::uint64_t write_address_ = 0;
  TimePs message_first_ = 0;

  QueuePairCounters counters_;
};

}  // namespace genie::roce
