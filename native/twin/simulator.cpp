#include "twin/simulator.hpp"

#include <algorithm>

#include "core/mix.hpp"

namespace genie::twin {
namespace {

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

std::uint64_t key_of(std::int32_t rank, std::int32_t peer) {
  return pair_key(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(peer));
}

// A counter-based random number: the same for the same seed and counter, in any order of asking.
std::uint64_t random_of(std::uint64_t seed, std::uint64_t counter) {
  return mixed(seed * kGoldenGamma + counter + 0x632BE59BD9B4E019ull);
}

Flight flight_of(const roce::Packet& packet) {
  Flight flight;
  flight.psn = packet.psn & roce::kPsnMask;
  flight.opcode = packet.opcode;
  flight.ack_request = packet.ack_request ? 1 : 0;
  flight.solicited = packet.solicited ? 1 : 0;
  flight.payload_bytes = static_cast<std::uint16_t>(packet.payload_bytes);
  if (roce::has_aeth(packet.opcode)) {
    flight.value = packet.msn << 8 | packet.syndrome;
  } else {
    flight.value = roce::has_immediate(packet.opcode) ? packet.immediate : packet.message_bytes;
  }
  return flight;
}

roce::Packet packet_of(const Flight& flight) {
  roce::Packet packet;
  packet.opcode = flight.opcode;
  packet.psn = flight.psn;
  packet.ack_request = flight.ack_request != 0;
  packet.solicited = flight.solicited != 0;
  packet.congested = flight.congested != 0;
  packet.payload_bytes = flight.payload_bytes;
  if (roce::has_aeth(flight.opcode)) {
    packet.syndrome = static_cast<std::uint8_t>(flight.value & 0xFF);
    packet.msn = flight.value >> 8;
  } else if (roce::has_immediate(flight.opcode)) {
    packet.immediate = flight.value;
    packet.message_bytes = flight.payload_bytes;  // of a message of one packet
  } else {
    packet.message_bytes = flight.value;
  }
  return packet;
}

}  // namespace

// What a queue pair's effects do in the twin.
struct Simulator::Sink {
  Simulator& twin;
  std::uint32_t number;

  Connection& connection() { return twin.connections_[number]; }

  void ready(roce::QueuePair& queue_pair) {
    const Connection& own = connection();
    Nic& nic = twin.nics_[own.nic];
    if (queue_pair.has_control()) nic.port.mark_control(own.on_port, twin.now_);
    if (queue_pair.has_data()) nic.port.mark_data(own.on_port, twin.now_, queue_pair.data_from());
    twin.wake(own.nic);
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    twin.wheel_.schedule(twin.timer_source_ + queue_pair.id(), at);
  }
  void sent(roce::QueuePair&, std::uint64_t handle, roce::Status status, std::uint32_t retransmits) {
    const Connection& own = connection();
    if (status == roce::Status::kOk) {
      const roce::Spread::Sent over = twin.spreads_[own.spread].sent(handle, retransmits);
      if (!over.whole) return;
      twin.deliver(own.rank, {.type = Completion::Type::kSent,
                              .handle = over.handle,
                              .time = twin.now_,
                              .retransmits = over.retransmits});
    } else if (status != roce::Status::kFlushed) {
      twin.errors_.push_back("rank " + std::to_string(own.rank) + " gave up sending to rank " +
                             std::to_string(own.peer_rank) + ": " + roce::describe(status));
    }
  }
  bool may_write(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
  bool may_read(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
  bool take_receive(roce::QueuePair&) { return true; }
  std::int64_t receives_left(roce::QueuePair&) { return -1; }
  bool place(roce::QueuePair&, const roce::Packet&, std::uint64_t) { return true; }
  void fetched(roce::QueuePair&, const roce::Packet&, std::uint64_t) {}
  void delivered(roce::QueuePair&, const roce::Delivery& delivery) {
    const Connection& own = connection();
    const roce::Spread::Arrival arrival{.size_bytes = delivery.size_bytes,
                                        .tag = delivery.immediate,
                                        .first = delivery.first,
                                        .time = twin.now_};
    twin.spreads_[own.spread].arrived(own.number, arrival, [&](const roce::Spread::Arrival& message) {
      twin.deliver(own.rank, {.type = Completion::Type::kArrived,
                              .peer = own.peer_rank,
                              .tag = message.tag,
                              .size_bytes = static_cast<std::int64_t>(message.size_bytes),
                              .first = message.first,
                              .time = message.time});
    });
  }
};

// What links tell hosts.
struct Simulator::Hosts {
  Simulator& twin;
  void received(std::uint32_t, const Flight& flight) { twin.receive(flight); }
  void resumed(std::uint32_t link) {
    twin.wake(twin.nic_of(link));
  }
};

Simulator::Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                     std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
                     std::uint64_t seed, const roce::SpreadConfig& spread)
    : network_(&network),
      config_(config),
      spread_(spread),
      host_of_rank_(std::move(host_of_rank)),
      seed_(seed),
      groups_(index(network.groups())),
      wheel_(network.bucket_shift()),
      links_(network, wheel_, seed) {
  walkers_.reserve(plans.size());
  for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  ready_.resize(plans.size());
  delayed_.resize(plans.size());
  sleeps_.resize(plans.size());
  nic_source_ = links_.sources();
  walker_source_ = nic_source_ + links_.links();  // a NIC's event has the number of its link
  delay_source_ = walker_source_ + static_cast<std::uint32_t>(plans.size());
  timer_source_ = delay_source_ + static_cast<std::uint32_t>(plans.size());
  nic_of_link_.assign(links_.links(), ~std::uint32_t{0});
  wheel_.resize(timer_source_);
}

LossPlan& Simulator::loss(std::int32_t source, std::int32_t target) {
  LossPlan*& plan = loss_of_[key_of(source, target)];
  if (plan == nullptr) plan = &loss_plans_.emplace_back(source, target);
  return *plan;
}

void Simulator::start() {
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    operations_.clear();
    walkers_[rank].begin(0, operations_);
    perform(static_cast<std::int32_t>(rank));
  }
}

bool Simulator::run(std::uint64_t events) {
  Event event{};
  for (std::uint64_t count = 0; count < events; ++count) {
    if (!errors_.empty() || !wheel_.take(event)) return false;
    now_ = event.time;
    ++events_;
    links_.fetch_link(wheel_.soon(2));
    links_.fetch_packet(wheel_.soon(0));
    handle(event);
    while (!to_walk_.empty()) {
      const std::int32_t rank = to_walk_.back();
      to_walk_.pop_back();
      walk(rank);
    }
  }
  return !wheel_.empty() && errors_.empty();
}

void Simulator::handle(const Event& event) {
  if (event.source < nic_source_) {
    Hosts hosts{*this};
    links_.handle(event.source, now_, hosts);
  } else if (event.source < walker_source_) {
    port_free(nic_of_link_[event.source - nic_source_]);
  } else if (event.source < delay_source_) {
    const auto rank = static_cast<std::int32_t>(event.source - walker_source_);
    std::vector<Sleep>& sleeps = sleeps_[index(rank)];
    while (!sleeps.empty() && sleeps.front().time <= now_) {
      make_ready(rank, {.type = Completion::Type::kTimer,
                        .handle = std::uint64_t{sleeps.front().node} << 32,
                        .time = now_});
      std::pop_heap(sleeps.begin(), sleeps.end());
      sleeps.pop_back();
    }
    if (!sleeps.empty()) wheel_.schedule(event.source, sleeps.front().time);
  } else if (event.source < timer_source_) {
    const auto rank = static_cast<std::int32_t>(event.source - delay_source_);
    std::deque<Pending>& pending = delayed_[index(rank)];
    make_ready(rank, pending.front().completion);
    pending.pop_front();
    if (!pending.empty()) wheel_.schedule(event.source, pending.front().time);
  } else {
    const std::uint32_t number = event.source - timer_source_;
    Sink sink{*this, number};
    connections_[number].queue_pair.timer(now_, sink);
  }
}

void Simulator::receive(const Flight& flight) {
  Sink sink{*this, flight.connection};
  connections_[flight.connection].queue_pair.receive(packet_of(flight), now_, sink);
}

void Simulator::port_free(std::uint32_t number) {
  Nic& nic = nics_[number];
  if (now_ < nic.busy_until) return expect(nic);  // woken for data that was held back, in the middle of a packet
  nic.sending = false;
  transmit(number);
}

// A NIC has something to send, or may send again.
void Simulator::wake(std::uint32_t number) {
  Nic& nic = nics_[number];
  if (nic.sending && nic.busy_until <= now_) nic.sending = false;
  if (nic.sending) {
    expect(nic);
  } else {
    transmit(number);
  }
}

// Sends the next packet of a NIC's port that is free.
void Simulator::transmit(std::uint32_t number) {
  Nic& nic = nics_[number];
  const bool data_paused = links_.paused(nic.link, network_->data_priority);
  const bool control_paused = links_.paused(nic.link, network_->control_priority);
  roce::NicPort::Pick pick;
  while (!nic.sending && nic.port.pick(now_, pick, !control_paused, !data_paused)) {
    const std::uint32_t id = nic.queue_pairs[pick.id];
    Connection& connection = connections_[id];
    Sink sink{*this, id};
    roce::Packet packet;
    const bool taken = pick.control ? connection.queue_pair.take_control(packet, sink)
                                    : connection.queue_pair.take_data(now_, packet, sink);
    if (connection.queue_pair.has_control()) nic.port.mark_control(pick.id, now_);
    if (!taken) continue;
    Flight flight = flight_of(packet);
    flight.connection = connection.peer;
    flight.route = connection.route;
    flight.priority = (pick.control ? network_->control_priority : network_->data_priority) & 7u;
    flight.capable = !pick.control && congestion::needs_marks(config_.congestion.control);
    const std::uint32_t wire_bytes = links_.wire_bytes_of(flight);
    const TimePs serialisation = links_.serialisation(nic.link, wire_bytes);
    const TimePs departure = nic.port.depart(now_, serialisation);
    bool lost = false;
    if (!pick.control) {
      connection.queue_pair.departed(wire_bytes, departure - serialisation);
      if (connection.queue_pair.has_data())
        nic.port.mark_more(pick.id, false, connection.queue_pair.data_from());
      ++data_packets_;
      lost = connection.loss != nullptr && connection.loss->lose_next();
    }
    if (keep_trace_) trace_.push_back({departure, connection.rank, connection.peer_rank, packet, lost});
    if (!lost) links_.launch(nic.link, flight, wire_bytes, departure - serialisation);
    if (departure > now_) {
      nic.sending = true;
      nic.busy_until = departure;
    }
  }
  expect(nic);
}

// The event for the next packet that a NIC may send; none while it has nothing.
void Simulator::expect(Nic& nic) {
  const TimePs next = nic.port.next_pick();
  if (next == kNever) return;
  const TimePs at = nic.sending ? std::max(next, nic.busy_until) : next;
  const std::uint32_t source = nic_source_ + nic.link;
  if (at > now_ && wheel_.time_of(source) > at) wheel_.schedule(source, at);
}

void Simulator::make_ready(std::int32_t rank, const Completion& completion) {
  if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

void Simulator::deliver(std::int32_t rank, const Completion& completion) {
  const TimePs latency = network_->message_latency_ps[index(host_of(rank))];
  if (latency == 0) return make_ready(rank, completion);
  std::deque<Pending>& pending = delayed_[index(rank)];
  const Pending entry{now_ + latency, completion};
  if (pending.empty()) wheel_.schedule(delay_source_ + static_cast<std::uint32_t>(rank), entry.time);
  pending.push_back(entry);
}

void Simulator::walk(std::int32_t rank) {
  std::vector<Completion>& ready = ready_[index(rank)];
  operations_.clear();
  walkers_[index(rank)].advance(now_, ready, operations_);
  ready.clear();
  if (!walkers_[index(rank)].error().empty()) errors_.push_back(walkers_[index(rank)].error());
  perform(rank);
}

void Simulator::perform(std::int32_t rank) {
  for (const Operation& operation : operations_) {
    if (operation.type == Operation::Type::kTimer) {
      std::vector<Sleep>& sleeps = sleeps_[index(rank)];
      sleeps.push_back({operation.at, static_cast<std::uint32_t>(operation.handle >> 32)});
      std::push_heap(sleeps.begin(), sleeps.end());
      wheel_.schedule(walker_source_ + static_cast<std::uint32_t>(rank), sleeps.front().time);
      continue;
    }
    const std::uint32_t first = connect(rank, operation.peer);
    const std::uint32_t stride = rank == operation.peer ? 1 : 2;
    spreads_[connections_[first].spread].send(
        operation.handle, static_cast<std::uint64_t>(operation.size_bytes),
        [&](std::uint32_t number, std::uint64_t handle, std::uint64_t, std::uint64_t size_bytes) {
          const std::uint32_t id = first + number * stride;
          Sink sink{*this, id};
          connections_[id].queue_pair.post({.verb = roce::Verb::kWriteImm,
                                            .handle = handle,
                                            .size_bytes = static_cast<std::uint32_t>(size_bytes),
                                            .immediate = operation.tag},
                                           sink);
        });
  }
}

std::uint32_t Simulator::nic_of(std::uint32_t link) {
  std::uint32_t& number = nic_of_link_[link];
  if (number == ~std::uint32_t{0}) {
    number = static_cast<std::uint32_t>(nics_.size());
    nics_.emplace_back().link = link;
  }
  return number;
}

// By which a packet for a host may leave a node.
std::span<const std::int32_t> Simulator::next_links(std::int32_t node, std::int32_t to) {
  doors_.clear();
  for (std::int64_t at = network_->door_start[index(to)]; at < network_->door_start[index(to) + 1]; ++at) {
    const std::int32_t door = network_->doors[static_cast<std::size_t>(at)];
    if (network_->link_source[index(door)] == node) doors_.push_back(door);
  }
  if (!doors_.empty()) return doors_;
  const std::size_t row = index(node) * groups_ + index(network_->group_of_host[index(to)]);
  const auto first = static_cast<std::size_t>(network_->route_start[row]);
  return std::span(network_->route_links)
      .subspan(first, static_cast<std::size_t>(network_->route_start[row + 1]) - first);
}

// The links from one host to another.
std::uint32_t Simulator::route_of(std::int32_t from, std::int32_t to, std::uint32_t path_hash) {
  std::vector<std::uint32_t> path;
  if (from == to) path.push_back(static_cast<std::uint32_t>(network_->links() + from));
  for (std::int32_t node = from; node != to;) {
    const std::span<const std::int32_t> choices = next_links(node, to);
    const std::uint64_t choice =
        choices.size() > 1 ? random_of(static_cast<std::uint64_t>(node), path_hash) % choices.size() : 0;
    path.push_back(static_cast<std::uint32_t>(choices[choice]));
    node = network_->link_target[path.back()];
  }
  return links_.add_path(path);
}

// The first queue pair of a rank towards a peer; all of both ends are made at first use.
std::uint32_t Simulator::connect(std::int32_t rank, std::int32_t peer) {
  if (const std::uint32_t* known = connection_of_.find(key_of(rank, peer))) return *known;
  const auto id = static_cast<std::uint32_t>(connections_.size());
  const std::uint32_t ends = rank == peer ? 1 : 2;
  const bool alike = spread_.queue_pairs == 1;  // nothing to keep
  const std::uint32_t spread = alike ? 0 : static_cast<std::uint32_t>(spreads_.size());
  for (std::uint32_t end = 0; end < ends; ++end) {
    if (!alike || spreads_.empty()) spreads_.emplace_back(spread_);
    connection_of_[end == 0 ? key_of(rank, peer) : key_of(peer, rank)] = id + end;
  }
  for (std::uint32_t number = 0; number < spread_.queue_pairs; ++number) {
    for (std::uint32_t end = 0; end < ends; ++end) {
      const std::int32_t from = end == 0 ? rank : peer, to = end == 0 ? peer : rank;
      const std::uint32_t local = id + number * ends + end;
      const auto path_hash = static_cast<std::uint32_t>(
          random_of(seed_, key_of(from, to) ^ std::uint64_t{number} << 48) & 0xFFFFFFFFu);
      Connection connection{.queue_pair = roce::QueuePair(config_, local, 0, 0),
                            .peer = id + number * ends + (ends - 1 - end),
                            .route = route_of(host_of(from), host_of(to), path_hash),
                            .rank = from,
                            .peer_rank = to,
                            .number = number,
                            .spread = alike ? 0 : spread + end};
      connection.nic = nic_of(links_.link_at(connection.route));
      std::vector<std::uint32_t>& on_port = nics_[connection.nic].queue_pairs;
      connection.on_port = static_cast<std::uint32_t>(on_port.size());
      on_port.push_back(local);
      if (LossPlan** loss = loss_of_.find(key_of(from, to))) connection.loss = *loss;
      connections_.push_back(std::move(connection));
    }
  }
  wheel_.resize(timer_source_ + static_cast<std::uint32_t>(connections_.size()));
  return id;
}

bool Simulator::done() const {
  return errors_.empty() &&
         std::all_of(walkers_.begin(), walkers_.end(), [](const Walker& w) { return w.done(); });
}

std::vector<std::string> Simulator::problems() const {
  if (!errors_.empty()) return errors_;
  std::vector<std::string> lines;
  for (const Walker& walker : walkers_) {
    if (lines.size() >= 8) break;
    if (!walker.done()) {
      for (std::string& line : walker.waiting(2)) lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::uint64_t Simulator::dropped() const {
  std::uint64_t sum = 0;
  for (std::uint32_t link = 0; link < links_.links(); ++link) sum += links_.totals(link).dropped;
  return sum;
}

roce::QueuePairCounters Simulator::totals(std::int32_t rank) const {
  roce::QueuePairCounters sum;
  for (const Connection& connection : connections_) {
    if (connection.rank == rank) sum += connection.queue_pair.counters();
  }
  return sum;
}

}  // namespace genie::twin
