#include "twin/network/links.hpp"

#include <algorithm>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"
#include "twin/fabric/frames.hpp"

namespace genie::twin {
namespace {

// A pause frame has the Ethernet header and FCS in it that the frame overhead counts.
constexpr std::uint32_t kPauseBytes = 64, kFramingBytes = 18;

}  // namespace

Links::Links(const Network& network, Schedule& schedule, std::uint64_t seed)
    : network_(&network),
      routes_(&network.routes.front()),
      schedule_(&schedule),
      seed_(seed),
      count_(static_cast<std::uint32_t>(network.links() + network.hosts)),
      buffers_(network, count_) {
  const std::size_t cables = network.link_source.size(), hosts = index(network.hosts);
  ports_.resize(count_);
  inbound_.resize(count_);
  targets_.resize(count_);
  counters_.resize(count_);
  buckets_.resize(count_);
  round_robins_.resize(count_);
  lost_.resize(count_);
  ports_of_node_.resize(index(network.nodes));
  balancers_.reserve(index(network.nodes));
  for (std::int32_t node = 0; node < network.nodes; ++node) balancers_.emplace_back(node);
  for (unsigned opcode = 0; opcode < header_bytes_.size(); ++opcode)
    header_bytes_[opcode] =
        static_cast<std::uint16_t>(frame_header_bytes(network, static_cast<roce::Opcode>(opcode)));
  const std::uint32_t pause =
      kPauseBytes + std::max(network.frame_overhead_bytes, kFramingBytes) - kFramingBytes;
  header_bytes_[static_cast<std::uint8_t>(kPauseOpcode)] =
      static_cast<std::uint16_t>(network.pause_bytes != 0 ? network.pause_bytes : pause);
  for (std::uint32_t number = 0; number < cables; ++number) {
    Port& port = ports_[number];
    const std::int32_t target = network.link_target[number], source = network.link_source[number];
    inbound_[number] = number;
    targets_[number] = target;
    port.node = source;
    port.rate_bps = network.link_rate_bps[number];
    port.delay = network.link_delay_ps[number];
    port.to_host = target < network.hosts;
    if (port.to_host) port.delay += network.packet_latency_ps[index(target)];
    port.buffer_bytes = network.link_buffer_bytes[number];
    if (source < network.hosts) {
      ports_[cables + index(source)].rate_bps = port.rate_bps;
    } else {
      ports_of_node_[index(source)].push_back(number);
      if (const std::int64_t minimum = network.link_ecn[number].minimum_bytes; minimum >= 0)
        port.unmarked_bytes = minimum;
    }
  }
  for (std::size_t host = 0; host < hosts; ++host) {
    Port& port = ports_[cables + host];
    inbound_[cables + host] = static_cast<std::uint32_t>(cables + host);
    port.node = targets_[cables + host] = static_cast<std::int32_t>(host);
    port.to_host = true;
    port.delay = network.packet_latency_ps[host];
  }
  for (Port& port : ports_) set_rate(port, port.rate_bps);
  for (std::uint32_t number = 0; number < cables; ++number) {
    Port& port = ports_[number];
    if (const std::int64_t burst = network.link_burst_bytes[number]; burst > 0 && port.rate_bps > 0) {
      port.flags |= kBucket;
      buckets_[number].burst = serialisation_ps(burst, port.rate_bps);
    }
    set_cut_through(number);
  }
  for (std::uint32_t number = 0; number < network.link_errors.size(); ++number)
    set_errors(number, network.link_errors[number]);
}

TimePs Links::lookahead(std::uint32_t number) const {
  const std::uint16_t least = *std::min_element(header_bytes_.begin(), header_bytes_.end());
  const Port& port = ports_[number];
  if ((port.flags & kBucket) != 0) return port.delay;
  const std::uint32_t read =
      (port.flags & kCutThrough) != 0 ? std::min<std::uint32_t>(least, kHeaderBytes) : least;
  return port.delay + serialisation(port, read);
}

void Links::attach(const std::vector<std::uint32_t>& process_of_node) {
  std::vector<std::uint32_t> nodes(schedule_->processes());
  for (const std::uint32_t process : process_of_node) ++nodes[process];
  waiting_.assign(schedule_->processes(), {});
  inputs_.assign(schedule_->processes(), {});
  batches_.resize(schedule_->threads());
  arenas_.resize(schedule_->threads());
  mailboxes_.resize(std::size_t{schedule_->threads()} * schedule_->threads());
  for (std::uint32_t number = 0; number < count_; ++number) {
    Port& port = ports_[number];
    port.process = process_of_node[index(port.node)];
    port.target_process = process_of_node[index(targets_[number])];
    port.thread = schedule_->thread_of(port.process);
    if (port.process == port.target_process) port.flags |= kInside;
    if (targets_[number] >= network_->hosts && nodes[port.target_process] == 1) {
      port.flags |= kToSwitch;
      inputs_[port.target_process].add(number);
    }
  }
  for (std::uint32_t number = 0; number < count_; ++number) {
    const Port& port = ports_[number];
    if (schedule_->thread_of(port.process) == schedule_->thread_of(port.target_process)) continue;
    inbound_[number] = static_cast<std::uint32_t>(ports_.size());
    Port far;
    far.target_process = port.target_process;
    far.thread = schedule_->thread_of(port.target_process);
    far.flags = port.flags;
    far.to_host = port.to_host;
    ports_.push_back(std::move(far));
    ports_[number].flags |= kAbroad;
  }
}

LinkCounters Links::totals(std::uint32_t number) const {
  LinkCounters counters = counters_[number];
  counters.dropped += lost_[number].packets;
  counters.dropped_bytes += lost_[number].bytes;
  if (!errors_.empty()) counters.replays = errors_[number].replays;
  counters.paused_ps = buffers_.paused_ps(number);
  counters.packets = ports_[number].packets;
  counters.bytes = ports_[number].bytes;
  counters.longest_queue_bytes = std::max(counters.longest_queue_bytes, ports_[number].longest_bytes);
  counters.queue_bytes = ports_[number].waiting_bytes;
  return counters;
}

LinkCounters Links::look(std::uint32_t number, TimePs now) {
  Port& port = ports_[number];
  LinkCounters counters = totals(number);
  if (port.free > now && (port.flags & (kDown | kBucket)) == 0) {
    TimePs left = port.free - now;
    if ((port.flags & kErrors) != 0) left = std::min(left, errors_[number].time);  // of its last sending
    counters.bytes -=
        std::min(counters.bytes, static_cast<std::uint64_t>(congestion::bytes_in(port.rate_bps, left)));
  }
  counters.paused_ps += buffers_.pausing_ps(number, now);
  counters_[number].longest_queue_bytes = counters.longest_queue_bytes;
  counters.longest_queue_bytes = std::exchange(port.longest_bytes, 0);
  return counters;
}

// A ring gets twice the room that its packets take.
void Links::fit(const Port& port, PriorityQueue& queue) {
  const std::uint32_t count = queue.flying + queue.waiting,
                      size = std::max(RingArena::kLeast, std::bit_ceil(2 * count));
  RingArena& arena = arenas_[port.thread];
  Packet* const other = arena.take(size);
  for (std::uint32_t place = 0; place < count; ++place) other[place] = queue.at(place);
  if (queue.slots != nullptr) arena.give(queue.slots, queue.capacity);
  queue.slots = other;
  queue.capacity = size;
  queue.head = 0;
}

// -- threads
// ----------------------------------------------------------------------------------------------------

void Links::post(const Port& port, std::uint32_t number, const Packet& packet, TimePs arrival) {
  const std::uint32_t from = schedule_->thread_of(port.process),
                      to = schedule_->thread_of(port.target_process);
  std::vector<RemotePacket>& packets = mailboxes_[from * schedule_->threads() + to].packets;
  packets.push_back({number, packet});
  packets.back().packet.arrival = arrival;
}

void Links::take_mail(std::uint32_t thread) {
  for (std::uint32_t from = 0; from < schedule_->threads(); ++from) {
    std::vector<RemotePacket>& packets = mailboxes_[from * schedule_->threads() + thread].packets;
    for (const RemotePacket& remote : packets) {
      Port& port = ports_[inbound_[remote.link]];
      if ((port.flags & kErrors) != 0 && remote.packet.connection == kPauseFrame) {
        put_before(port, remote.link, remote.packet, remote.packet.arrival);
      } else {
        put_on_wire(port, remote.link, remote.packet, remote.packet.arrival);
      }
    }
    packets.clear();
  }
}

// -- ports
// ------------------------------------------------------------------------------------------------------

void Links::wait(Port& port, std::uint32_t number, const Packet& packet, std::uint32_t ingress,
                 std::uint32_t wire_bytes, TimePs now) {
  // A header that is left of a packet has the buffer of its own class: data has filled the port's.
  const std::int64_t before =
      packet.trimmed != 0 ? port.queues[packet.priority].waiting_bytes : port.waiting_bytes;
  const bool full = port.buffer_bytes >= 0 && before + wire_bytes > port.buffer_bytes;
  if (const bool down = (port.flags & kDown) != 0;
      down || full ||
      (buffers_.is_shared(port.node) && !admit(port.node, ingress, packet.priority, wire_bytes, now))) {
    if (down || !network_->trims || !trim(packet, ingress, number, now)) drop(number, packet, wire_bytes);
    return;
  }
  put(port, number, packet, wire_bytes);
  port.longest_bytes = std::max(port.longest_bytes, port.waiting_bytes);
  if (has_start_events(port)) expect_start(port, number, now);
}

// The next start of a port has an event.
void Links::expect_start(const Port& port, std::uint32_t number, TimePs now) {
  const std::uint32_t source = count_ + number;
  if ((port.waiting & ~port.paused) != 0 && schedule_->time_of(source) == kNever)
    schedule_->set(source, std::max(port.free, now));
}

// Packets that have started before `now`. Apart from its callers, which mostly find none.
[[gnu::noinline]] void Links::drain(Port& port, std::uint32_t number, TimePs now) {
  while (port.free < now && (port.waiting & ~port.paused) != 0) start_next(port, number);
}

void Links::starts(std::uint32_t number, TimePs now) {
  Port& port = ports_[number];
  while (port.free <= now && (port.waiting & ~port.paused) != 0) start_next(port, number);
  schedule_->set(count_ + number, kNever);
  if (has_start_events(port)) expect_start(port, number, now);
}

TimePs Links::finish(std::uint32_t process, TimePs end) {
  std::vector<std::uint32_t>& waiting = waiting_[process];
  TimePs next = kNever;
  for (std::size_t at = 0; at < waiting.size();) {
    const std::uint32_t number = waiting[at];
    Port& port = ports_[number];
    drain(port, number, end);
    if (port.waiting == 0) {
      trim_rings(port);
      port.flags &= static_cast<std::uint8_t>(~kListed);
      waiting[at] = waiting.back();
      waiting.pop_back();
      continue;
    }
    if ((port.waiting & ~port.paused) != 0) next = std::min(next, port.free);
    ++at;
  }
  return next;
}

// A ring that a queue of long ago has made much too large gets less: packets walk through all of it, and what
// is small stays in the cache.
void Links::trim_rings(Port& port) {
  for (PriorityQueue& queue : port.queues) {
    if (queue.capacity > RingArena::kLeast && queue.flying <= queue.capacity / 8) fit(port, queue);
  }
}

// Whether the packet that is next may leave when its port is free; otherwise the port is free when it may.
bool Links::has_tokens(Port& port, std::uint32_t number) const {
  const auto ready = static_cast<std::uint8_t>(port.waiting & ~port.paused);
  const auto strict = static_cast<std::uint8_t>(ready & network_->strict_classes);
  // The highest strict class's; the longest of the others, any of which may be next.
  std::uint32_t wire_bytes = 0;
  for (unsigned left = strict != 0 ? std::bit_floor(strict) : ready; left != 0; left &= left - 1) {
    const PriorityQueue& queue = port.queues[static_cast<unsigned>(std::countr_zero(left))];
    wire_bytes = std::max(wire_bytes, wire_bytes_of(queue.at(queue.flying)));
  }
  const TimePs at = buckets_[number].start(port.free, serialisation(port, wire_bytes));
  return std::exchange(port.free, at) == at;
}

void Links::start_next(Port& port, std::uint32_t number) {
  if ((port.flags & kBucket) != 0 && !has_tokens(port, number)) return;
  const std::uint32_t own = next_class(port, number);
  PriorityQueue& queue = port.queues[own];
  Packet& packet = queue.at(queue.flying);
  const std::uint32_t wire_bytes = wire_bytes_of(packet);
  queue.fetch(queue.flying + 2);
  queue.waiting_bytes -= wire_bytes;
  port.waiting_bytes -= wire_bytes;
  if (--queue.waiting == 0) port.waiting &= static_cast<std::uint8_t>(~(1u << own));
  const TimePs at = port.free;
  if (packet.connection != kPauseFrame) {
    if (packet.ect != 0 && queue.waiting_bytes > port.unmarked_bytes &&
        is_marked(number, port, queue.waiting_bytes))
      packet.ce = 1;
    if (buffers_.is_shared(port.node)) release(port.node, ingress_of(packet), own, wire_bytes, at);
  }
  if (packet.telemetry != 0) [[unlikely]]
    describe(port, number, packet, at);
  const TimePs arrival = occupy(port, packet, wire_bytes, at);
  if (arrival == kNever) [[unlikely]]
    return lose_waiting(number, queue, wire_bytes);
  ++queue.flying;
  if ((port.flags & kAbroad) != 0) {
    post(port, number, packet, arrival);
    return queue.pop();
  }
  packet.arrival = arrival;
  tell_target(port, number, own, arrival);
}

std::uint32_t Links::next_weighted(Port& port, std::uint32_t number, unsigned ready) {
  return round_robins_[number].next(ready, network_->weight_bytes, [&](std::uint32_t own) {
    const PriorityQueue& queue = port.queues[own];
    return static_cast<std::int64_t>(wire_bytes_of(queue.at(queue.flying)));
  });
}

// By which of several equally short next hops a packet goes on from the end of `ingress`.
std::uint32_t Links::choose(Packet& packet, std::uint32_t ingress, TimePs now) {
  const std::int32_t node = targets_[ingress], host = host_of_connection_[packet.connection];
  packet.route = Packet::kFree | ingress;
  LoadBalancer& balancer = balancers_[index(node)];
  std::vector<std::uint32_t>& next_hops = balancer.next_hops();
  next_hops.clear();
  network_->each_next_hop(*routes_, node, host, [&](std::uint32_t link) { next_hops.push_back(link); });
  if (next_hops.empty()) return kNowhere;
  if (next_hops.size() == 1) return next_hops[0];
  // Draining sends no pause frame here: a switch that pauses has events for its starts.
  return balancer.choose(*network_, packet.connection, seed_, now, [&](std::uint32_t link) {
    if (ports_[link].waiting != 0) drain(ports_[link], link, now);
    return backlog(ports_[link], now);
  });
}

// Marks as its queue is when a packet leaves it: RED between two thresholds, always above the upper one.
bool Links::is_marked(std::uint32_t number, Port& port, std::int64_t queued) {
  const EcnProfile& profile = network_->link_ecn[number];
  if (queued <= profile.maximum_bytes) {
    const std::uint64_t drawn = mixed(seed_ ^ mixed(std::uint64_t{number} << 32 ^ ++port.marks_drawn));
    const double chance = profile.chance_at_maximum * static_cast<double>(queued - profile.minimum_bytes) /
                          static_cast<double>(profile.maximum_bytes - profile.minimum_bytes);
    if (static_cast<double>(drawn >> 11) * 0x1p-53 >= chance) return false;
  }
  ++counters_[number].marked;
  return true;
}

}  // namespace genie::twin
