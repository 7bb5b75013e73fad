// What a queue pair's effects do in the live world. Included by the engine's own files only.
#pragma once
#include <cstdio>
#include <cstring>

#include "live/engine.hpp"

namespace genie::live {

struct Engine::Sink {
  Engine& engine;
  Connection& connection;
  TimePs now;

  void ready(roce::QueuePair& queue_pair) {
    if (queue_pair.has_control()) engine.port_.mark_control(queue_pair.id(), now);
    if (queue_pair.has_data()) engine.port_.mark_data(queue_pair.id(), now, queue_pair.data_from());
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    engine.timers_.push({at, TimerKind::kQueuePair, queue_pair.id()});
  }
  void sent(roce::QueuePair& queue_pair, std::uint64_t handle, roce::Status status,
            std::uint32_t retransmits) {
    if (status == roce::Status::kOk) {
      engine.completions_.push_back({.type = Completion::Type::kSent,
                                     .handle = handle,
                                     .time = now - engine.origin_,
                                     .retransmits = retransmits});
      return;
    }
    if (status == roce::Status::kFlushed || !engine.error_.empty()) return;
    char detail[160];
    std::snprintf(detail, sizeof detail,
                  " (queue pair 0x%06x, PSN %u, syndrome 0x%02x, %u retries of %.0f ms)",
                  connection.destination_qpn, queue_pair.unacked_psn(), queue_pair.last_syndrome(),
                  engine.config_.queue_pair.retry_limit,
                  static_cast<double>(engine.config_.queue_pair.ack_timeout) / 1e9);
    engine.error_ = "rank " + std::to_string(engine.config_.rank) + " gave up sending to rank " +
                    std::to_string(connection.rank) + ": " + roce::describe(status) + detail;
  }
  bool may_write(roce::QueuePair&, std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    return rkey == engine.config_.rkey && address <= engine.destination_.size() &&
           size_bytes <= engine.destination_.size() - address;
  }
  bool may_read(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return false; }
  bool take_receive(roce::QueuePair&) { return true; }  // receives are posted again as they are used
  std::int64_t receives_left(roce::QueuePair&) { return -1; }
  bool place(roce::QueuePair&, const roce::Packet&, std::uint64_t address) {
    if (address + engine.payload_.size() > engine.destination_.size()) return false;
    std::memcpy(engine.destination_.data() + address, engine.payload_.data(), engine.payload_.size());
    return true;
  }
  void fetched(roce::QueuePair&, const roce::Packet&, std::uint64_t) {}
  void delivered(roce::QueuePair&, const roce::Delivery& delivery) {
    engine.completions_.push_back({.type = Completion::Type::kArrived,
                                   .peer = connection.rank,
                                   .tag = delivery.immediate,
                                   .size_bytes = delivery.size_bytes,
                                   .first = delivery.first - engine.origin_,
                                   .time = now - engine.origin_});
  }
};

}  // namespace genie::live
