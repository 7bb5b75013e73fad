#include "twin/simulator.hpp"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "core/mix.hpp"

namespace genie::twin {
namespace {

constexpr std::uint32_t kNoNic = ~std::uint32_t{0};

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
  Process& process;
  std::uint32_t number;

  Connection& connection() { return twin.connections_[number]; }

  void ready(roce::QueuePair& queue_pair) {
    const Connection& own = connection();
    Nic& nic = twin.nics_[own.nic];
    if (queue_pair.has_control()) nic.port.mark_control(own.on_port, process.now);
    if (queue_pair.has_data()) nic.port.mark_data(own.on_port, process.now, queue_pair.data_from());
    twin.wake(process, own.nic);
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    twin.schedule_.set(twin.timer_source_ + queue_pair.id(), at);
  }
  void sent(roce::QueuePair&, std::uint64_t handle, roce::Status status, std::uint32_t retransmits) {
    const Connection& own = connection();
    if (status == roce::Status::kOk) {
      const roce::Spread::Sent over = twin.spreads_[own.spread].sent(handle, retransmits);
      if (!over.whole) return;
      twin.deliver(process, own.rank, {.type = Completion::Type::kSent,
                              .handle = over.handle,
                              .time = process.now,
                              .retransmits = over.retransmits});
    } else if (status != roce::Status::kFlushed) {
      process.errors.push_back("rank " + std::to_string(own.rank) + " gave up sending to rank " +
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
                                        .time = process.now};
    twin.spreads_[own.spread].arrived(own.number, arrival, [&](const roce::Spread::Arrival& message) {
      twin.deliver(process, own.rank, {.type = Completion::Type::kArrived,
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
  Process& process;
  void received(const Flight& flight) { twin.receive(process, flight); }
  void resumed(std::uint32_t link) {
    if (twin.nic_of_link_[link] != kNoNic) twin.wake(process, twin.nic_of_link_[link]);
  }
};

Simulator::Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                     std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
                     std::uint64_t seed, const roce::SpreadConfig& spread, std::uint32_t threads)
    : network_(&network),
      config_(config),
      spread_(spread),
      host_of_rank_(std::move(host_of_rank)),
      seed_(seed),
      groups_(index(network.groups())),
      capable_(congestion::needs_marks(config.congestion.control)),
      links_(network, schedule_, seed),
      threads_(threads) {
  walkers_.reserve(plans.size());
  for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  ready_.resize(plans.size());
  delayed_.resize(plans.size());
  sleeps_.resize(plans.size());
  nic_source_ = links_.sources();
  walker_source_ = nic_source_ + links_.links();  // a NIC's event has the number of its link
  delay_source_ = walker_source_ + static_cast<std::uint32_t>(plans.size());
  timer_source_ = delay_source_ + static_cast<std::uint32_t>(plans.size());
  nic_of_link_.assign(links_.links(), kNoNic);
  divide();
}

LossPlan& Simulator::loss(std::int32_t source, std::int32_t target) {
  LossPlan*& plan = loss_of_[key_of(source, target)];
  if (plan == nullptr) plan = &loss_plans_.emplace_back(source, target);
  return *plan;
}

// Nodes whose links leave no time between them are one process.
void Simulator::divide() {
  constexpr TimePs kLeast = 10 * kPsPerNs;
  std::vector<std::uint32_t> leader(index(network_->nodes));
  std::iota(leader.begin(), leader.end(), 0u);
  const auto leader_of = [&](std::int32_t node) {
    std::uint32_t at = static_cast<std::uint32_t>(node);
    while (leader[at] != at) at = leader[at] = leader[leader[at]];
    return at;
  };
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    const std::uint32_t a = leader_of(links_.source_of(link)), b = leader_of(links_.target_of(link));
    if (links_.lookahead(link) < kLeast) leader[std::max(a, b)] = std::min(a, b);
  }
  process_of_node_.resize(leader.size());
  std::uint32_t count = 0;
  for (std::int32_t node = 0; node < network_->nodes; ++node) {
    const std::uint32_t own = leader_of(node);
    process_of_node_[index(node)] = own == static_cast<std::uint32_t>(node) ? count++ : process_of_node_[own];
  }
  processes_.resize(count);
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (process_of_node_[index(links_.source_of(link))] != process_of_node_[index(links_.target_of(link))])
      lookahead_ = std::min(lookahead_, links_.lookahead(link));
  }
}

// The thread of each process: hosts in order, in parts of equal size, as most of their traffic stays near; a switch goes
// with most of what it is cabled to, or where there is least.
std::vector<std::uint32_t> Simulator::share_out() const {
  const auto hosts = static_cast<std::uint32_t>(network_->hosts);
  const auto threads = std::clamp<std::uint32_t>(threads_, 1, std::max(1u, static_cast<std::uint32_t>(processes_.size())));
  constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  std::vector<std::uint32_t> thread_of(processes_.size(), kNobody);
  std::vector<std::uint64_t> load(threads, 0);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    std::uint32_t& thread = thread_of[process_of_node_[host]];
    if (thread == kNobody) thread = static_cast<std::uint32_t>(std::uint64_t{host} * threads / hosts);
  }
  std::vector<std::vector<std::uint32_t>> beside(processes_.size());
  for (std::uint32_t link = 0; link < links_.links(); ++link)
    beside[process_of_node_[index(links_.source_of(link))]].push_back(process_of_node_[index(links_.target_of(link))]);
  for (bool changed = true; changed;) {  // a tier further from the hosts each time
    changed = false;
    const std::vector<std::uint32_t> before = thread_of;
    for (std::uint32_t process = 0; process < thread_of.size(); ++process) {
      if (before[process] != kNobody) continue;
      std::vector<std::uint32_t> votes(threads, 0);
      std::uint32_t known = 0;
      for (const std::uint32_t other : beside[process]) {
        if (before[other] == kNobody) continue;
        ++votes[before[other]];
        ++known;
      }
      if (known == 0) continue;
      std::uint32_t best = 0;
      for (std::uint32_t thread = 1; thread < threads; ++thread) {
        if (votes[thread] > votes[best] || (votes[thread] == votes[best] && load[thread] < load[best])) best = thread;
      }
      thread_of[process] = best;
      load[best] += beside[process].size();
      changed = true;
    }
  }
  for (std::uint32_t& thread : thread_of) thread = thread == kNobody ? 0 : thread;
  return thread_of;
}

// Events of the processes, in the order in which they win ties: arrivals, starts, NICs, sleeps, completions that
// are delayed, timers.
void Simulator::plan_sources() {
  std::vector<std::vector<std::uint32_t>> sources(processes_.size());
  const auto of = [&](std::int32_t node) -> std::vector<std::uint32_t>& {
    return sources[process_of_node_[index(node)]];
  };
  std::vector<std::uint32_t> nodes(processes_.size());
  for (const std::uint32_t process : process_of_node_) ++nodes[process];
  const auto is_alone = [&](std::int32_t node) {  // a switch that is a process: its arrivals have no agenda
    return node >= network_->hosts && nodes[process_of_node_[index(node)]] == 1;
  };
  const auto ranks = static_cast<std::uint32_t>(walkers_.size());
  const auto is_used = [&](std::uint32_t link) {  // a link to the same host only where ranks share one
    return link < static_cast<std::uint32_t>(network_->links()) || nic_of_link_[link] != kNoNic;
  };
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (is_used(link) && !is_alone(links_.target_of(link))) of(links_.target_of(link)).push_back(link);
  }
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (links_.source_of(link) >= network_->hosts) of(links_.source_of(link)).push_back(links_.links() + link);
  }
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (nic_of_link_[link] != kNoNic) of(links_.source_of(link)).push_back(nic_source_ + link);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) of(host_of_rank_[rank]).push_back(walker_source_ + rank);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) of(host_of_rank_[rank]).push_back(delay_source_ + rank);
  for (std::uint32_t id = 0; id < connections_.size(); ++id)
    of(host_of(connections_[id].rank)).push_back(timer_source_ + id);
  std::vector<std::uint32_t> thread_of_process = share_out();
  const std::uint32_t threads = 1 + *std::max_element(thread_of_process.begin(), thread_of_process.end());
  schedule_.plan(sources, timer_source_ + static_cast<std::uint32_t>(connections_.size()),
                 std::move(thread_of_process), threads, lookahead_);
  standings_.resize(threads);
  barrier_ = std::make_unique<std::barrier<>>(threads);
  links_.attach(process_of_node_);
}

void Simulator::start() {
  connect_all();
  plan_sources();
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    Process& process = process_of(static_cast<std::int32_t>(rank));
    process.operations.clear();
    walkers_[rank].begin(0, process.operations);
    perform(process, static_cast<std::int32_t>(rank));
  }
  for (std::uint32_t number = 0; number < processes_.size(); ++number)
    schedule_.rest(number, links_.finish(number, 0));
}

bool Simulator::run(std::uint64_t events) {
  std::vector<std::thread> others;
  for (std::uint32_t thread = 1; thread < standings_.size(); ++thread)
    others.emplace_back([this, thread, events] { run_thread(thread, events); });
  run_thread(0, events);
  for (std::thread& other : others) other.join();
  return !over_ && !failed_;
}

// A thread's part of windows, until about so many events have been handled by all. Between a window's two barriers threads
// read each other's standings, play and send mail; between windows they take it and write how they stand.
void Simulator::run_thread(std::uint32_t thread, std::uint64_t events) {
  Calendar& calendar = schedule_.calendar(thread);
  Standing& own = standings_[thread];
  const bool alone = standings_.size() == 1;
  bool own_failed = own.failed;
  std::uint64_t own_events = 0;
  while (true) {
    if (!alone) links_.take_mail(thread);
    own = {calendar.next(), own_events, own_failed};
    if (!alone) barrier_->arrive_and_wait();
    std::uint64_t window = Calendar::kNone, handled = 0;
    bool failed = false;
    for (const Standing& standing : standings_) {
      window = std::min(window, standing.next_window);
      handled += standing.events;
      failed |= standing.failed;
    }
    if (thread == 0) {
      over_ = window == Calendar::kNone;
      failed_ = failed;
    }
    if (window == Calendar::kNone || failed || handled >= events) {
      if (!alone) barrier_->arrive_and_wait();  // all have read what they decide by
      return;
    }
    calendar.enter(window);
    const TimePs end = calendar.end_of(window);
    calendar.each([&](std::uint32_t process) {
      own_events += play(process, end, events);
      own_failed |= !processes_[process].errors.empty();
    });
    if (!alone) barrier_->arrive_and_wait();
  }
}

// A process's events before `end`, at most about so many.
std::uint64_t Simulator::play(std::uint32_t number, TimePs end, std::uint64_t most) {
  Process& process = processes_[number];
  if (links_.is_switch(number)) {
    const std::uint64_t events = links_.play_switch(number, end);
    process.events += events;
    return events;
  }
  Agenda& agenda = schedule_.agenda(number);
  const std::uint32_t* sources = schedule_.sources(number);
  std::uint64_t count = 0;
  for (; agenda.next_time() < end && count < most && process.errors.empty(); ++count) {
    process.now = agenda.next_time();
    const std::uint32_t at = agenda.next_source(), source = sources[at];
    if (source < links_.links()) {
      Hosts hosts{*this, process};
      links_.arrive(source, process.now, agenda, at, hosts);
    } else {
      handle(process, source);
    }
    while (!process.to_walk.empty()) {
      const std::int32_t rank = process.to_walk.back();
      process.to_walk.pop_back();
      walk(process, rank);
    }
  }
  process.events += count;
  schedule_.rest(number, links_.finish(number, std::min(end, agenda.next_time())));
  return count;
}

void Simulator::handle(Process& process, std::uint32_t source) {
  if (source < nic_source_) {
    links_.starts(source - links_.links(), process.now);
  } else if (source < walker_source_) {
    port_free(process, nic_of_link_[source - nic_source_]);
  } else if (source < delay_source_) {
    const auto rank = static_cast<std::int32_t>(source - walker_source_);
    std::vector<Sleep>& sleeps = sleeps_[index(rank)];
    while (!sleeps.empty() && sleeps.front().time <= process.now) {
      make_ready(process, rank, {.type = Completion::Type::kTimer,
                                 .handle = std::uint64_t{sleeps.front().node} << 32,
                                 .time = process.now});
      std::pop_heap(sleeps.begin(), sleeps.end());
      sleeps.pop_back();
    }
    schedule_.set(source, sleeps.empty() ? kNever : sleeps.front().time);
  } else if (source < timer_source_) {
    const auto rank = static_cast<std::int32_t>(source - delay_source_);
    std::deque<Pending>& pending = delayed_[index(rank)];
    make_ready(process, rank, pending.front().completion);
    pending.pop_front();
    schedule_.set(source, pending.empty() ? kNever : pending.front().time);
  } else {
    const std::uint32_t number = source - timer_source_;
    Sink sink{*this, process, number};
    schedule_.set(source, kNever);
    connections_[number].queue_pair.timer(process.now, sink);
  }
}

void Simulator::receive(Process& process, const Flight& flight) {
  Sink sink{*this, process, flight.connection};
  connections_[flight.connection].queue_pair.receive(packet_of(flight), process.now, sink);
}

void Simulator::port_free(Process& process, std::uint32_t number) {
  Nic& nic = nics_[number];
  if (process.now < nic.busy_until) return expect(process, nic);  // woken for data that was held back, in the middle of a packet
  nic.sending = false;
  transmit(process, number);
}

// A NIC has something to send, or may send again.
void Simulator::wake(Process& process, std::uint32_t number) {
  Nic& nic = nics_[number];
  if (nic.sending && nic.busy_until <= process.now) nic.sending = false;
  if (nic.sending) {
    expect(process, nic);
  } else {
    transmit(process, number);
  }
}

// Sends the next packet of a NIC's port that is free.
void Simulator::transmit(Process& process, std::uint32_t number) {
  Nic& nic = nics_[number];
  const std::uint32_t paused = links_.paused(nic.link);
  const bool data_allowed = (paused >> network_->data_class & 1) == 0;
  const bool control_allowed = (paused >> network_->control_class & 1) == 0;
  roce::NicPort::Pick pick;
  while (!nic.sending && nic.port.pick(process.now, pick, control_allowed, data_allowed)) {
    const std::uint32_t id = nic.queue_pairs[pick.id];
    Connection& connection = connections_[id];
    Sink sink{*this, process, id};
    roce::Packet packet;
    const bool taken = pick.control ? connection.queue_pair.take_control(packet, sink)
                                    : connection.queue_pair.take_data(process.now, packet, sink);
    if (connection.queue_pair.has_control()) nic.port.mark_control(pick.id, process.now);
    if (!taken) continue;
    Flight flight = flight_of(packet);
    flight.connection = connection.peer;
    flight.route = connection.route;
    flight.lane = (pick.control ? network_->control_class : network_->data_class) & 7u;
    flight.capable = !pick.control && capable_;
    const std::uint32_t wire_bytes = links_.wire_bytes_of(flight);
    const TimePs serialisation = links_.serialisation(nic.link, wire_bytes);
    const TimePs departure = nic.port.depart(process.now, serialisation);
    bool lost = false;
    if (!pick.control) {
      connection.queue_pair.departed(wire_bytes, departure - serialisation);
      if (connection.queue_pair.has_data())
        nic.port.mark_more(pick.id, false, connection.queue_pair.data_from());
      ++process.data_packets;
      lost = connection.loss != nullptr && connection.loss->lose_next();
    }
    if (keep_trace_) process.trace.push_back({departure, connection.rank, connection.peer_rank, packet, lost});
    if (!lost) links_.launch(nic.link, flight, wire_bytes, departure - serialisation);
    if (departure > process.now) {
      nic.sending = true;
      nic.busy_until = departure;
    }
  }
  expect(process, nic);
}

// The event for the next packet that a NIC may send; none while it has nothing, or what it has is paused.
void Simulator::expect(const Process& process, Nic& nic) {
  TimePs at = nic.port.next_pick();
  if (nic.sending) {
    at = std::max(at, nic.busy_until);
  } else if (at <= process.now) {
    at = kNever;
  }
  const std::uint32_t source = nic_source_ + nic.link;
  if (schedule_.time_of(source) != at) schedule_.set(source, at);
}

void Simulator::make_ready(Process& process, std::int32_t rank, const Completion& completion) {
  if (ready_[index(rank)].empty()) process.to_walk.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

void Simulator::deliver(Process& process, std::int32_t rank, const Completion& completion) {
  const TimePs latency = network_->message_latency_ps[index(host_of(rank))];
  if (latency == 0) return make_ready(process, rank, completion);
  std::deque<Pending>& pending = delayed_[index(rank)];
  const Pending entry{process.now + latency, completion};
  if (pending.empty()) schedule_.set(delay_source_ + static_cast<std::uint32_t>(rank), entry.time);
  pending.push_back(entry);
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
      std::vector<Sleep>& sleeps = sleeps_[index(rank)];
      sleeps.push_back({operation.at, static_cast<std::uint32_t>(operation.handle >> 32)});
      std::push_heap(sleeps.begin(), sleeps.end());
      schedule_.set(walker_source_ + static_cast<std::uint32_t>(rank), sleeps.front().time);
      continue;
    }
    const std::uint32_t first = *connection_of_.find(key_of(rank, operation.peer));
    spreads_[connections_[first].spread].send(
        operation.handle, static_cast<std::uint64_t>(operation.size_bytes),
        [&](std::uint32_t number, std::uint64_t handle, std::uint64_t, std::uint64_t size_bytes) {
          const std::uint32_t id = first + number;
          Sink sink{*this, process, id};
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
  if (number == kNoNic) {
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

// Queue pairs of all ranks that exchange messages, by rank, then by peer.
void Simulator::connect_all() {
  std::vector<std::uint64_t> pairs;
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    for (const std::int32_t peer : walkers_[rank].peers()) {
      pairs.push_back(key_of(static_cast<std::int32_t>(rank), peer));
      pairs.push_back(key_of(peer, static_cast<std::int32_t>(rank)));
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::uint32_t first = 0;
  for (const std::uint64_t pair : pairs) {
    connection_of_[pair] = first;
    first += spread_.queue_pairs;
  }
  connections_.reserve(first);
  for (const std::uint64_t pair : pairs) {
    const auto rank = static_cast<std::int32_t>(pair >> 32), peer = static_cast<std::int32_t>(pair & 0xFFFFFFFFu);
    connect(rank, peer, *connection_of_.find(pair), *connection_of_.find(key_of(peer, rank)));
  }
}

// The queue pairs of a rank towards a peer, whose own begin at `back`.
void Simulator::connect(std::int32_t rank, std::int32_t peer, std::uint32_t first, std::uint32_t back) {
  const bool alike = spread_.queue_pairs == 1;  // nothing to keep
  if (!alike || spreads_.empty()) spreads_.emplace_back(spread_);
  for (std::uint32_t number = 0; number < spread_.queue_pairs; ++number) {
    const auto path_hash = static_cast<std::uint32_t>(
        random_of(seed_, key_of(rank, peer) ^ std::uint64_t{number} << 48) & 0xFFFFFFFFu);
    Connection connection{.queue_pair = roce::QueuePair(config_, first + number, 0, 0),
                          .peer = back + number,
                          .route = route_of(host_of(rank), host_of(peer), path_hash),
                          .rank = rank,
                          .peer_rank = peer,
                          .number = number,
                          .spread = static_cast<std::uint32_t>(spreads_.size()) - 1};
    connection.nic = nic_of(links_.link_at(connection.route));
    std::vector<std::uint32_t>& on_port = nics_[connection.nic].queue_pairs;
    connection.on_port = static_cast<std::uint32_t>(on_port.size());
    on_port.push_back(first + number);
    if (LossPlan** loss = loss_of_.find(key_of(rank, peer))) connection.loss = *loss;
    connections_.push_back(std::move(connection));
  }
}

bool Simulator::done() const {
  return !failed_ &&
         std::all_of(walkers_.begin(), walkers_.end(), [](const Walker& w) { return w.done(); });
}

std::vector<std::string> Simulator::problems() const {
  std::vector<std::string> lines;
  for (const Process& process : processes_) lines.insert(lines.end(), process.errors.begin(), process.errors.end());
  if (!lines.empty()) return lines;
  for (const Walker& walker : walkers_) {
    if (lines.size() >= 8) break;
    if (!walker.done()) {
      for (std::string& line : walker.waiting(2)) lines.push_back(std::move(line));
    }
  }
  return lines;
}

TimePs Simulator::now() const {
  TimePs latest = 0;
  for (const Process& process : processes_) latest = std::max(latest, process.now);
  return latest;
}

std::uint64_t Simulator::events() const {
  std::uint64_t sum = 0;
  for (const Process& process : processes_) sum += process.events;
  return sum;
}

std::uint64_t Simulator::data_packets() const {
  std::uint64_t sum = 0;
  for (const Process& process : processes_) sum += process.data_packets;
  return sum;
}

std::vector<PacketTrace> Simulator::trace() const {
  std::vector<PacketTrace> all;
  for (const Process& process : processes_) all.insert(all.end(), process.trace.begin(), process.trace.end());
  std::stable_sort(all.begin(), all.end(), [](const PacketTrace& a, const PacketTrace& b) {
    return std::pair(a.time, a.source) < std::pair(b.time, b.source);
  });
  return all;
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
