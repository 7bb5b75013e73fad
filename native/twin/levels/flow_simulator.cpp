#include "twin/levels/flow_simulator.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"
#include "twin/fabric/frames.hpp"
#include "twin/fabric/paths.hpp"
#include "walker/parts.hpp"

namespace genie::twin {
std::uint64_t FlowSimulator::packets(std::uint64_t size_bytes) const {
  return std::max<std::uint64_t>(1, (size_bytes + config_.mtu_bytes - 1) / config_.mtu_bytes);
}

// Of a WRITE with immediate data: headers of the first, middle and last packets, and the padding of the last.
std::int64_t FlowSimulator::wire_bytes(std::uint64_t size_bytes) const {
  using roce::Opcode;
  const std::uint64_t count = packets(size_bytes), padded = (size_bytes + 3) & ~std::uint64_t{3};
  if (count == 1)
    return static_cast<std::int64_t>(padded + frame_header_bytes(*network_, Opcode::kWriteOnlyImm));
  return static_cast<std::int64_t>(padded + frame_header_bytes(*network_, Opcode::kWriteFirst) +
                                   (count - 2) * frame_header_bytes(*network_, Opcode::kWriteMiddle) +
                                   frame_header_bytes(*network_, Opcode::kWriteLastImm));
}

double FlowSimulator::last_packet_bytes(std::uint64_t size_bytes) const {
  return packets(size_bytes) == 1
             ? static_cast<double>(wire_bytes(size_bytes))
             : config_.mtu_bytes +
                   static_cast<double>(frame_header_bytes(*network_, roce::Opcode::kWriteMiddle));
}

// On all links that it has a share of; a circuit is on those of the path.
void FlowSimulator::carry(const QueuePair& own, std::uint64_t count, std::uint64_t size_bytes) {
  const auto add = [&](std::uint32_t link, double share) {
    use_[link].packets += share * static_cast<double>(count);
    use_[link].bytes += share * static_cast<double>(size_bytes);
  };
  if (circuits_.used()) {
    for (const std::uint32_t link : own.path) add(link, 1);
  } else {
    for (const LinkShare& part : own.shares) add(part.link, part.share);
  }
}

// Its place is free when both ends have been told.
void FlowSimulator::told(std::uint64_t message) {
  assert(message < messages_.size() && messages_[message].ends > 0);
  if (--messages_[message].ends == 0) free_messages_.push_back(static_cast<std::int32_t>(message));
}

void FlowSimulator::push(TimePs time, Kind kind, std::uint32_t place, std::uint64_t what) {
  assert(time >= now_);
  pending_.push(time, {kind, place, what});
}

void FlowSimulator::start() {
  connect_all();
  apply_changes();
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    operations_.clear();
    walkers_[rank].begin(0, operations_);
    perform(static_cast<std::int32_t>(rank));
  }
  settle();
}

bool FlowSimulator::run(std::uint64_t events) {
  const std::uint64_t until = events_ + events;
  const std::vector<Change>& changes = network_->changes;
  while (events_ < until && !failed_) {
    const bool changes_left = next_change_ < changes.size();
    if (pending_.empty() && (!changes_left || done())) return false;
    const TimePs change = changes_left ? changes[next_change_].time : kNever;
    const TimePs next = std::min(pending_.next_time(), change);
    failed_ = too_long_ = next > kLastTime;
    if (failed_) break;
    now_ = next;
    if (change == now_) apply_changes();
    while (true) {  // all of this instant
      while (pending_.next_time() == now_) {
        pending_.pop(current_);
        for (const Event& event : current_) handle(event);
      }
      if (to_walk_.empty()) break;
      walk_all();
    }
    settle();
  }
  return !failed_;
}

void FlowSimulator::handle(const Event& event) {
  ++events_;
  switch (event.kind) {
    case Kind::kFinish:
      if (queue_pairs_[event.place].version == event.what) finish(event.place);
      return;
    case Kind::kArrive: {
      const QueuePair& from = queue_pairs_[event.place];
      const Message& message = messages_[event.what];
      const roce::Connection::Arrival arrival{
          .size_bytes = message.size_bytes, .tag = message.tag, .first = message.first, .time = message.time};
      const std::int32_t rank = from.peer_rank, peer = from.rank;
      connections_[queue_pairs_[from.peer].connection].arrived(
          from.number, arrival, [&](const roce::Connection::Arrival& whole) {
            deliver(rank, {.type = Completion::Type::kArrived,
                           .peer = peer,
                           .tag = whole.tag,
                           .size_bytes = static_cast<std::int64_t>(whole.size_bytes),
                           .first = whole.first,
                           .time = whole.time});
          });
      return told(event.what);
    }
    case Kind::kAck: {
      const QueuePair& own = queue_pairs_[event.place];
      const roce::Connection::Sent over = connections_[own.connection].sent(messages_[event.what].handle, 0);
      told(event.what);
      if (over.whole)
        deliver(own.rank, {.type = Completion::Type::kSent,
                           .handle = over.handle,
                           .time = now_ - network_->message_latency_ps[index(host_of(own.rank))]});
      return;
    }
    case Kind::kCredit: {
      const QueuePair& from = queue_pairs_[event.place];
      const TimePs time = now_ - network_->message_latency_ps[index(host_of(from.peer_rank))];
      return deliver(from.peer_rank, {.type = Completion::Type::kArrived,
                                      .peer = from.rank,
                                      .tag = static_cast<std::uint32_t>(event.what),
                                      .size_bytes = kCreditBytes,
                                      .first = time,
                                      .time = time});
    }
    case Kind::kSleep:
      return deliver(static_cast<std::int32_t>(event.place),
                     {.type = Completion::Type::kTimer, .handle = event.what, .time = now_});
    case Kind::kPost:
      free_posts_.push_back(static_cast<std::uint32_t>(event.what));
      return post(static_cast<std::int32_t>(event.place), Operation{posts_[event.what]});
    case Kind::kSend:
      return enqueue(event.place, static_cast<std::int32_t>(event.what));
    case Kind::kCircuit:
      circuits_.is_up(event.place);
      for (const std::uint32_t id : std::exchange(circuit_uses_[event.place].waiting, {})) flow(id);
      return;
  }
}

void FlowSimulator::deliver(std::int32_t rank, Completion completion) {
  if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

void FlowSimulator::walk_all() {
  std::sort(to_walk_.begin(), to_walk_.end());
  for (const std::int32_t rank : std::exchange(to_walk_, {})) {
    operations_.clear();
    Walker& walker = walkers_[index(rank)];
    walker.advance(now_, ready_[index(rank)], operations_);
    ready_[index(rank)].clear();
    failed_ |= !walker.error().empty();
    perform(rank);
  }
}

void FlowSimulator::perform(std::int32_t rank) {
  for (const Operation& operation : operations_) {
    if (operation.type == Operation::Type::kTimer) {
      push(operation.at, Kind::kSleep, static_cast<std::uint32_t>(rank), operation.handle);
    } else if (network_->doorbell_latency > 0) {
      if (free_posts_.empty()) {
        free_posts_.push_back(static_cast<std::uint32_t>(posts_.size()));
        posts_.emplace_back();
      }
      const std::uint32_t place = free_posts_.back();
      free_posts_.pop_back();
      posts_[place] = operation;
      push(now_ + network_->doorbell_latency, Kind::kPost, static_cast<std::uint32_t>(rank), place);
    } else {
      post(rank, operation);
    }
  }
}

void FlowSimulator::post(std::int32_t rank, const Operation& operation) {
  const std::uint32_t first =
      *first_of_.find(pair_key(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(operation.peer)));
  connections_[queue_pairs_[first].connection].send(
      operation.handle, operation.tag, static_cast<std::uint64_t>(operation.size_bytes),
      [&](const roce::Connection::Part& part) {
        if (part.is_credit) return clear_to_send(first, part.tag);
        const std::uint32_t id = first + part.queue_pair;
        QueuePair& own = queue_pairs_[id];
        const std::int32_t message = walker_parts::take(
            messages_, free_messages_,
            Message{.handle = part.handle, .size_bytes = part.size_bytes, .tag = part.tag});
        if (!own.delayed) return enqueue(id, message);
        const TimePs ready = network_->nic.ready(own.nic, static_cast<std::int64_t>(part.size_bytes), now_);
        push(ready, Kind::kSend, id, static_cast<std::uint64_t>(message));
      });
}

// Too short to take a part of a link.
void FlowSimulator::clear_to_send(std::uint32_t id, std::uint32_t tag) {
  const QueuePair& own = queue_pairs_[id];
  ++data_packets_;
  carry(own, 1,
        static_cast<std::uint64_t>(kCreditBytes) + frame_header_bytes(*network_, roce::Opcode::kWriteOnly));
  const TimePs latency = network_->message_latency_ps[index(host_of(own.peer_rank))];
  push(now_ + own.credit_latency + latency, Kind::kCredit, id, tag);
}

void FlowSimulator::enqueue(std::uint32_t id, std::int32_t message) {
  QueuePair& own = queue_pairs_[id];
  const bool idle = own.head < 0;
  walker_parts::append(messages_, own.head, own.tail, message);
  if (idle) begin(id);
}

// The first message of a queue pair that was idle.
void FlowSimulator::begin(std::uint32_t id) {
  const QueuePair& own = queue_pairs_[id];
  if (circuits_.used() && own.path.size() > 1) {
    const auto granted = [&](std::uint32_t circuit, TimePs time) { push(time, Kind::kCircuit, circuit, 0); };
    if (!circuits_.take(own.circuit, now_, granted)) return circuit_uses_[own.circuit].waiting.push_back(id);
  }
  flow(id);
}

// The queue pair's first message flows from now on.
void FlowSimulator::flow(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  Message& message = messages_[index(own.head)];
  own.left_bytes = static_cast<double>(wire_bytes(message.size_bytes));
  own.since = now_;
  message.first = now_ + own.delay + std::llround(last_packet_bytes(message.size_bytes) * own.hops_byte_ps);
  if (sharing_.is_active(id)) return expect(id);
  sharing_.begin(id);
}

void FlowSimulator::expect(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  ++own.version;
  if (own.rate <= 0) return;
  const double time = std::isinf(own.rate) ? 0.0 : std::ceil(own.left_bytes / own.rate);
  const TimePs lasts = time < static_cast<double>(kLastTime) ? static_cast<TimePs>(time) : kLastTime + 1;
  push(own.since + lasts, Kind::kFinish, id, own.version);
}

void FlowSimulator::finish(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  assert(own.head >= 0 && sharing_.is_active(id));
  const std::int32_t at = own.head;
  Message& message = messages_[index(at)];
  const auto bytes = static_cast<std::uint64_t>(wire_bytes(message.size_bytes));
  const std::uint64_t count = packets(message.size_bytes);
  data_packets_ += count;
  carry(own, count, bytes);
  message.time =
      now_ + own.delay +
      std::llround(last_packet_bytes(message.size_bytes) * (own.hops_byte_ps - own.slowest_byte_ps));
  // A short packet passes its links sooner than the full one before it, which it cannot overtake.
  own.arrived = message.time = std::max(message.time, own.arrived);
  message.first = std::min(message.first, message.time);
  const TimePs receiver = network_->message_latency_ps[index(host_of(own.peer_rank))];
  const TimePs sender = network_->message_latency_ps[index(host_of(own.rank))];
  push(message.time + receiver, Kind::kArrive, id, static_cast<std::uint64_t>(at));
  push(message.time + own.ack_latency + sender, Kind::kAck, id, static_cast<std::uint64_t>(at));
  own.head = message.next;
  message.next = -1;
  if (own.head >= 0) return flow(id);
  own.tail = -1;
  sharing_.end(id);
  own.rate = 0;
  if (circuits_.used() && own.path.size() > 1) {
    circuits_.leave(own.circuit, now_,
                    [&](std::uint32_t circuit, TimePs time) { push(time, Kind::kCircuit, circuit, 0); });
  }
}

void FlowSimulator::settle() {
  sharing_.settle([&](std::uint32_t id) {
    flowed(queue_pairs_[id]);
    queue_pairs_[id].rate = sharing_.rate(id);
    expect(id);
  });
}

// Subtracts the bytes that have left until now.
void FlowSimulator::flowed(QueuePair& own) const {
  assert(own.rate >= 0 && own.since <= now_);
  const auto time = static_cast<double>(now_ - own.since);
  if (time > 0) own.left_bytes = std::max(0.0, own.left_bytes - own.rate * time);
  own.since = now_;
}

// Applies the network's changes until now; queue pairs then take the paths of the current routes.
void FlowSimulator::apply_changes() {
  bool reroutes = false;
  for (; next_change_ < network_->changes.size() && network_->changes[next_change_].time <= now_;
       ++next_change_) {
    const Change& change = network_->changes[next_change_];
    switch (change.kind) {
      case Change::Kind::kRoutes:
        routes_ = &network_->routes[change.number];
        reroutes = true;
        break;
      case Change::Kind::kDown:
        sharing_.set_capacity(change.number, 0);
        break;
      case Change::Kind::kUp:
        sharing_.set_capacity(change.number, capacity(change.number));
        break;
      case Change::Kind::kRate:
        rate_bps_[change.number] = change.rate_bps;
        sharing_.set_capacity(change.number, capacity(change.number));
        break;
    }
  }
  if (!reroutes) return;
  std::vector<std::uint32_t> path;
  for (QueuePair& own : queue_pairs_) {
    find_path(*network_, *routes_, host_of(own.rank), host_of(own.peer_rank), own.port, path);
    own.cut = path.empty();
    if (!own.cut) own.path = path;
  }
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    const bool active = sharing_.is_active(id);
    if (active) {
      flowed(queue_pairs_[id]);
      queue_pairs_[id].rate = 0;
      ++queue_pairs_[id].version;
      sharing_.end(id);
    }
    set_path(id);
    if (active) sharing_.begin(id);
  }
}

}  // namespace genie::twin
