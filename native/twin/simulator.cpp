#include "twin/simulator.hpp"

#include <algorithm>

#include "core/mix.hpp"

namespace genie::twin {
namespace {

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

// A counter-based random number: the same for the same seed and counter, in any order of asking.
std::uint64_t random_of(std::uint64_t seed, std::uint64_t counter) {
  return mixed(seed * kGoldenGamma + counter + 0x632BE59BD9B4E019ull);
}

}  // namespace

// What a queue pair's effects do in the twin.
struct Simulator::Sink {
  Simulator& twin;
  Connection& connection;

  void ready(roce::QueuePair& queue_pair) {
    Host& host = twin.hosts_[index(twin.host_of(connection.rank))];
    if (queue_pair.has_control()) host.port.mark_control(connection.on_port, twin.now_);
    if (queue_pair.has_data()) host.port.mark_data(connection.on_port, twin.now_, queue_pair.data_from());
    if (!host.sending) twin.transmit(twin.host_of(connection.rank));
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    twin.queue_.push({at, twin.timer_source_ + queue_pair.id(), 0});
  }
  void sent(roce::QueuePair&, std::uint64_t handle, roce::Status status, std::uint32_t retransmits) {
    if (status == roce::Status::kOk) {
      const roce::Spread::Sent over = twin.spreads_[connection.spread].sent(handle, retransmits);
      if (!over.whole) return;
      twin.deliver(connection.rank, {.type = Completion::Type::kSent,
                                     .handle = over.handle,
                                     .time = twin.now_,
                                     .retransmits = over.retransmits});
    } else if (status != roce::Status::kFlushed) {
      twin.errors_.push_back("rank " + std::to_string(connection.rank) + " gave up sending to rank " +
                             std::to_string(connection.peer_rank) + ": " + roce::describe(status));
    }
  }
  bool may_write(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
  bool may_read(roce::QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
  bool take_receive(roce::QueuePair&) { return true; }
  std::int64_t receives_left(roce::QueuePair&) { return -1; }
  bool place(roce::QueuePair&, const roce::Packet&, std::uint64_t) { return true; }
  void fetched(roce::QueuePair&, const roce::Packet&, std::uint64_t) {}
  void delivered(roce::QueuePair&, const roce::Delivery& delivery) {
    const roce::Spread::Arrival arrival{.size_bytes = delivery.size_bytes,
                                        .tag = delivery.immediate,
                                        .first = delivery.first,
                                        .time = twin.now_};
    twin.spreads_[connection.spread].arrived(
        connection.number, arrival, [&](const roce::Spread::Arrival& message) {
          twin.deliver(connection.rank, {.type = Completion::Type::kArrived,
                                         .peer = connection.peer_rank,
                                         .tag = message.tag,
                                         .size_bytes = static_cast<std::int64_t>(message.size_bytes),
                                         .first = message.first,
                                         .time = message.time});
        });
  }
};

Simulator::Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                     std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
                     std::uint64_t seed, const roce::SpreadConfig& spread)
    : network_(&network),
      config_(config),
      spread_(spread),
      host_of_rank_(std::move(host_of_rank)),
      seed_(seed) {
  const std::size_t hosts = index(network.hosts), links = network.link_source.size();
  walkers_.reserve(plans.size());
  for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  links_.resize(links + hosts);
  link_counters_.resize(links + hosts);
  for (std::size_t link = 0; link < links; ++link) {
    LinkState& state = links_[link];
    state.target = network.link_target[link];
    state.rate_bps = network.link_rate_bps[link];
    state.delay = network.link_delay_ps[link];
    if (network.link_target[link] < network.hosts)
      state.delay += network.packet_latency_ps[index(network.link_target[link])];
    if (network.link_buffer_bytes[link] >= 0)
      state.buffer_ps = serialisation_ps(network.link_buffer_bytes[link], network.link_rate_bps[link]);
  }
  for (std::size_t host = 0; host < hosts; ++host) {
    LinkState& loop = links_[links + host];
    loop.target = static_cast<std::int32_t>(host);
    loop.delay = network.packet_latency_ps[host];
  }
  // What a host sends to itself leaves at the rate of its (first) cable.
  for (std::size_t link = links; link-- > 0;) {
    if (network.link_source[link] < network.hosts)
      links_[links + index(network.link_source[link])].rate_bps = network.link_rate_bps[link];
  }
  hosts_.resize(hosts);
  ready_.resize(plans.size());
  delayed_.resize(plans.size());
  port_source_ = static_cast<std::uint32_t>(links_.size());
  walker_source_ = port_source_ + static_cast<std::uint32_t>(hosts);
  delay_source_ = walker_source_ + static_cast<std::uint32_t>(plans.size());
  timer_source_ = delay_source_ + static_cast<std::uint32_t>(plans.size());
}

LossPlan& Simulator::loss(std::int32_t source, std::int32_t target) {
  LossPlan*& plan = loss_of_[pair_key(source, target)];
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
  for (std::uint64_t count = 0; count < events; ++count) {
    if (queue_.empty() || !errors_.empty()) return false;
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.time;
    ++events_;
    handle(event);
    while (!to_walk_.empty()) {
      const std::int32_t rank = to_walk_.back();
      to_walk_.pop_back();
      walk(rank);
    }
  }
  return !queue_.empty() && errors_.empty();
}

void Simulator::handle(const Event& event) {
  if (event.source < port_source_) {
    arrive(event.source);
  } else if (event.source < walker_source_) {
    port_free(static_cast<std::int32_t>(event.source - port_source_));
  } else if (event.source < delay_source_) {
    const auto rank = static_cast<std::int32_t>(event.source - walker_source_);
    const Completion completion{.type = Completion::Type::kTimer,
                                .handle = static_cast<std::uint64_t>(event.data) << 32,
                                .time = now_};
    if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
    ready_[index(rank)].push_back(completion);
  } else if (event.source < timer_source_) {
    const auto rank = static_cast<std::int32_t>(event.source - delay_source_);
    std::deque<Pending>& pending = delayed_[index(rank)];
    if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
    ready_[index(rank)].push_back(pending.front().completion);
    pending.pop_front();
    if (!pending.empty()) queue_.push({pending.front().time, event.source, 0});
  } else {
    Connection& connection = connections_[event.source - timer_source_];
    Sink sink{*this, connection};
    connection.queue_pair.timer(now_, sink);
  }
}

// The first packet on a link has reached its end.
void Simulator::arrive(std::uint32_t link) {
  LinkState& state = links_[link];
  Flight flight = state.ring[state.head];
  state.head = (state.head + 1) & (state.ring.size() - 1);
  if (--state.count > 0) queue_.push({state.ring[state.head].arrival, link, 0});
  if (state.target < network_->hosts) {
    receive(flight);
  } else {
    forward(flight, next_link(state.target, flight.target_host, flight.path_hash));
  }
}

// A switch's output port: departure arithmetic over one first-in first-out queue.
void Simulator::forward(Flight& flight, std::uint32_t link) {
  LinkState& state = links_[link];
  const TimePs serialisation = serialisation_ps(flight.wire_bytes, state.rate_bps);
  const TimePs backlog = std::max<TimePs>(state.free - now_, 0);
  LinkCounters& counters = link_counters_[link];
  if (backlog + serialisation > state.buffer_ps) {
    ++counters.dropped;
    counters.dropped_bytes += flight.wire_bytes;
    return;
  }
  counters.longest_queue = std::max(counters.longest_queue, backlog);
  state.free = now_ + backlog + serialisation;
  enqueue(flight, link, state.free + state.delay);
}

void Simulator::enqueue(Flight& flight, std::uint32_t link, TimePs arrival) {
  LinkState& state = links_[link];
  LinkCounters& counters = link_counters_[link];
  ++counters.packets;
  counters.bytes += flight.wire_bytes;
  if (state.count == state.ring.size()) {
    std::vector<Flight> larger(state.ring.empty() ? 4 : state.ring.size() * 2);
    for (std::size_t at = 0; at < state.count; ++at)
      larger[at] = state.ring[(state.head + at) & (state.ring.size() - 1)];
    state.ring = std::move(larger);
    state.head = 0;
  }
  flight.arrival = arrival;
  state.ring[(state.head + state.count) & (state.ring.size() - 1)] = flight;
  if (state.count++ == 0) queue_.push({arrival, link, 0});
}

std::uint32_t Simulator::next_link(std::int32_t node, std::int32_t target_host,
                                   std::uint32_t path_hash) const {
  const std::size_t at = index(node) * index(network_->hosts) + index(target_host);
  const std::int64_t first = network_->route_start[at];
  const auto count = static_cast<std::uint64_t>(network_->route_start[at + 1] - first);
  std::uint64_t choice = 0;
  if (count > 1) choice = random_of(static_cast<std::uint64_t>(node), path_hash) % count;
  return static_cast<std::uint32_t>(network_->route_links[static_cast<std::size_t>(first) + choice]);
}

void Simulator::receive(const Flight& flight) {
  Connection& connection = connections_[flight.target_qp];
  Sink sink{*this, connection};
  connection.queue_pair.receive(flight.packet, now_, sink);
}

void Simulator::port_free(std::int32_t host) {
  Host& state = hosts_[index(host)];
  if (now_ == state.wake) state.wake = kNever;
  if (now_ < state.busy_until) return;  // woken for data that was held back, in the middle of a packet
  state.sending = false;
  transmit(host);
}

// Sends the next packet of a host whose port is free.
void Simulator::transmit(std::int32_t host) {
  Host& state = hosts_[index(host)];
  roce::NicPort::Pick pick;
  while (!state.sending && state.port.pick(now_, pick)) {
    Connection& connection = connections_[state.queue_pairs[pick.id]];
    Sink sink{*this, connection};
    Flight flight;
    const bool taken = pick.control ? connection.queue_pair.take_control(flight.packet, sink)
                                    : connection.queue_pair.take_data(now_, flight.packet, sink);
    if (connection.queue_pair.has_control()) state.port.mark_control(pick.id, now_);
    if (!taken) continue;
    const Connection& peer = connections_[connection.peer];
    flight.target_qp = connection.peer;
    flight.path_hash = connection.path_hash;
    flight.target_host = host_of(peer.rank);
    flight.wire_bytes =
        roce::wire_bytes(flight.packet.opcode, flight.packet.payload_bytes, network_->frame_overhead_bytes);
    const std::uint32_t link = flight.target_host == host
                                   ? static_cast<std::uint32_t>(network_->links() + host)
                                   : next_link(host, flight.target_host, flight.path_hash);
    const TimePs serialisation = serialisation_ps(flight.wire_bytes, links_[link].rate_bps);
    const TimePs departure = state.port.depart(now_, serialisation);
    bool lost = false;
    if (!pick.control) {
      connection.queue_pair.departed(flight.wire_bytes, departure - serialisation);
      if (connection.queue_pair.has_data())
        state.port.mark_more(pick.id, false, connection.queue_pair.data_from());
      ++data_packets_;
      lost = connection.loss != nullptr && connection.loss->lose_next();
    }
    if (keep_trace_) trace_.push_back({departure, connection.rank, peer.rank, flight.packet, lost});
    if (!lost) enqueue(flight, link, departure + links_[link].delay);
    if (departure > now_) {
      state.sending = true;
      state.busy_until = departure;
      queue_.push({departure, port_source_ + static_cast<std::uint32_t>(host), 0});
    }
  }
  const TimePs next = state.port.next_pick();
  if (!state.sending && next < state.wake && next > now_ && next != kNever) {
    state.wake = next;
    queue_.push({next, port_source_ + static_cast<std::uint32_t>(host), 0});
  }
}

void Simulator::deliver(std::int32_t rank, const Completion& completion) {
  const TimePs latency = network_->message_latency_ps[index(host_of(rank))];
  if (latency == 0) {
    if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
    ready_[index(rank)].push_back(completion);
    return;
  }
  std::deque<Pending>& pending = delayed_[index(rank)];
  const Pending entry{now_ + latency, completion};
  if (pending.empty()) queue_.push({entry.time, delay_source_ + static_cast<std::uint32_t>(rank), 0});
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
      queue_.push({operation.at, walker_source_ + static_cast<std::uint32_t>(rank),
                   static_cast<std::uint32_t>(operation.handle >> 32)});
      continue;
    }
    const std::uint32_t first = connect(rank, operation.peer);
    const std::uint32_t stride = rank == operation.peer ? 1 : 2;
    spreads_[connections_[first].spread].send(
        operation.handle, static_cast<std::uint64_t>(operation.size_bytes),
        [&](std::uint32_t number, std::uint64_t handle, std::uint64_t, std::uint64_t size_bytes) {
          Connection& connection = connections_[first + number * stride];
          Sink sink{*this, connection};
          connection.queue_pair.post({.verb = roce::Verb::kWriteImm,
                                      .handle = handle,
                                      .size_bytes = static_cast<std::uint32_t>(size_bytes),
                                      .immediate = operation.tag},
                                     sink);
        });
  }
}

// The first queue pair of a rank towards a peer; all of both ends are made at first use.
std::uint32_t Simulator::connect(std::int32_t rank, std::int32_t peer) {
  if (const std::uint32_t* known = connection_of_.find(pair_key(rank, peer))) return *known;
  const auto id = static_cast<std::uint32_t>(connections_.size());
  const std::uint32_t ends = rank == peer ? 1 : 2;
  const bool alike = spread_.queue_pairs == 1;  // nothing to keep
  const std::uint32_t spread = alike ? 0 : static_cast<std::uint32_t>(spreads_.size());
  for (std::uint32_t end = 0; end < ends; ++end) {
    if (!alike || spreads_.empty()) spreads_.emplace_back(spread_);
    connection_of_[end == 0 ? pair_key(rank, peer) : pair_key(peer, rank)] = id + end;
  }
  for (std::uint32_t number = 0; number < spread_.queue_pairs; ++number) {
    for (std::uint32_t end = 0; end < ends; ++end) {
      const std::int32_t from = end == 0 ? rank : peer, to = end == 0 ? peer : rank;
      const std::uint32_t local = id + number * ends + end;
      Host& host = hosts_[index(host_of(from))];
      Connection connection{
          .queue_pair = roce::QueuePair(config_, local, 0, 0),
          .peer = id + number * ends + (ends - 1 - end),
          .rank = from,
          .peer_rank = to,
          .number = number,
          .spread = alike ? 0 : spread + end,
          .on_port = static_cast<std::uint32_t>(host.queue_pairs.size()),
          .path_hash = static_cast<std::uint32_t>(
              random_of(seed_, pair_key(from, to) ^ std::uint64_t{number} << 48) & 0xFFFFFFFFu)};
      if (LossPlan** loss = loss_of_.find(pair_key(from, to))) connection.loss = *loss;
      host.queue_pairs.push_back(local);
      connections_.push_back(std::move(connection));
    }
  }
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
  for (const LinkCounters& counters : link_counters_) sum += counters.dropped;
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
