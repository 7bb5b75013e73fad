// The end of a reliable connection that asks: sends messages, takes answers, sends again what was lost. Pure;
// part of QueuePair (queue_pair.hpp), whose sink it gets without the queue pair. Section numbers are those of
// the InfiniBand Architecture Specification, volume 1.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/fold.hpp"
#include "core/time.hpp"
#include "roce/forgery.hpp"
#include "roce/opcode.hpp"
#include "roce/send_queue.hpp"
#include "roce/sender_control.hpp"
#include "roce/spraying.hpp"
#include "roce/types.hpp"

namespace genie::roce {

enum class RequesterState : std::uint8_t { kIdle, kActive, kRnrWait, kError };

class Requester {
 public:
  Requester(const QueuePairConfig& config, std::uint32_t first_psn, std::uint32_t salt)
      : config_(&config),
        send_psn_(first_psn & kPsnMask),
        unacked_psn_(send_psn_),
        sent_end_psn_(send_psn_),
        post_psn_(send_psn_),
        again_psn_(send_psn_),
        again_end_(send_psn_),
        control_(config),
        ports_(config, salt) {}

  RequesterState state() const { return state_; }
  std::size_t pending() const { return queue_.size(); }
  std::uint32_t send_psn() const { return send_psn_; }
  std::uint32_t unacked_psn() const { return unacked_psn_; }
  bool is_consistent() const;
  std::uint32_t message_left() const;  // packets of the message under way that have not been sent
  std::uint8_t last_syndrome() const { return last_syndrome_; }
  // When congestion control lets the next packet begin to leave.
  TimePs data_from() const { return control_.data_from(); }
  // Rate that congestion control allows at `now`.
  std::int64_t allowed_bps(TimePs now) const { return control_.allowed_bps(now); }

  bool has_data() const {
    if (state_ != RequesterState::kActive) return false;
    if (again_psn_ != again_end_) return true;
    if (cursor_ == queue_.size()) return false;
    const std::int32_t in_flight = psn_diff(send_psn_, unacked_psn_);
    return in_flight < static_cast<std::int32_t>(control_.window_packets()) &&
           (!restrained_ || in_flight == 0 || !must_wait());
  }

  // Hands a message to the connection (section 10.7.1). In error it is flushed at once.
  template <class Sink>
  void post(const SendRequest& request, Sink& sink) {
    if (state_ == RequesterState::kError) return sink.sent(request.handle, Status::kFlushed, 0);
    const std::uint32_t packets = packets_of(request.size_bytes, config_->mtu_bytes);
    const bool is_read = request.verb == Verb::kRead;
    // Not taken at all: the connection goes on.
    if (request.size_bytes > kMessageMaxBytes || packets > (is_read ? kReadMaxPackets : kMessageMaxPackets))
      return sink.sent(request.handle, Status::kTooLong, 0);
    ssn_ = (ssn_ + 1) & kPsnMask;
    queue_.push({request, post_psn_, packets, 0, ssn_});
    post_psn_ = psn_add(post_psn_, packets);
    if (is_read) restrained_ = true;
    if (state_ == RequesterState::kIdle) state_ = RequesterState::kActive;
    if (has_data()) sink.ready();
  }

  // The next packet, if window and credits allow one (section 9.7.2).
  template <class Sink>
  bool take_data(TimePs now, Packet& packet, QueuePairCounters& counters, Sink& sink) {
    if (!has_data()) return false;
    if (again_psn_ != again_end_) return take_again(packet, counters);
    Entry& entry = queue_.at(cursor_);
    const std::uint32_t index = static_cast<std::uint32_t>(psn_diff(send_psn_, entry.first_psn));
    const bool is_read = entry.request.verb == Verb::kRead;
    const bool last = is_read || index + 1 == entry.packets;
    SendQueue::describe(entry, index, *config_, packet);
    packet.port = ports_.next(send_psn_, config_->spray);
    packet.psn = last_psn_ = send_psn_;
    if (psn_diff(send_psn_, sent_end_psn_) < 0) sent_again(entry, counters);
    send_psn_ = is_read ? psn_add(entry.first_psn, entry.packets) : psn_add(send_psn_, 1);
    if (psn_diff(send_psn_, sent_end_psn_) > 0) sent_end_psn_ = send_psn_;
    if (is_read) ++reads_;
    if (last) ++cursor_;
    // Ask at the end of a message, now and then inside it, and when the window closes (section 9.7.5.1.2).
    packet.ack_request = !is_read && (last || ports_.recycles() ||
                                      ++since_request_ >= control_.ack_every_packets() || !has_data());
    if (packet.ack_request) since_request_ = 0;
    ++counters.data_sent;
    if (deadline_ == kNever) restart_timer(now, sink);
    return true;
  }

  // The packet of the last take_data() begins to leave at `start` and takes `wire_bytes` of the wire.
  void departed(std::uint32_t wire_bytes, TimePs start) { control_.departed(wire_bytes, start, last_psn_); }

  // A congestion notification packet (A17.9.3).
  template <class Sink>
  void notified(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink) {
    if (!may_be_notified(config_->congestion, counters)) return refuse_notification(packet, counters, sink);
    ++counters.cnps_received;
    control_.notified(now);
  }

  // An acknowledgement or NAK (section 9.7.6). A ghost, for a PSN that is not in flight, changes nothing
  // (9.7.6.1).
  template <class Sink>
  void acknowledged(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink,
                    const congestion::Telemetry* telemetry) {
    if (state_ == RequesterState::kError) return;
    const std::uint8_t kind = packet.syndrome & kSyndromeKind;
    const bool positive = kind == kSyndromePositive;
    if (!positive && kind != kSyndromeRnrNak && kind != kSyndromeNak) return;  // reserved
    // A NAK's PSN itself is not acknowledged, but it has been sent.
    const std::uint32_t next = positive ? psn_add(packet.psn, 1) : packet.psn;
    const std::uint32_t end = positive ? sent_end_psn_ : psn_add(sent_end_psn_, kPsnMask);
    if (psn_diff(next, end) > 0) return refuse_answer(packet, counters, sink);
    if (positive) ports_.acknowledged(packet, now, config_->window_packets);
    if (psn_diff(next, unacked_psn_) < 0) return late_answer(packet, unacked_psn_, counters, sink);
    if (state_ == RequesterState::kIdle) return;
    if (positive) take_credits(packet);
    const std::uint32_t before = unacked_psn_;
    const bool progress = advance_to(next, now, sink);
    if (state_ == RequesterState::kError) return;
    if (control_.listens()) {
      // After a retransmission, acknowledgements are ambiguous until all packets that were in flight then are
      // acknowledged. Each may mean either sending, or may have waited for the lost packet (Karn and
      // Partridge, SIGCOMM 1987).
      if (recovering_ && psn_diff(next, recovered_psn_) > 0) recovering_ = false;
      control_.acknowledged(packet.echo, psn_add(next, kPsnMask), positive && !recovering_, now,
                            psn_diff(unacked_psn_, before), psn_diff(send_psn_, unacked_psn_),
                            psn_diff(sent_end_psn_, unacked_psn_), telemetry);
    }
    if (positive) {
      if (progress) {
        progressed(now, sink);
      } else if (restrained_ && has_data()) {
        sink.ready();  // there are more receives, or they are not counted any more
      }
      return;
    }
    last_syndrome_ = packet.syndrome;
    if (psn_diff(next, unacked_psn_) > 0) return;  // a READ's data before it is missing, and asked for again
    if (kind == kSyndromeRnrNak) {
      receiver_not_ready(packet, now, counters, sink);
    } else {
      refused(packet, now, counters, sink);
    }
  }

  // A packet of a READ's data; it acknowledges all requests before the READ too (section 9.7.6.1).
  template <class Sink>
  void response(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink) {
    if (state_ == RequesterState::kError) return;
    if (psn_diff(packet.psn, unacked_psn_) < 0) return late_answer(packet, unacked_psn_, counters, sink);
    if (psn_diff(packet.psn, sent_end_psn_) >= 0 || !queue_.is_reading(packet.psn))
      return refuse_answer(packet, counters, sink);
    advance_to(packet.psn, now, sink);
    if (state_ == RequesterState::kError) return;
    if (packet.psn != unacked_psn_ || queue_.empty() || queue_.at(0).request.verb != Verb::kRead ||
        psn_diff(packet.psn, queue_.at(0).first_psn) < 0) {  // a gap, or a ghost
      if (has_data()) sink.ready();
      return;
    }
    const Entry& entry = queue_.at(0);
    const std::uint32_t index = static_cast<std::uint32_t>(psn_diff(packet.psn, entry.first_psn));
    const std::uint32_t offset = index * config_->mtu_bytes;
    const bool last = index + 1 == entry.packets;
    const bool ends =
        packet.opcode == Opcode::kReadResponseLast || packet.opcode == Opcode::kReadResponseOnly;
    const std::uint32_t size = last ? entry.request.size_bytes - offset : config_->mtu_bytes;
    if (packet.payload_bytes != size || ends != last) return fail(Status::kBadResponse, sink);
    if (size > 0) sink.fetched(packet, entry.request.local_address + offset);
    ++counters.responses_received;
    unacked_psn_ = psn_add(unacked_psn_, 1);
    leave_out_acknowledged();
    if (has_aeth(packet.opcode)) take_credits(packet);
    if (last) retire(sink);
    if (psn_diff(send_psn_, unacked_psn_) < 0) go_back(unacked_psn_);  // answered while being asked again
    gap_ = false;
    retries_ = rnr_retries_ = backoff_ = 0;
    progressed(now, sink);
  }

  bool is_due(TimePs now) const { return now >= deadline_; }
  // The time of arm_timer has come.
  template <class Sink>
  void timer(TimePs now, QueuePairCounters& counters, Sink& sink) {
    if (now < armed_) return;  // armed before an earlier one took its place
    armed_ = kNever;
    if (deadline_ == kNever) return;
    if (now < deadline_) return arm(sink);  // the deadline moved on while this timer was pending
    deadline_ = kNever;
    if (state_ == RequesterState::kRnrWait) {
      state_ = RequesterState::kActive;
      if (has_data()) sink.ready();
      return;
    }
    if (state_ != RequesterState::kActive) return;
    // Nothing acknowledged for a whole timeout: send again from the oldest (section 9.9.2.4.1).
    ++counters.timeouts;
    control_.lost(now);
    backoff_ = std::min(backoff_ + 1, kBackoffMax);
    if (retries_++ >= config_->retry_limit) return fail(Status::kRetryExceeded, sink);
    gap_ = false;
    ports_.timed_out(now, *config_);
    go_back(unacked_psn_);
    restart_timer(now, sink);
    sink.ready();
  }

  SendProgress progress() const;
  // Returns the base of its PSNs: the oldest that is not acknowledged.
  Fold::Base fold(Fold& fold);

  // fn(handle) is the handle of a request from now on.
  template <class Function>
  void renumber(Function fn) {
    queue_.renumber(fn);
  }

 private:
  using Entry = SendQueue::Entry;

  // Backoff: timeouts in a row double the timeout, up to this many times. A short one, good for a lost
  // packet, thus also outlives an outage of seconds. Devices do the like ("adaptive retransmission").
  static constexpr std::uint32_t kBackoffMax = 5;
  static constexpr TimePs kTimeoutMax = kNever >> 10;  // can be doubled so often and added to a time

  // True if the packet at the cursor must wait although the window is open. With nothing in flight it never
  // waits: one packet at a time always goes on (a "limited" request, section 9.7.7.2.5).
  bool must_wait() const {
    const Entry& entry = queue_.at(cursor_);
    const Verb verb = entry.request.verb;
    if (verb == Verb::kRead)
      return reads_ >= config_->reads_max ||
             psn_diff(send_psn_, unacked_psn_) + static_cast<std::int32_t>(entry.packets) >
                 static_cast<std::int32_t>(kReadMaxPackets);
    if (!credited_ || verb == Verb::kWrite || psn_diff(entry.ssn, limit_ssn_) <= 0) return false;
    if (verb == Verb::kWriteImm) return send_psn_ == psn_add(entry.first_psn, entry.packets - 1);
    // Of a SEND the first packet takes the receive: the others follow when it is acknowledged.
    return psn_diff(unacked_psn_, entry.first_psn) <= 0;
  }

  // The receives that the peer has posted, as an ACK says (section 9.7.7.2.3).
  void take_credits(const Packet& packet) {
    const std::uint8_t code = packet.syndrome & kSyndromeValue;
    credited_ = code != kSyndromeValue;
    if (!credited_) return;
    restrained_ = true;
    limit_ssn_ = psn_add(packet.msn, kCredits[code]);
  }

  template <class Sink>
  void arm(Sink& sink) {
    if (armed_ <= deadline_) return;  // an earlier timer is pending and will move itself
    armed_ = deadline_;
    sink.arm_timer(deadline_);
  }

  template <class Sink>
  void restart_timer(TimePs now, Sink& sink) {
    deadline_ = now + (std::min(config_->ack_timeout, kTimeoutMax) << backoff_);
    arm(sink);
  }

  void sent_again(Entry& entry, QueuePairCounters& counters) {
    if (control_.listens()) {
      recovering_ = true;
      recovered_psn_ = sent_end_psn_;
    }
    ++entry.retransmits;
    ++counters.retransmitted;
  }

  void go_back(std::uint32_t psn);
  void leave_out_acknowledged();  // of what is sent again

  // The oldest message is over.
  template <class Sink>
  void retire(Sink& sink) {
    const Entry& entry = queue_.at(0);
    const std::uint64_t handle = entry.request.handle;
    const std::uint32_t retransmits = entry.retransmits;
    if (cursor_ > 0) {
      --cursor_;
      if (entry.request.verb == Verb::kRead) --reads_;
    }
    queue_.pop();
    sink.sent(handle, Status::kOk, retransmits);
  }

  // All packets before `psn` have arrived: retires finished messages. True when that is news. The data of a
  // READ among them that has not come is lost and asked for again (section 9.7.5.1.1).
  template <class Sink>
  bool advance_to(std::uint32_t psn, TimePs now, Sink& sink) {
    if (psn_diff(psn, unacked_psn_) <= 0 || psn_diff(psn, sent_end_psn_) > 0) return false;
    const std::uint32_t before = unacked_psn_;
    bool missing = false;
    while (!queue_.empty()) {
      const Entry& entry = queue_.at(0);
      if (entry.request.verb == Verb::kRead) {
        if (psn_diff(psn, entry.first_psn) <= 0) break;
        psn = psn_diff(before, entry.first_psn) > 0 ? before : entry.first_psn;
        missing = true;
        break;
      }
      if (psn_diff(psn_add(entry.first_psn, entry.packets), psn) > 0) break;
      retire(sink);
    }
    unacked_psn_ = psn;
    leave_out_acknowledged();
    if (psn_diff(send_psn_, unacked_psn_) < 0) go_back(unacked_psn_);  // acknowledged while being sent again
    const bool progress = unacked_psn_ != before;
    if (progress) {
      gap_ = false;
      retries_ = rnr_retries_ = backoff_ = 0;
    }
    if (missing && !gap_ && state_ == RequesterState::kActive) {
      gap_ = true;  // once for each gap
      send_again(unacked_psn_, now, sink);
    }
    return progress;
  }

  template <class Sink>
  void progressed(TimePs now, Sink& sink) {
    if (queue_.empty()) {
      state_ = RequesterState::kIdle;
      deadline_ = kNever;
    } else if (state_ == RequesterState::kRnrWait) {
      // A duplicate got through: what is left waits on.
    } else if (send_psn_ == unacked_psn_) {
      deadline_ = kNever;  // nothing in flight
    } else {
      restart_timer(now, sink);
    }
    if (has_data()) sink.ready();
  }

  // RNR NAK (section 9.7.5.2.8): wait as long as it says, then send again from its PSN.
  template <class Sink>
  void receiver_not_ready(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink) {
    if (state_ == RequesterState::kRnrWait) return;
    ++counters.rnr_naks_received;
    if (config_->rnr_retry_limit < 7 && rnr_retries_++ >= config_->rnr_retry_limit)
      return fail(Status::kRnrRetryExceeded, sink);
    // The peer is there: sequence NAKs that arrive after each pause, for what left before it, never add up.
    retries_ = backoff_ = 0;
    go_back(packet.psn);
    state_ = RequesterState::kRnrWait;
    deadline_ =
        now + static_cast<TimePs>(kRnrDelay10us[packet.syndrome & kSyndromeValue]) * config_->rnr_unit;
    arm(sink);
  }

  // NAK (section 9.9.2.4.2): a sequence error is sent again, any other ends the connection.
  template <class Sink>
  void refused(const Packet& packet, TimePs now, QueuePairCounters& counters, Sink& sink) {
    ++counters.naks_received;
    if ((packet.syndrome & kSyndromeValid) == nak(NakCode::kSequence)) {
      if (state_ != RequesterState::kActive) return;
      const bool says_end = psn_diff(packet.msn, packet.psn) > 0 && psn_diff(packet.msn, sent_end_psn_) <= 0;
      if (packet.trimmed) retries_ = 0;  // not a silent peer
      if (config_->selective_repeat && says_end) return send_missing(packet.psn, packet.msn, now, sink);
      return send_again(packet.psn, now, sink);
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

  // Only what lies between two PSNs.
  template <class Sink>
  void send_missing(std::uint32_t psn, std::uint32_t end, TimePs now, Sink& sink) {
    if (retries_++ >= config_->retry_limit) return fail(Status::kRetryExceeded, sink);
    control_.lost(now);
    again_psn_ = psn;
    again_end_ = end;
    restart_timer(now, sink);
    sink.ready();
  }

  // A packet that has been sent before, alone.
  bool take_again(Packet& packet, QueuePairCounters& counters) {
    Entry& entry = queue_.of(again_psn_);
    SendQueue::describe(entry, static_cast<std::uint32_t>(psn_diff(again_psn_, entry.first_psn)), *config_,
                        packet);
    packet.port = ports_.next(again_psn_, config_->spray, true);
    packet.psn = last_psn_ = again_psn_;
    sent_again(entry, counters);
    packet.ack_request = true;
    again_psn_ = psn_add(again_psn_, 1);
    ++counters.data_sent;
    return true;
  }

  template <class Sink>
  void send_again(std::uint32_t psn, TimePs now, Sink& sink) {
    if (retries_++ >= config_->retry_limit) return fail(Status::kRetryExceeded, sink);
    control_.lost(now);
    go_back(psn);
    restart_timer(now, sink);
    if (has_data()) sink.ready();
  }

  // The oldest message ends with `status`, all others are flushed (section 10.3.1.7).
  template <class Sink>
  void fail(Status status, Sink& sink) {
    state_ = RequesterState::kError;
    deadline_ = kNever;
    while (!queue_.empty()) {
      const std::uint64_t handle = queue_.at(0).request.handle;
      const std::uint32_t retransmits = queue_.at(0).retransmits;
      queue_.pop();
      sink.sent(handle, status, retransmits);
      status = Status::kFlushed;
    }
    cursor_ = reads_ = 0;
    again_psn_ = again_end_;
  }

  const QueuePairConfig* config_;
  // PSNs: unacked_ <= send_ <= sent_end_ <= post_ on the circle.
  RequesterState state_ = RequesterState::kIdle;
  bool restrained_ = false;     // there are READs or credits, which has_data must look at
  bool credited_ = false;       // the peer's ACKs count its receives
  bool recovering_ = false;     // something has been sent again; until recovered_psn_ is acknowledged
  bool gap_ = false;            // a READ's missing data has been asked for again
  std::uint32_t send_psn_;      // next to be sent
  std::uint32_t unacked_psn_;   // oldest not acknowledged
  std::uint32_t sent_end_psn_;  // after the highest ever sent: before it is a retransmission
  std::uint32_t post_psn_;      // after the last posted message
  std::uint32_t again_psn_, again_end_;  // from and to which packets are sent again, alone
  std::uint32_t recovered_psn_ = 0;
  std::uint32_t last_psn_ = psn_add(send_psn_, kPsnMask);  // that was taken
  std::uint32_t cursor_ = 0;                               // place of the message that send_psn_ lies in
  std::uint32_t since_request_ = 0;
  std::uint32_t retries_ = 0, rnr_retries_ = 0;
  std::uint32_t backoff_ = 0;                  // timeouts in a row
  TimePs deadline_ = kNever, armed_ = kNever;  // when the timer means something; when the driver will call
  SendQueue queue_;
  SenderControl control_;
  [[no_unique_address]] DataPorts ports_;  // the next lies in its padding
  std::uint8_t last_syndrome_ = 0;
  std::uint32_t reads_ = 0;  // asked for and not complete
  std::uint32_t ssn_ = 0, limit_ssn_ = 0;
};

}  // namespace genie::roce
