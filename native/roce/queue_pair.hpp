// One end of a reliable connection: a requester and a responder. Pure: no clock, no random numbers, no bytes;
// effects go to a sink.
//
// The driver calls post, receive and timer when something happens. It calls take_control and take_data when
// its NIC port has room. After each of these calls it asks has_control and has_data again. Then it calls
// departed, with the time at which the packet begins to leave. Data may leave from data_from() on, which
// congestion control moves. Section numbers are those of the InfiniBand Architecture Specification, volume 1.
//
// A sink has these functions. Each has the queue pair as first argument.
//   void ready()                           Control or data can be taken.
//   void arm_timer(at)                     Call timer() then. Times armed before stay pending.
//   void sent(handle, status, resent)      A request is over. `resent`: packets sent again.
//   bool may_write(rkey, address, bytes)   True if a peer may write there.
//   bool readable()                        True if peers may read anything at all.
//   bool may_read(rkey, address, bytes)    True if a peer may read there.
//   bool take_receive()                    Uses one posted receive. False: none is left.
//   std::int64_t receives_left()           Posted receives, which ACKs say. -1: they are not counted.
//   bool place(packet, address)            The payload belongs there: a WRITE's RDMA address, or an offset
//                                          in a SEND. False: the SEND is longer than its receive. A packet
//                                          that came early belongs where it says itself. In its turn it is
//                                          `placed`, and false says that this was not `address`.
//   void fetched(packet, local_address)    The payload of a READ belongs there.
//   void delivered(delivery)               A message is complete.
//   void refused(packet, refusal)          The packet was not taken.
#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/time.hpp"
#include "roce/opcode.hpp"
#include "roce/requester.hpp"
#include "roce/responder.hpp"
#include "roce/types.hpp"

namespace genie::roce {

class QueuePair {
 public:
  QueuePair(const QueuePairConfig& config, std::uint32_t id, std::uint32_t first_psn,
            std::uint32_t peer_first_psn)
      : id_(id), responder_(config, peer_first_psn), requester_(config, first_psn, id) {}

  std::uint32_t id() const { return id_; }
  RequesterState state() const { return requester_.state(); }
  const QueuePairCounters& counters() const { return counters_; }
  std::size_t pending() const { return requester_.pending(); }
  std::uint32_t expected_psn() const { return responder_.expected_psn(); }
  std::uint32_t unacked_psn() const { return requester_.unacked_psn(); }
  std::uint32_t send_psn() const { return requester_.send_psn(); }
  std::uint8_t last_syndrome() const { return requester_.last_syndrome(); }

  bool has_control() const { return responder_.has_control(); }
  bool has_data() const { return responder_.has_response() || requester_.has_data(); }
  TimePs data_from() const { return requester_.data_from(); }
  std::int64_t allowed_bps(TimePs now) const { return requester_.allowed_bps(now); }

  template <class Sink>
  void post(const SendRequest& request, Sink& sink) {
    Bound<Sink> bound{*this, sink};
    requester_.post(request, bound);
  }

  // A congestion notification, acknowledgement or NAK; false when none is due.
  template <class Sink>
  bool take_control(Packet& packet, Sink& sink) {
    Bound<Sink> bound{*this, sink};
    return responder_.take_control(packet, counters_, bound);
  }

  // A request, or a part of a READ's data, for which the peer waits; false when there is none.
  template <class Sink>
  bool take_data(TimePs now, Packet& packet, Sink& sink) {
    Bound<Sink> bound{*this, sink};
    const bool taken = responder_.take_response(packet, counters_, bound) ||
                       requester_.take_data(now, packet, counters_, bound);
    assert(requester_.is_consistent() && responder_.is_consistent());
    return taken;
  }

  void departed(std::uint32_t wire_bytes, TimePs start) { requester_.departed(wire_bytes, start); }

  // A packet of this connection has arrived. Answers to atomics, which it never asks for, are ignored.
  // `telemetry`: of an acknowledgement, written by the ports on the path of the packets that it acknowledges.
  template <class Sink>
  void receive(const Packet& packet, TimePs now, Sink& sink,
               const congestion::Telemetry* telemetry = nullptr) {
    Bound<Sink> bound{*this, sink};
    if (packet.opcode == Opcode::kAcknowledge) {
      ++counters_.acks_received;
      requester_.acknowledged(packet, now, counters_, bound, telemetry);
      assert(requester_.is_consistent());
      return;
    }
    if (packet.opcode == Opcode::kCnp) {
      requester_.notified(packet, now, counters_, bound);
      return;
    }
    // Where forged packets are known, one must not have its mark notified to the peer that did not send it.
    const bool after = responder_.knows_forged();
    if (!after) responder_.look_for_marks(packet.congested, now, counters_);
    if (is_read_response(packet.opcode)) {
      requester_.response(packet, now, counters_, bound);
    } else if (is_request(packet.opcode)) {
      ++counters_.data_received;
      responder_.request(packet, now, counters_, bound);
    } else {
      bound.taken = false;
    }
    if (after && bound.taken) responder_.look_for_marks(packet.congested, now, counters_);
    assert(requester_.is_consistent() && responder_.is_consistent());
    if (has_control() || responder_.has_response()) sink.ready(*this);
  }

  // Of a data packet nothing but the header has come: a switch had no room for the rest.
  template <class Sink>
  void receive_trimmed(std::uint32_t psn, Sink& sink) {
    responder_.trimmed(psn, counters_);
    if (has_control()) sink.ready(*this);
  }

  // The time of arm_timer has come. Returns false where nothing was due.
  template <class Sink>
  bool timer(TimePs now, Sink& sink) {
    const bool is_due = requester_.is_due(now);
    Bound<Sink> bound{*this, sink};
    requester_.timer(now, counters_, bound);
    return is_due;
  }

  std::uint32_t message_left() const { return requester_.message_left(); }
  SendProgress progress() const { return requester_.progress(); }
  bool can_fold() const { return responder_.can_fold(); }
  // Bases of both ends' numbers, to which packets under way are relative.
  struct Bases {
    Fold::Base expected_psn, msn, unacked_psn;
  };
  Bases fold(Fold& fold) {
    static_assert(has_size<QueuePair>(608));
    counters_.fold(fold);
    const Responder::Bases received = responder_.fold(fold);
    return {received.psn, received.msn, requester_.fold(fold)};
  }

  // It has been given a message, or a packet has come.
  bool is_used() const { return pending() > 0 || counters_.data_sent > 0 || counters_.data_received > 0; }
  // Goes on from the state of another, and counts beside what it has counted. fn(handle) is a request's
  // handle here.
  template <class Function>
  void take_over(const QueuePair& earlier, Function fn) {
    const QueuePairCounters counters = counters_;
    const std::uint32_t id = id_;
    *this = earlier;
    id_ = id;
    counters_ += counters;
    requester_.renumber(fn);
  }
  void add_counters(const QueuePair& earlier) { counters_ += earlier.counters_; }

  // Receives have been posted for a peer that may wait for them.
  template <class Sink>
  void receives_posted(Sink& sink) {
    responder_.receives_posted();
    if (has_control()) sink.ready(*this);
  }

 private:
  // The driver's sink, with this queue pair filled in.
  template <class Sink>
  struct Bound {
    QueuePair& pair;
    Sink& sink;
    bool taken = true;  // false: the packet was refused
    void ready() { sink.ready(pair); }
    void arm_timer(TimePs at) { sink.arm_timer(pair, at); }
    void sent(std::uint64_t handle, Status status, std::uint32_t retransmits) {
      sink.sent(pair, handle, status, retransmits);
    }
    bool may_write(std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
      return sink.may_write(pair, rkey, address, size_bytes);
    }
    bool may_read(std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
      return sink.may_read(pair, rkey, address, size_bytes);
    }
    bool readable() { return sink.readable(pair); }
    bool take_receive() { return sink.take_receive(pair); }
    std::int64_t receives_left() { return sink.receives_left(pair); }
    bool place(const Packet& packet, std::uint64_t address) { return sink.place(pair, packet, address); }
    void fetched(const Packet& packet, std::uint64_t address) { sink.fetched(pair, packet, address); }
    void delivered(const Delivery& delivery) { sink.delivered(pair, delivery); }
    void refused(const Packet& packet, Refusal refusal) {
      taken = false;
      sink.refused(pair, packet, refusal);
    }
  };

  // In this order what every packet asks for lies together: the first counters, and the responder's end with
  // the requester's beginning.
  QueuePairCounters counters_;
  std::uint32_t id_;
  Responder responder_;
  Requester requester_;
};

}  // namespace genie::roce
