#include "twin/simulator.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace genie::twin {
namespace {

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

Flight flight_of(const roce::Packet& packet) {
  Flight flight;
  flight.psn = packet.psn & roce::kPsnMask;
  flight.opcode = packet.opcode;
  flight.ack_request = packet.ack_request ? 1 : 0;
  flight.solicited = packet.solicited ? 1 : 0;
  flight.echo = packet.echo;
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
  packet.echo = flight.echo;
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
      twin.deliver(process, own.rank,
                   {.type = Completion::Type::kSent,
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
      twin.deliver(process, own.rank,
                   {.type = Completion::Type::kArrived,
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
  void coming(const Flight& flight) {
    if (flight.connection != kPauseFrame) twin.connections_[flight.connection].fetch();
  }
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

      capable_(congestion::needs_marks(config.congestion.control)),
      asks_telemetry_(congestion::needs_telemetry(config.congestion.control)),
      links_(network, schedule_, seed),
      threads_(asks_telemetry_ ? 1 : threads) {
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

// A thread's part of windows, until about so many events have been handled by all. Between a window's two
// barriers threads read each other's standings, play and send mail; between windows they take it and write
// how they stand.
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
      make_ready(process, rank,
                 {.type = Completion::Type::kTimer,
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
  Connection& connection = connections_[flight.connection];
  if (flight.telemetry == 0) return connection.queue_pair.receive(packet_of(flight), process.now, sink);
  TelemetryPool& pool = links_.telemetry();
  if (flight.opcode == roce::Opcode::kAcknowledge) {
    connection.queue_pair.receive(packet_of(flight), process.now, sink, &pool.at(flight.telemetry));
    return pool.give(flight.telemetry);
  }
  pool.give(connection.telemetry);
  connection.telemetry = flight.telemetry;  // for the acknowledgement
  connection.queue_pair.receive(packet_of(flight), process.now, sink);
}

void Simulator::port_free(Process& process, std::uint32_t number) {
  Nic& nic = nics_[number];
  if (process.now < nic.busy_until)
    return expect(process, nic);  // woken for data that was held back, in the middle of a packet
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
    if (!pick.control && network_->balance != Balance::kPath) flight.route = Flight::kFree | nic.link;
    if (asks_telemetry_) flight.telemetry = pick.control ? connection.telemetry : links_.telemetry().take();
    if (pick.control) connection.telemetry = 0;
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
    if (keep_trace_)
      process.trace.push_back({departure, connection.rank, connection.peer_rank, packet, lost});
    if (!lost) links_.launch(nic.link, flight, wire_bytes, departure - serialisation);
    if (lost) links_.telemetry().give(flight.telemetry);
    if (departure > process.now) {
      nic.sending = true;
      nic.busy_until = departure;
    }
  }
  if (const std::uint32_t* next = nic.port.next_data()) connections_[nic.queue_pairs[*next]].fetch();
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
  if (at == nic.expected) return;
  nic.expected = at;
  schedule_.set(nic_source_ + nic.link, at);
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

}  // namespace genie::twin
