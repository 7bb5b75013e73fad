// What walkers ask for and hear: messages, sleeps, and the latencies of their hosts.
#include <algorithm>

#include "core/index.hpp"
#include "twin/packet_level/simulator_sink.hpp"

namespace genie::twin {
// Adds to what happens to a rank later. Of equal times sleeps come first, by node, then the others as they
// came.
void Simulator::later(std::int32_t rank, Later entry) {
  Backlog& own = later_[index(rank)];
  if (entry.kind != Later::Kind::kSleep) entry.order = ++own.order;
  own.heap.push_back(entry);
  std::push_heap(own.heap.begin(), own.heap.end());
  schedule_.set(later_source_ + static_cast<std::uint32_t>(rank), own.heap.front().time);
}

std::uint32_t Simulator::keep(std::int32_t rank, const Delayed& delayed) {
  Backlog& own = later_[index(rank)];
  if (own.unused.empty()) {
    own.delayed.push_back(delayed);
    return static_cast<std::uint32_t>(own.delayed.size()) - 1;
  }
  const std::uint32_t place = own.unused.back();
  own.unused.pop_back();
  own.delayed[place] = delayed;
  return place;
}

void Simulator::do_later(Process& process, std::int32_t rank, const Later& entry) {
  Backlog& own = later_[index(rank)];
  switch (entry.kind) {
    case Later::Kind::kSleep:
      return make_ready(process, rank,
                        {.type = Completion::Type::kTimer, .handle = entry.order, .time = process.now});
    case Later::Kind::kCompletion:
      own.unused.push_back(entry.place);
      return make_ready(process, rank, own.delayed[entry.place].completion);
    case Later::Kind::kPost: {
      own.unused.push_back(entry.place);
      const Operation operation = own.delayed[entry.place].operation;
      return post(process, rank, operation);
    }
    case Later::Kind::kSend: {
      std::deque<roce::SendRequest>& waiting = nic_queues_[entry.place].waiting;
      const roce::SendRequest request = waiting.front();
      waiting.pop_front();
      Sink sink{*this, process, entry.place};
      return queue_pairs_[entry.place].queue_pair.post(request, sink);
    }
    case Later::Kind::kNotification: {
      Sink sink{*this, process, entry.place};
      roce::Packet packet;
      packet.opcode = roce::Opcode::kCnp;
      return queue_pairs_[entry.place].queue_pair.receive(packet, process.now, sink);
    }
  }
}

void Simulator::make_ready(Process& process, std::int32_t rank, const Completion& completion) {
  if (ready_[index(rank)].empty()) process.to_walk.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

void Simulator::deliver(Process& process, std::int32_t rank, const Completion& completion) {
  const TimePs latency = network_->message_latency_ps[index(host_of(rank))];
  if (latency == 0) return make_ready(process, rank, completion);
  later(rank, {.time = process.now + latency,
               .kind = Later::Kind::kCompletion,
               .order = 0,
               .place = keep(rank, {.completion = completion, .operation = {}})});
}

void Simulator::walk(Process& process, std::int32_t rank) {
  std::vector<Completion>& ready = ready_[index(rank)];
  process.operations.clear();
  walkers_[index(rank)].advance(process.now, ready, process.operations);
  ready.clear();
  if (!walkers_[index(rank)].error().empty()) process.errors.push_back(walkers_[index(rank)].error());
  perform(process, rank);
}

void Simulator::perform(Process& process, std::int32_t rank) {
  for (const Operation& operation : process.operations) {
    if (operation.type == Operation::Type::kTimer) {
      later(rank, {.time = operation.at, .kind = Later::Kind::kSleep, .order = operation.handle});
    } else if (network_->doorbell_latency > 0) {
      later(rank, {.time = process.now + network_->doorbell_latency,
                   .kind = Later::Kind::kPost,
                   .order = 0,
                   .place = keep(rank, {.completion = {}, .operation = operation})});
    } else {
      post(process, rank, operation);
    }
  }
}

// A rank's message, in parts where its connection has several queue pairs that share it.
void Simulator::post(Process& process, std::int32_t rank, const Operation& operation) {
  const std::uint32_t first = *first_of_.find(key_of(rank, operation.peer));
  connections_[queue_pairs_[first].connection].send(
      operation.handle, operation.tag, static_cast<std::uint64_t>(operation.size_bytes),
      [&](const roce::Connection::Part& part) {
        if (!part.is_credit) return send(process, first + part.queue_pair, part.request());
        Sink sink{*this, process, first};
        queue_pairs_[first].queue_pair.post(part.request(), sink);
      });
}

// Through the NIC, which may take its time.
void Simulator::send(Process& process, std::uint32_t id, const roce::SendRequest& request) {
  HostQueuePair& own = queue_pairs_[id];
  if (nic_queues_.empty() || !nic_queues_[id].delays) {
    Sink sink{*this, process, id};
    return own.queue_pair.post(request, sink);
  }
  NicQueue& queue = nic_queues_[id];
  queue.waiting.push_back(request);
  const TimePs ready = network_->nic.ready(queue.costs, request.size_bytes, process.now);
  later(own.rank, {.time = ready, .kind = Later::Kind::kSend, .order = 0, .place = id});
}

}  // namespace genie::twin
