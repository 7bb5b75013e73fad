#include <algorithm>
#include <thread>

#include "core/index.hpp"
#include "twin/packet_level/simulator_sink.hpp"
#include "twin/packet_level/window_loop.hpp"

namespace genie::twin {
namespace {

Packet on_wire_of(const roce::Packet& packet) {
  Packet on_wire;
  on_wire.psn = packet.psn & roce::kPsnMask;
  on_wire.opcode = packet.opcode;
  on_wire.ack_request = packet.ack_request ? 1 : 0;
  on_wire.solicited = packet.solicited ? 1 : 0;
  on_wire.echo = packet.echo;
  on_wire.trimmed = packet.trimmed;
  on_wire.port = packet.port & 0x3F;
  on_wire.payload_bytes = static_cast<std::uint16_t>(packet.payload_bytes);
  if (roce::has_aeth(packet.opcode)) {
    on_wire.value = packet.msn << 8 | packet.syndrome;
  } else {
    on_wire.value = roce::has_immediate(packet.opcode)                       ? packet.immediate
                    : roce::plain(packet.opcode) == roce::Opcode::kWriteOnly ? fifo_tag(packet.remote_address)
                                                                             : packet.message_bytes;
  }
  return on_wire;
}

roce::Packet packet_of(const Packet& on_wire) {
  roce::Packet packet;
  packet.opcode = on_wire.opcode;
  packet.psn = on_wire.psn;
  packet.ack_request = on_wire.ack_request != 0;
  packet.solicited = on_wire.solicited != 0;
  packet.congested = on_wire.ce != 0;
  packet.echo = on_wire.echo;
  packet.trimmed = on_wire.trimmed != 0;
  packet.port = on_wire.port;
  packet.payload_bytes = on_wire.payload_bytes;
  if (roce::has_aeth(on_wire.opcode)) {
    packet.syndrome = static_cast<std::uint8_t>(on_wire.value & 0xFF);
    packet.msn = on_wire.value >> 8;
  } else if (roce::has_immediate(on_wire.opcode)) {
    packet.immediate = on_wire.value;
    packet.message_bytes = on_wire.payload_bytes;  // of a message of one packet
  } else if (roce::plain(on_wire.opcode) == roce::Opcode::kWriteOnly) {
    packet.remote_address = fifo_address(on_wire.value);
    packet.message_bytes = on_wire.payload_bytes;
  } else {
    packet.message_bytes = on_wire.value;
  }
  return packet;
}

}  // namespace

// What links tell hosts.
struct Simulator::Hosts {
  Simulator& twin;
  Process& process;
  void received(const Packet& on_wire) { twin.receive(process, on_wire); }
  void coming(const Packet& on_wire) {
    if (on_wire.connection != kPauseFrame) twin.queue_pairs_[on_wire.connection].fetch();
  }
  void resumed(std::uint32_t link) {
    if (twin.nic_of_link_[link] != kNoNic) twin.wake(process, twin.nic_of_link_[link]);
  }
};

Simulator::Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                     const std::vector<const RankPlan*>& plans, std::vector<std::int32_t> host_of_rank,
                     std::uint64_t seed, const roce::SpreadConfig& spread, std::uint32_t threads)
    : network_(&network),
      config_(config),
      spread_(spread),
      host_of_rank_(std::move(host_of_rank)),
      seed_(seed),
      sends_ect_(congestion::needs_marks(config.congestion.control) || config.recycle_ports),
      asks_telemetry_(congestion::needs_telemetry(config.congestion.control)),
      links_(network, schedule_, seed),
      threads_(asks_telemetry_ ? 1 : threads),
      planned_(shared, plans, config.mtu_bytes) {
  config_.pacing_unit = network.serialisation_unit;  // of the fabric, like all frames
  walkers_.reserve(plans.size());
  for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  ready_.resize(plans.size());
  later_.resize(plans.size());
  nic_source_ = links_.sources();
  later_source_ = nic_source_ + links_.links();  // a NIC's event has the number of its link
  timer_source_ = later_source_ + static_cast<std::uint32_t>(plans.size());
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
  apply_changes(0);
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    Process& process = process_of(static_cast<std::int32_t>(rank));
    process.operations.clear();
    walkers_[rank].begin(0, process.operations);
    perform(process, static_cast<std::int32_t>(rank));
  }
  for (std::uint32_t number = 0; number < processes_.size(); ++number)
    schedule_.rest(number, links_.finish(number, 0));
}

bool Simulator::run(std::uint64_t events, TimePs until) {
  std::vector<std::thread> others;
  for (std::uint32_t thread = 1; thread < standings_.threads(); ++thread)
    others.emplace_back([this, thread, events, until] { WindowLoop(*this, thread, events, until).run(); });
  WindowLoop(*this, 0, events, until).run();
  for (std::thread& other : others) other.join();
  return !reached_ && !failed_;
}

// A process's events before `end`, at most about so many.
std::uint64_t Simulator::play(std::uint32_t number, TimePs end, std::uint64_t most) {
  Process& process = processes_[number];
  if (links_.is_switch(number)) {
    const std::uint64_t events = links_.play_switch(number, end);
    process.events += events;
    return events;
  }
  TournamentTree& tree = schedule_.tree(number);
  const std::uint32_t* sources = schedule_.sources(number);
  std::uint64_t count = 0;
  for (; tree.next_time() < end && count < most && process.errors.empty(); ++count) {
    process.now = tree.next_time();
    const std::uint32_t at = tree.next_source(), source = sources[at];
    if (source < links_.links()) {
      Hosts hosts{*this, process};
      links_.arrive(source, process.now, tree, at, hosts);
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
  schedule_.rest(number, links_.finish(number, std::min(end, tree.next_time())));
  return count;
}

void Simulator::handle(Process& process, std::uint32_t source) {
  if (source < nic_source_) {
    links_.starts(source - links_.links(), process.now);
  } else if (source < later_source_) {
    port_free(process, nic_of_link_[source - nic_source_]);
  } else if (source < timer_source_) {
    const auto rank = static_cast<std::int32_t>(source - later_source_);
    std::vector<Later>& heap = later_[index(rank)].heap;
    while (!heap.empty() && heap.front().time <= process.now) {
      const Later first = heap.front();
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
      do_later(process, rank, first);
    }
    schedule_.set(source, heap.empty() ? kNever : heap.front().time);
  } else {
    const std::uint32_t number = source - timer_source_;
    Sink sink{*this, process, number};
    schedule_.set(source, kNever);
    queue_pairs_[number].queue_pair.timer(process.now, sink);
  }
}

void Simulator::receive(Process& process, const Packet& on_wire) {
  Sink sink{*this, process, on_wire.connection};
  HostQueuePair& connection = queue_pairs_[on_wire.connection];
  if (on_wire.trimmed != 0 && roce::is_request(on_wire.opcode)) [[unlikely]] {
    links_.telemetry().give(on_wire.telemetry);
    return connection.queue_pair.receive_trimmed(on_wire.psn, sink);
  }
  if (on_wire.opcode == roce::Opcode::kCnp && network_->notification_latency > 0) [[unlikely]]
    return later(connection.rank, {.time = process.now + network_->notification_latency,
                                   .kind = Later::Kind::kNotification,
                                   .order = 0,
                                   .place = on_wire.connection});
  TelemetryPool& pool = links_.telemetry();
  const congestion::Telemetry* told = nullptr;
  if (on_wire.telemetry != 0) [[unlikely]] {
    if (on_wire.opcode == roce::Opcode::kAcknowledge) {
      told = &pool.at(on_wire.telemetry);
    } else {
      pool.give(connection.telemetry);
      connection.telemetry = on_wire.telemetry;  // for the acknowledgement
    }
  }
  connection.queue_pair.receive(packet_of(on_wire), process.now, sink, told);
  if (told != nullptr) [[unlikely]]
    pool.give(on_wire.telemetry);
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
    if (id == kMoved) continue;
    HostQueuePair& connection = queue_pairs_[id];
    Sink sink{*this, process, id};
    roce::Packet packet;
    const bool taken = pick.control ? connection.queue_pair.take_control(packet, sink)
                                    : connection.queue_pair.take_data(process.now, packet, sink);
    if (connection.queue_pair.has_control()) nic.port.mark_control(pick.id, process.now);
    if (!taken) continue;
    Packet on_wire = on_wire_of(packet);
    on_wire.connection = connection.peer;
    on_wire.route = config_.spray > 1 ? sprayed_routes_[connection.sprayed + packet.port] : connection.route;
    on_wire.priority = (pick.control ? network_->control_class : network_->data_class) & 7u;
    on_wire.ect = !pick.control && sends_ect_;
    if (!pick.control && connection.is_free) on_wire.route = Packet::kFree | nic.link;
    if (asks_telemetry_) on_wire.telemetry = pick.control ? connection.telemetry : links_.telemetry().take();
    if (pick.control) connection.telemetry = 0;
    const std::uint32_t wire_bytes = links_.wire_bytes_of(on_wire);
    TimePs serialisation = links_.occupancy(nic.link, wire_bytes, process.now);
    if (nic.limited) [[unlikely]]
      serialisation = std::max(serialisation, network_->nic.occupancy(on_wire.payload_bytes));
    TimePs departure = nic.port.depart(process.now, serialisation);
    const TimePs begin = links_.has_bucket(nic.link) ? departure : departure - serialisation;
    bool lost = false;
    if (!pick.control) {
      on_wire.paced = begin > nic.busy_until && begin == connection.queue_pair.data_from();
      connection.queue_pair.departed(wire_bytes, begin);
      if (connection.queue_pair.has_data())
        nic.port.mark_more(pick.id, false, connection.queue_pair.data_from());
      ++process.data_packets;
      lost = connection.loss != nullptr && connection.loss->lose_next();
      if (lost && nic.retries && !links_.is_down(nic.link)) {
        lost = false;
        links_.corrupt_next(nic.link);
      }
    }
    if (keep_trace_)
      process.trace.push_back({departure, connection.rank, connection.peer_rank, packet, lost});
    if (!lost) links_.launch(nic.link, on_wire, wire_bytes, begin);
    if (lost) links_.telemetry().give(on_wire.telemetry);
    if (nic.retries) [[unlikely]]
      departure = nic.port.keep(links_.busy_until(nic.link));
    if (departure > process.now) {
      nic.sending = true;
      nic.busy_until = departure;
    }
  }
  if (const std::uint32_t* next = nic.port.next_data()) queue_pairs_[nic.queue_pairs[*next]].fetch();
  expect(process, nic);
}

// The event for the next packet that a NIC may send; none while it has nothing, or what it has is paused.
void Simulator::expect(const Process& process, Nic& nic) {
  const std::uint32_t paused = links_.paused(nic.link);
  TimePs at = nic.port.next_pick((paused >> network_->control_class & 1) == 0,
                                 (paused >> network_->data_class & 1) == 0);
  if (nic.sending) {
    at = std::max(at, nic.busy_until);
  } else if (at <= process.now) {
    at = kNever;
  }
  if (at == nic.expected) return;
  nic.expected = at;
  schedule_.set(nic_source_ + nic.link, at);
}

}  // namespace genie::twin
