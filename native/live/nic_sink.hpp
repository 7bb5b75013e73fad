// Effects of a queue pair on the soft NIC. Only the soft NIC's own files include it.
#pragma once
#include <cassert>
#include <cstring>

#include "live/soft_nic.hpp"

namespace genie::live {

struct SoftNic::Sink {
  static constexpr std::uint32_t kFifoEntryBytes = 64;

  SoftNic& nic;
  Connection& connection;
  TimePs now;

  void ready(roce::QueuePair& queue_pair) {
    if (queue_pair.has_control()) nic.port_.mark_control(queue_pair.id(), now);
    if (queue_pair.has_data()) nic.port_.mark_data(queue_pair.id(), now, queue_pair.data_from());
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    assert(at >= now);
    nic.timers_.push({at, queue_pair.id()});
  }
  void sent(roce::QueuePair& queue_pair, std::uint64_t handle, roce::Status status,
            std::uint32_t retransmits) {
    nic.owner_.sent(queue_pair.id(), handle, status, retransmits, now);
  }
  bool may_write(roce::QueuePair&, std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    if (is_fifo(rkey)) return size_bytes == kFifoEntryBytes && address % kFifoEntryBytes == 0;
    return rkey == nic.config_.rkey &&
           nic.holds(nic.in_memory(address), size_bytes, nic.config_.writable_bytes);
  }
  bool may_read(roce::QueuePair&, std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    return rkey == nic.config_.rkey && nic.holds(address, size_bytes, nic.config_.readable_bytes);
  }
  bool readable(roce::QueuePair&) { return nic.config_.readable_bytes > 0; }
  void refused(roce::QueuePair& queue_pair, const roce::Packet& packet, roce::Refusal refusal) {
    nic.refused_packet(queue_pair.id(), packet, refusal);
  }
  bool take_receive(roce::QueuePair&) {
    if (!connection.receives) return true;  // posted again as they are used
    if (connection.receives->posted.empty()) return false;
    connection.receives->current = connection.receives->posted.front();
    connection.receives->posted.pop_front();
    return true;
  }
  std::int64_t receives_left(roce::QueuePair&) {
    return connection.receives ? static_cast<std::int64_t>(connection.receives->posted.size()) : -1;
  }
  bool place(roce::QueuePair& queue_pair, const roce::Packet& packet, std::uint64_t address) {
    if (roce::is_send(packet.opcode)) {
      const Receive into = connection.receives ? connection.receives->current : Receive{};
      if (!nic.holds(address, nic.payload_.size(), into.size_bytes)) return false;
      address += into.address;
    } else if (roce::has_reth(packet.opcode) && is_fifo(packet.rkey)) {
      return true;
    }
    if (roce::is_sprayed(packet.opcode) && packet.remote_address != address) return false;
    if (packet.placed) return true;
    assert(nic.payload_.size() == packet.payload_bytes);
    const std::uint64_t at = nic.in_memory(address);
    if (!nic.holds(at, nic.payload_.size(), nic.memory_.size())) return false;
    std::memcpy(nic.memory_.data() + at, nic.payload_.data(), nic.payload_.size());
    nic.owner_.placed(queue_pair.id(), address, nic.payload_);
    return true;
  }
  bool is_fifo(std::uint32_t rkey) const {
    return nic.config_.fifo_rkey != 0 && rkey == nic.config_.fifo_rkey;
  }
  void fetched(roce::QueuePair&, const roce::Packet&, std::uint64_t address) {
    if (nic.holds(address, nic.payload_.size(), nic.memory_.size()))
      std::memcpy(nic.memory_.data() + address, nic.payload_.data(), nic.payload_.size());
  }
  void delivered(roce::QueuePair& queue_pair, const roce::Delivery& delivery) {
    const bool used = connection.receives && (delivery.is_send || delivery.has_immediate);
    nic.owner_.delivered(queue_pair.id(), delivery, used ? &connection.receives->current : nullptr, now);
  }
};

}  // namespace genie::live
