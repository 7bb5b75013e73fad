// Effects of a queue pair in the twin.
#pragma once
#include <string>

#include "twin/host/hosts.hpp"

namespace genie::twin {

struct Hosts::Sink {
  Hosts& hosts;
  Process& process;
  std::uint32_t number;

  HostQueuePair& state() { return hosts.queue_pairs_[number]; }

  void ready(roce::QueuePair& queue_pair) {
    const HostQueuePair& own = state();
    Nic& nic = hosts.nics_[own.nic];
    bool news = queue_pair.has_control() && nic.port.mark_control(own.on_port, process.now);
    if (queue_pair.has_data()) news |= nic.port.mark_data(own.on_port, process.now, queue_pair.data_from());
    if (news) hosts.wake(process, own.nic);
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    hosts.schedule_.set(hosts.timer_source_ + queue_pair.id(), at);
  }
  void sent(roce::QueuePair&, std::uint64_t handle, roce::Status status, std::uint32_t retransmits) {
    const HostQueuePair& own = state();
    if (status == roce::Status::kOk) {
      const roce::Connection::Sent over = hosts.queue_pairs_.connection_of(own).sent(handle, retransmits);
      if (!over.whole) return;
      hosts.ranks_.deliver(process, own.rank,
                           {.type = Completion::Type::kSent,
                            .handle = over.handle,
                            .time = process.now,
                            .retransmits = over.retransmits});
    } else if (status != roce::Status::kFlushed) {
      process.given_up.push_back(number);
      process.errors.push_back("rank " + std::to_string(own.rank) + " gave up sending to rank " +
                               std::to_string(own.peer_rank) + ": " + roce::describe(status));
    }
  }
  bool may_write(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
  bool may_read(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
  bool readable(roce::QueuePair&) { return true; }
  void refused(roce::QueuePair&, const roce::Packet&, roce::Refusal) {}
  bool take_receive(roce::QueuePair&) { return true; }
  std::int64_t receives_left(roce::QueuePair&) { return -1; }
  bool place(roce::QueuePair&, const roce::Packet&, std::uint64_t) { return true; }
  void fetched(roce::QueuePair&, const roce::Packet&, std::uint64_t) {}
  void delivered(roce::QueuePair&, const roce::Delivery& delivery) {
    const HostQueuePair& own = state();
    hosts.queue_pairs_.connection_of(own).delivered(
        own.number, delivery, process.now, [&](const roce::Connection::Arrival& message) {
          hosts.ranks_.deliver(process, own.rank,
                               {.type = Completion::Type::kArrived,
                                .peer = own.peer_rank,
                                .tag = message.tag,
                                .size_bytes = static_cast<std::int64_t>(message.size_bytes),
                                .first = message.first,
                                .time = message.time});
        });
  }
};

}  // namespace genie::twin
