// The messages that a requester has been given and that are not over, oldest first. Section numbers are those
// of the InfiniBand Architecture Specification, volume 1.
#pragma once
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/fold.hpp"
#include "core/mix.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"

namespace genie::roce {

// The first message that is not over, and how far it has come.
struct SendProgress {
  std::uint32_t messages = 0;                  // that are not over
  std::uint32_t unacked_psn = 0, end_psn = 0;  // of the first
  std::uint32_t packets = 0, left = 0;         // in it, and of it to be sent for the first time
};

class SendQueue {
 public:
  struct Entry {
    SendRequest request;
    std::uint32_t first_psn = 0, packets = 0, retransmits = 0;
    std::uint32_t ssn = 0;  // send sequence number: the message's number on this connection, from 1
  };

  std::uint32_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  // By its place from the oldest.
  Entry& at(std::uint32_t place) {
    assert(place < count_);
    return ring_[wrapped(head_ + place)];
  }
  const Entry& at(std::uint32_t place) const {
    assert(place < count_);
    return ring_[wrapped(head_ + place)];
  }

  // The one that has this PSN, which it must be.
  Entry& of(std::uint32_t psn) {
    std::uint32_t place = 0;
    while (psn_diff(psn, psn_add(at(place).first_psn, at(place).packets)) >= 0) ++place;
    return at(place);
  }

  void push(const Entry& entry) {
    assert(empty() || entry.first_psn == psn_add(at(count_ - 1).first_psn, at(count_ - 1).packets));
    if (count_ == ring_.size()) grow();
    ring_[wrapped(head_ + count_)] = entry;
    ++count_;
  }
  void pop() {
    head_ = wrapped(head_ + 1);
    --count_;
  }

  // fn(handle) is the handle of a request from now on.
  template <class Function>
  void renumber(Function fn) {
    for (std::uint32_t place = 0; place < count_; ++place)
      at(place).request.handle = fn(at(place).request.handle);
  }

  // True if an entry is a READ whose data has this PSN.
  bool is_reading(std::uint32_t psn) const {
    for (std::uint32_t place = 0; place < count_; ++place) {
      const Entry& entry = at(place);
      if (psn_diff(psn, psn_add(entry.first_psn, entry.packets)) < 0)
        return entry.request.verb == Verb::kRead;
    }
    return false;
  }

  // `psn`, `ssn`: the bases of both circles. `psn` is that of the oldest that is not acknowledged. The first
  // packets, the last one and the last acknowledgement of a message differ from all between them. A message
  // that is longer than a period therefore keeps its PSNs, and counts down to these.
  void fold(Fold& fold, const Fold::Base& psn, const Fold::Base& ssn, std::uint32_t send_psn) {
    static_assert(has_size<SendQueue>(32));
    static_assert(has_size<Entry>(64));
    static_assert(has_size<SendRequest>(48));
    const auto unacked_psn = static_cast<std::uint32_t>(psn.before);
    fold.exact(count_);
    for (std::uint32_t place = 0; place < count_; ++place) {
      Entry& entry = at(place);
      SendRequest& request = entry.request;
      fold.exact(pair_key(request.size_bytes, request.immediate), request.local_address,
                 request.remote_address);
      fold.exact(pair_key(request.rkey, entry.retransmits));
      fold.handle(request.handle);
      fold.relative(ssn, entry.ssn, kPsnMask);
      const std::uint32_t what = static_cast<std::uint32_t>(request.verb) | request.solicited << 8;
      if (request.verb == Verb::kRead) {
        fold.exact(what);
        fold.relative(psn, entry.first_psn, kPsnMask);
        continue;
      }
      const std::uint32_t end = psn_add(entry.first_psn, entry.packets);
      fold.exact(what | (psn_diff(send_psn, entry.first_psn) > 0) << 9 |
                 (psn_diff(unacked_psn, entry.first_psn) > 0) << 10);
      if (psn_diff(end, send_psn) > 0) {
        fold.left(psn_add(end, kPsnMask + 1 - send_psn), 2);
      } else {
        fold.left(psn_add(end, kPsnMask + 1 - unacked_psn), 1);
      }
      fold.either(psn, entry.first_psn, kPsnMask);
    }
  }

  // A packet of a message, by its place there.
  static void describe(const Entry& entry, std::uint32_t index, const QueuePairConfig& config,
                       Packet& packet) {
    assert(index < entry.packets);
    const std::uint32_t mtu_bytes = config.mtu_bytes;
    const std::uint32_t offset = index * mtu_bytes;
    const bool is_read = entry.request.verb == Verb::kRead;
    const bool last = is_read || index + 1 == entry.packets;
    packet = Packet{};
    packet.opcode = is_read ? Opcode::kReadRequest : opcode_of(entry.request.verb, index == 0, last);
    if (config.spray > 1 && is_write(packet.opcode)) packet.opcode = sprayed(packet.opcode);
    packet.local_address = entry.request.local_address + offset;
    packet.solicited = last && entry.request.solicited;
    if (!is_read) packet.payload_bytes = last ? entry.request.size_bytes - offset : mtu_bytes;
    if (has_reth(packet.opcode)) {
      // A READ whose data has come in part asks for the rest (section 9.9.2.4.3).
      packet.remote_address = entry.request.remote_address + offset;
      packet.rkey = entry.request.rkey;
      packet.message_bytes = entry.request.size_bytes - offset;
    }
    if (has_immediate(packet.opcode)) packet.immediate = entry.request.immediate;
    assert(is_request(packet.opcode) && packet.payload_bytes <= mtu_bytes);
  }

 private:
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

  std::uint32_t wrapped(std::uint32_t place) const {
    return place & (static_cast<std::uint32_t>(ring_.size()) - 1);
  }
  void grow() {
    std::vector<Entry> larger(ring_.empty() ? 4 : ring_.size() * 2);
    for (std::uint32_t place = 0; place < count_; ++place) larger[place] = at(place);
    ring_ = std::move(larger);
    head_ = 0;
  }

  std::uint32_t head_ = 0, count_ = 0;
  std::vector<Entry> ring_;  // of a power of two
};

}  // namespace genie::roce
