#include "twin/network/links.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"
#include "twin/port/trimming.hpp"

namespace genie::twin {

Links::Links(const Network& network, Schedule& schedule, std::uint64_t seed)
    : network_(&network),
      routes_(&network.routes.front()),
      schedule_(&schedule),
      seed_(seed),
      count_(static_cast<std::uint32_t>(network.links() + network.hosts)),
      buffers_(network, count_),
      counters_(count_),
      marker_(network.link_ecn, seed),
      errors_(count_, seed),
      sizes_(network) {
  const std::size_t cables = network.link_source.size(), hosts = index(network.hosts);
  ports_.resize(count_);
  inbound_.resize(count_);
  targets_.resize(count_);
  buckets_.resize(count_);
  skipped_bytes_.resize(count_);
  round_robins_.resize(count_);
  ports_of_node_.resize(index(network.nodes));
  balancers_.reserve(index(network.nodes));
  for (std::int32_t node = 0; node < network.nodes; ++node) balancers_.emplace_back(node);
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
      port.set(Port::kBucket);
      buckets_[number].burst = serialisation_ps(burst, port.rate_bps);
    }
    set_cut_through(number);
  }
  for (std::uint32_t number = 0; number < network.link_errors.size(); ++number) {
    if (errors_.set(number, network.link_errors[number])) ports_[number].set(Port::kErrors);
  }
}

TimePs Links::lookahead(std::uint32_t number) const {
  const std::uint32_t least = sizes_.least();
  const Port& port = ports_[number];
  if (port.is(Port::kBucket)) return port.delay;
  const std::uint32_t read = port.is(Port::kCutThrough) ? std::min(least, kHeaderBytes) : least;
  return port.delay + serialisation(port, read);
}

void Links::attach(const std::vector<std::uint32_t>& process_of_node) {
  std::vector<std::uint32_t> nodes(schedule_->processes());
  for (const std::uint32_t process : process_of_node) ++nodes[process];
  waiting_.assign(schedule_->processes(), {});
  inputs_.begin(schedule_->processes(), count_);
  batches_.resize(schedule_->threads());
  arenas_.resize(schedule_->threads());
  mailboxes_.resize(schedule_->threads());
  for (std::uint32_t number = 0; number < count_; ++number) {
    Port& port = ports_[number];
    port.process = process_of_node[index(port.node)];
    port.target_process = process_of_node[index(targets_[number])];
    port.thread = schedule_->thread_of(port.process);
    if (port.process == port.target_process) port.set(Port::kInside);
    if (targets_[number] >= network_->hosts && nodes[port.target_process] == 1) {
      port.set(Port::kToSwitch);
      inputs_.add(port.target_process, number);
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
    ports_[number].set(Port::kAbroad);
  }
}

std::vector<std::uint32_t> Links::path_from(std::uint32_t route) const {
  std::vector<std::uint32_t> path{paths_[route]};
  while (targets_[path.back()] >= network_->hosts) path.push_back(paths_[++route]);
  return path;
}

LinkCounters Links::totals(std::uint32_t number) const {
  LinkCounters counters = counters_.of(number);
  counters.marked = marker_.marked(number);
  counters.replays = errors_.replays(number);
  counters.paused_ps = buffers_.paused_ps(number);
  counters.packets = ports_[number].packets;
  counters.bytes = ports_[number].bytes + skipped_bytes_[number];
  counters.longest_queue_bytes = std::max(counters.longest_queue_bytes, ports_[number].longest_bytes);
  counters.queue_bytes = ports_[number].waiting_bytes;
  return counters;
}

LinkCounters Links::look(std::uint32_t number, TimePs now) {
  Port& port = ports_[number];
  LinkCounters counters = totals(number);
  if (port.free > now && !port.is(Port::kDown | Port::kBucket)) {
    TimePs left = port.free - now;
    if (port.is(Port::kErrors)) left = std::min(left, errors_.sending_time(number));  // of its last sending
    counters.bytes -=
        std::min(counters.bytes, static_cast<std::uint64_t>(congestion::bytes_in(port.rate_bps, left)));
  }
  counters.paused_ps += buffers_.pausing_ps(number, now);
  counters_.keep_longest(number, counters.longest_queue_bytes);
  counters.longest_queue_bytes = std::exchange(port.longest_bytes, 0);
  return counters;
}

// A ring gets twice the room that its packets take.
[[gnu::noinline]] void Links::fit(const Port& port, PriorityQueue& queue) {
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
  mailboxes_.post(schedule_->thread_of(port.process), schedule_->thread_of(port.target_process), number,
                  packet, arrival);
}

void Links::take_mail(std::uint32_t thread) {
  mailboxes_.take(thread, [&](std::uint32_t link, const Packet& packet) {
    Port& port = ports_[inbound_[link]];
    assert(port.thread == thread);
    if (port.is(Port::kErrors) && is_pause_frame(packet)) {
      put_before(port, link, packet, packet.arrival);
    } else {
      put_on_wire(port, link, packet, packet.arrival);
    }
  });
}

// -- ports
// ------------------------------------------------------------------------------------------------------

// There is no room for a packet, or its link is down.
[[gnu::noinline]] void Links::refuse(const Port& port, std::uint32_t number, const Packet& packet,
                                     std::uint32_t ingress, std::uint32_t wire_bytes, TimePs now) {
  const bool goes_on = !port.is(Port::kDown) && network_->trims && trim(packet, ingress, number, now);
  if (!goes_on) drop(number, packet, wire_bytes);
}

// A packet for which there is no room goes on as its header; false where that is of no use.
[[gnu::noinline]] bool Links::trim(const Packet& packet, std::uint32_t ingress, std::uint32_t number,
                                   TimePs now) {
  if (!can_be_trimmed(packet)) return false;
  counters_.trim(number);
  forward(trimmed_header(packet, network_->control_class), ingress, number, now);
  return true;
}

// The next start of a port has an event.
[[gnu::noinline]] void Links::expect_start(const Port& port, std::uint32_t number, TimePs now) {
  const std::uint32_t source = count_ + number;
  if (port.ready() != 0 && schedule_->time_of(source) == kNever)
    schedule_->set(source, std::max(port.free, now));
}

// Packets that have started before `now`. Apart from its callers, which mostly find none.
[[gnu::noinline]] void Links::drain(Port& port, std::uint32_t number, TimePs now) {
  while (port.free < now && port.ready() != 0) start_next(port, number);
}

void Links::starts(std::uint32_t number, TimePs now) {
  assert(number < count_);
  Port& port = ports_[number];
  while (port.free <= now && port.ready() != 0) start_next(port, number);
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
      port.clear(Port::kListed);
      waiting[at] = waiting.back();
      waiting.pop_back();
      continue;
    }
    if (port.ready() != 0) next = std::min(next, port.free);
    ++at;
  }
  return next;
}

// A ring that a queue of long ago has made much too large gets less room. Packets walk through all of a ring,
// and what is small stays in the cache.
void Links::trim_rings(Port& port) {
  for (PriorityQueue& queue : port.queues) {
    if (queue.capacity > RingArena::kLeast && queue.flying <= queue.capacity / 8) fit(port, queue);
  }
}

void Links::start_next(Port& port, std::uint32_t number) {
  if (port.is(Port::kBucket) && !has_tokens(port, number)) return;
  const std::uint32_t own = next_class(port, number);
  PriorityQueue& queue = port.queues[own];
  Packet& packet = queue.at(queue.flying);
  const std::uint32_t wire_bytes = wire_bytes_of(packet);
  queue.fetch(queue.flying + 2);
  assert(queue.waiting > 0 && queue.waiting_bytes >= wire_bytes);
  queue.waiting_bytes -= wire_bytes;
  port.waiting_bytes -= wire_bytes;
  if (--queue.waiting == 0) port.waiting &= static_cast<std::uint8_t>(~(1u << own));
  const TimePs at = port.free;
  if (!is_pause_frame(packet)) {
    if (packet.ect != 0 && queue.waiting_bytes > port.unmarked_bytes &&
        marker_.mark(number, queue.waiting_bytes))
      packet.ce = 1;
    if (buffers_.is_shared(port.node)) release(port.node, packet.ingress(), own, wire_bytes, at);
  }
  if (packet.telemetry != 0) [[unlikely]]
    describe(port, number, packet, at);
  const TimePs arrival = occupy(port, packet, wire_bytes, at);
  if (arrival == kNever) [[unlikely]]
    return lose_waiting(number, queue, wire_bytes);
  ++queue.flying;
  if (port.is(Port::kAbroad)) {
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

// Cut-through: a switch may send on a packet of which it has only the header if it never runs dry. No port
// that it sends by may be faster than the link that the packet came by. This holds for the rates as built, on
// which the windows' length rests, and for the rates now. No such port may have a token bucket, from which a
// packet leaves at once.
void Links::set_cut_through(std::uint32_t number) {
  Port& port = ports_[number];
  port.clear(Port::kCutThrough);
  if (!network_->cut_through || port.to_host || number >= network_->link_rate_bps.size()) return;
  const std::vector<std::uint32_t>& ports = ports_of_node_[index(targets_[number])];
  const std::vector<std::int64_t>& built = network_->link_rate_bps;
  const bool fits = std::all_of(ports.begin(), ports.end(), [&](std::uint32_t own) {
    return built[own] > 0 && built[own] <= built[number] && ports_[own].rate_bps <= port.rate_bps &&
           network_->link_burst_bytes[own] == 0;
  });
  if (fits) port.set(Port::kCutThrough);
}

// When the header of a packet that starts at `at` and takes `time` is dealt with.
TimePs Links::header_arrival(const Port& port, TimePs at, TimePs time) const {
  return at + std::min(time, serialisation(port, kHeaderBytes)) + port.delay;
}

}  // namespace genie::twin
