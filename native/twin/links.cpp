#include "twin/links.hpp"

#include <algorithm>
#include <bit>

#include "core/mix.hpp"

namespace genie::twin {
namespace {

// A pause frame, IEEE 802.1Qbb; it has the Ethernet header and FCS in it that the frame overhead counts.
constexpr std::uint32_t kPauseBytes = 64, kFramingBytes = 18;
constexpr auto kPauseOpcode = static_cast<roce::Opcode>(0xFF);  // none of InfiniBand's

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

}  // namespace

Links::Links(const Network& network, Schedule& schedule, std::uint64_t seed)
    : network_(&network), schedule_(&schedule), seed_(seed) {
  const std::size_t cables = network.link_source.size(), hosts = index(network.hosts);
  links_.resize(cables + hosts);  // the network's, then one from each host to itself
  ports_.resize(cables + hosts);
  queues_.resize((cables + hosts) * kPriorities);
  ingress_.resize((cables + hosts) * kPriorities);
  counters_.resize(cables + hosts);
  switches_.resize(index(network.nodes));
  for (unsigned opcode = 0; opcode < header_bytes_.size(); ++opcode)
    header_bytes_[opcode] = static_cast<std::uint16_t>(
        roce::wire_bytes(static_cast<roce::Opcode>(opcode), 0, network.frame_overhead_bytes));
  header_bytes_[static_cast<std::uint8_t>(kPauseOpcode)] = static_cast<std::uint16_t>(
      kPauseBytes + std::max(network.frame_overhead_bytes, kFramingBytes) - kFramingBytes);
  for (std::size_t number = 0; number < cables; ++number) {
    Link& link = links_[number];
    const std::int32_t target = network.link_target[number], source = network.link_source[number];
    ports_[number].rate_bps = network.link_rate_bps[number];
    link.delay = network.link_delay_ps[number];
    link.to_host = target < network.hosts;
    if (link.to_host) link.delay += network.packet_latency_ps[index(target)];
    ports_[number].node = source;
    ports_[number].target = target;
    ports_[number].buffer_bytes = network.link_buffer_bytes[number];
    if (source < network.hosts) {
      ports_[cables + index(source)].rate_bps = ports_[number].rate_bps;
    } else {
      switches_[index(source)].ports.push_back(static_cast<std::uint32_t>(number));
      if (network.link_ecn[number].minimum_bytes >= 0) link.flags |= kMarks;
    }
  }
  for (std::size_t host = 0; host < hosts; ++host) {
    links_[cables + host].to_host = true;
    links_[cables + host].delay = network.packet_latency_ps[host];
    ports_[cables + host].node = ports_[cables + host].target = static_cast<std::int32_t>(host);
  }
  for (std::size_t number = 0; number < links_.size(); ++number) {
    const std::int64_t rate_bps = ports_[number].rate_bps;
    if (rate_bps > 0 && 8 * kPsPerSecond % rate_bps == 0 && 8 * kPsPerSecond / rate_bps < 1u << 31)
      links_[number].ps_per_byte = static_cast<std::uint32_t>(8 * kPsPerSecond / rate_bps);
  }
  for (std::size_t node = hosts; node < switches_.size(); ++node)
    switches_[node].shared_bytes = network.shared_bytes[node];
}

TimePs Links::lookahead(std::uint32_t number) const {
  const std::uint16_t least = *std::min_element(header_bytes_.begin(), header_bytes_.end());
  return links_[number].delay + serialisation(links_[number], number, least);
}

void Links::attach(const std::vector<std::uint32_t>& process_of_node) {
  waiting_.assign(schedule_->processes(), {});
  scratch_.resize(schedule_->threads());
  mailboxes_.resize(std::size_t{schedule_->threads()} * schedule_->threads());
  for (std::uint32_t number = 0; number < links(); ++number) {
    Port& port = ports_[number];
    port.process = process_of_node[index(port.node)];
    links_[number].target_process = process_of_node[index(port.target)];
    Link& link = links_[number];
    if (port.process == link.target_process) link.flags |= kInside;
    if (schedule_->thread_of(port.process) != schedule_->thread_of(link.target_process)) link.flags |= kAbroad;
  }
  std::vector<std::uint32_t> nodes(schedule_->processes());
  for (const std::uint32_t process : process_of_node) ++nodes[process];
  inputs_.assign(schedule_->processes(), {});
  for (std::uint32_t number = 0; number < links(); ++number) {
    Link& link = links_[number];
    if (ports_[number].target < network_->hosts || nodes[link.target_process] > 1) continue;
    link.flags |= kToSwitch;
    inputs_[link.target_process].push_back(number);
  }
}

// -- a switch ---------------------------------------------------------------------------------------------------

std::uint64_t Links::play_switch(std::uint32_t process, TimePs end) {
  // Arrivals of the window, in order: by time from its beginning, then by input.
  constexpr unsigned kInputBits = 16;
  const std::vector<std::uint32_t>& inputs = inputs_[process];
  Scratch& scratch = scratch_[schedule_->thread_of(process)];
  std::vector<std::uint64_t>& batch = scratch.batch;
  const TimePs begin = end - schedule_->window_ps();
  TimePs next = kNever;
  batch.clear();
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    const Link& link = links_[inputs[input]];
    for (std::uint32_t place = 0; place < link.flying; ++place) {
      const TimePs arrival = link.slots[(link.head + place) & (link.capacity - 1)].arrival;
      if (arrival >= end) {
        next = std::min(next, arrival);
        break;
      }
      batch.push_back(static_cast<std::uint64_t>(arrival - begin) << kInputBits | input);
    }
  }
  sort_batch(scratch, kInputBits + static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(end - begin))));
  Agenda& agenda = schedule_->agenda(process);
  const std::uint32_t* const sources = schedule_->sources(process);
  std::uint64_t events = batch.size();
  const auto starts_before = [&](TimePs time) {
    while (agenda.next_time() < time) {
      const TimePs now = agenda.next_time();
      starts(sources[agenda.next_source()] - links(), now);
      ++events;
    }
  };
  for (const std::uint64_t key : batch) {
    const TimePs now = begin + static_cast<TimePs>(key >> kInputBits);
    starts_before(now);
    pass(inputs[key & ((1u << kInputBits) - 1)], now);
  }
  starts_before(end);
  schedule_->rest(process, std::min(next, finish(process, end)));
  return events;
}

// The first arrival of a switch's input.
void Links::pass(std::uint32_t number, TimePs now) {
  Link& link = links_[number];
  Flight& first = link.slots[link.head];
  if (first.connection != kPauseFrame) {
    forward(first, number, now);
  } else {
    paused_by(first, number, now);
  }
  link.head = (link.head + 1) & (link.capacity - 1);
  --link.flying;
}

// Sorts the batch: into as many buckets as there are arrivals, which leaves nearly nothing to do in each.
void Links::sort_batch(Scratch& scratch, unsigned key_bits) {
  std::vector<std::uint64_t>& batch = scratch.batch;
  const std::size_t count = batch.size();
  if (count > 8) {
    const auto bits = std::min<unsigned>(static_cast<unsigned>(std::bit_width(count)), kBucketBits);
    const unsigned shift = key_bits > bits ? key_bits - bits : 0;
    const std::size_t buckets = std::size_t{1} << bits;
    std::uint32_t* const places = scratch.places.data();
    std::fill_n(places, buckets + 1, std::uint32_t{0});
    for (const std::uint64_t key : batch) ++places[(key >> shift) + 1];
    for (std::size_t bucket = 1; bucket < buckets; ++bucket) places[bucket] += places[bucket - 1];
    scratch.sorted.resize(count);
    for (const std::uint64_t key : batch) scratch.sorted[places[key >> shift]++] = key;
    batch.swap(scratch.sorted);
  }
  for (std::size_t at = 1; at < count; ++at) {
    const std::uint64_t key = batch[at];
    std::size_t hole = at;
    for (; hole > 0 && key < batch[hole - 1]; --hole) batch[hole] = batch[hole - 1];
    batch[hole] = key;
  }
}

// -- threads ----------------------------------------------------------------------------------------------------

void Links::post(std::uint32_t number, const Flight& flight, TimePs arrival) {
  const std::uint32_t from = schedule_->thread_of(ports_[number].process);
  const std::uint32_t to = schedule_->thread_of(links_[number].target_process);
  std::vector<Letter>& letters = mailboxes_[from * schedule_->threads() + to].letters;
  letters.push_back({number, flight});
  letters.back().flight.arrival = arrival;
}

void Links::take_mail(std::uint32_t thread) {
  for (std::uint32_t from = 0; from < schedule_->threads(); ++from) {
    std::vector<Letter>& letters = mailboxes_[from * schedule_->threads() + thread].letters;
    for (const Letter& letter : letters)
      put_on_wire(links_[letter.link], letter.link, letter.flight, letter.flight.arrival);
    letters.clear();
  }
}

LinkCounters Links::totals(std::uint32_t number) const {
  LinkCounters counters = counters_[number];
  counters.packets = links_[number].packets;
  counters.bytes = links_[number].bytes;
  counters.longest_queue_bytes = ports_[number].longest_bytes;
  return counters;
}

// -- ports ------------------------------------------------------------------------------------------------------

// A full ring gets twice the room.
void Links::grow(std::unique_ptr<Flight[]>& slots, std::uint32_t& head, std::uint32_t& capacity) {
  const std::uint32_t size = capacity == 0 ? 8 : 2 * capacity;
  auto larger = std::make_unique<Flight[]>(size);
  for (std::uint32_t place = 0; place < capacity; ++place) larger[place] = slots[(head + place) & (capacity - 1)];
  slots = std::move(larger);
  capacity = size;
  head = 0;
}

void Links::put(Link& link, std::uint32_t number, Port& port, const Flight& flight, std::uint32_t wire_bytes) {
  Queue& own = queue(number, flight.priority);
  if (own.count == own.capacity) grow(own.slots, own.head, own.capacity);
  own.slots[(own.head + own.count++) & (own.capacity - 1)] = flight;
  own.bytes += wire_bytes;
  port.waiting_bytes += wire_bytes;
  link.waiting |= static_cast<std::uint8_t>(1u << flight.priority);
  if ((link.flags & kListed) != 0) return;
  link.flags |= kListed;
  waiting_[ports_[number].process].push_back(number);
}

void Links::wait(Link& link, std::uint32_t number, const Flight& flight, std::uint32_t ingress,
                 std::uint32_t wire_bytes, TimePs now) {
  Port& port = ports_[number];
  Switch& node = switch_of(port);
  const bool full = port.buffer_bytes >= 0 && port.waiting_bytes + wire_bytes > port.buffer_bytes;
  if (full || (node.shared_bytes > 0 && !admit(node, ingress, flight.priority, wire_bytes, now))) {
    ++counters_[number].dropped;
    counters_[number].dropped_bytes += wire_bytes;
    return;
  }
  put(link, number, port, flight, wire_bytes);
  port.longest_bytes = std::max(port.longest_bytes, port.waiting_bytes);
  if (has_start_events(link, node)) expect_start(link, number, now);
}

// The next start of a port has an event.
void Links::expect_start(const Link& link, std::uint32_t number, TimePs now) {
  const std::uint32_t source = links() + number;
  if ((link.waiting & ~link.paused) != 0 && schedule_->time_of(source) == kNever)
    schedule_->set(source, std::max(link.free, now));
}

// Packets that have started before `now`.
void Links::work_out(Link& link, std::uint32_t number, TimePs now) {
  while (link.free < now && (link.waiting & ~link.paused) != 0) start_next(link, number, ports_[number]);
}

void Links::starts(std::uint32_t number, TimePs now) {
  Link& link = links_[number];
  Port& port = ports_[number];
  while (link.free <= now && (link.waiting & ~link.paused) != 0) start_next(link, number, port);
  schedule_->set(links() + number, kNever);
  if (has_start_events(link, switch_of(port))) expect_start(link, number, now);
}

TimePs Links::finish(std::uint32_t process, TimePs end) {
  std::vector<std::uint32_t>& waiting = waiting_[process];
  TimePs next = kNever;
  for (std::size_t at = 0; at < waiting.size();) {
    const std::uint32_t number = waiting[at];
    Link& link = links_[number];
    work_out(link, number, end);
    if (link.waiting == 0) {
      link.flags &= static_cast<std::uint8_t>(~kListed);
      waiting[at] = waiting.back();
      waiting.pop_back();
      continue;
    }
    if ((link.waiting & ~link.paused) != 0) next = std::min(next, link.free);
    ++at;
  }
  return next;
}

void Links::start_next(Link& link, std::uint32_t number, Port& port) {
  const std::uint32_t priority = take_priority(link, number, port);
  Queue& own = queue(number, priority);
  Flight& flight = own.slots[own.head];
  const std::uint32_t wire_bytes = wire_bytes_of(flight);
  own.head = (own.head + 1) & (own.capacity - 1);
  __builtin_prefetch(&own.slots[(own.head + 1) & (own.capacity - 1)]);
  own.bytes -= wire_bytes;
  port.waiting_bytes -= wire_bytes;
  if (--own.count == 0) link.waiting &= static_cast<std::uint8_t>(~(1u << priority));
  const TimePs at = link.free;
  if (flight.connection != kPauseFrame) {
    if ((link.flags & kMarks) != 0 && flight.capable != 0) mark(number, port, own.bytes, flight);
    if (Switch& node = switch_of(port); node.shared_bytes > 0)
      release(node, paths_[flight.route - 1], priority, wire_bytes, at);
  }
  start(link, number, flight, wire_bytes, at);
}

// Strict priorities from the highest; then deficit round robin among the others (Shreedhar and Varghese,
// SIGCOMM 1995), whose quantum is proportional to their weight.
std::uint32_t Links::take_priority(const Link& link, std::uint32_t number, Port& port) {
  const auto ready = static_cast<std::uint8_t>(link.waiting & ~link.paused);
  const auto strict = static_cast<std::uint8_t>(ready & network_->strict_priorities);
  if (strict != 0) return static_cast<std::uint32_t>(std::bit_width(strict)) - 1;
  if (std::has_single_bit(ready)) {
    const auto only = static_cast<std::uint32_t>(std::countr_zero(ready));
    port.turn = only;
    port.deficit_bytes[only] = 0;
    return only;
  }
  while (true) {
    const std::uint32_t priority = port.turn;
    if ((ready >> priority & 1) != 0) {
      const std::int64_t size = wire_bytes_of(next_of(number, priority));
      if (port.deficit_bytes[priority] >= size) {
        port.deficit_bytes[priority] -= size;
        return priority;
      }
    } else {
      port.deficit_bytes[priority] = 0;
    }
    port.turn = (priority + 1) % kPriorities;
    port.deficit_bytes[port.turn] += network_->weight_bytes[port.turn];
  }
}

// Marks as its queue is when a packet leaves it: RED between two thresholds, always above the upper one.
void Links::mark(std::uint32_t number, Port& port, std::int64_t queued, Flight& flight) {
  const EcnProfile& profile = network_->link_ecn[number];
  if (queued <= profile.minimum_bytes) return;
  if (queued <= profile.maximum_bytes) {
    const std::uint64_t drawn = mixed(seed_ ^ mixed(std::uint64_t{number} << 32 ^ ++port.marks_drawn));
    const double chance = profile.chance_at_maximum * static_cast<double>(queued - profile.minimum_bytes) /
                          static_cast<double>(profile.maximum_bytes - profile.minimum_bytes);
    if (static_cast<double>(drawn >> 11) * 0x1p-53 >= chance) return;
  }
  flight.congested = 1;
  ++counters_[number].marked;
}

// -- the buffer that a switch's ports share, and pauses ------------------------------------------------------------

// Whether a packet may wait in a switch; tells who sent it to pause when that takes headroom, or all that the
// threshold leaves it.
bool Links::admit(Switch& node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes, TimePs now) {
  const BufferConfig& buffer = network_->buffer;
  Ingress& in = ingress_[std::size_t{ingress} * kPriorities + priority];
  const auto taken = [&] { return std::max<std::int64_t>(in.bytes - buffer.reserve_bytes, 0); };
  const auto threshold = [&] { return buffer.threshold_bytes(node.shared_bytes - node.used_bytes); };
  if (node.pausing == 0) {
    const std::int64_t most = in.bytes + wire_bytes - buffer.reserve_bytes;
    if (most < threshold() - wire_bytes) {  // far from anything, by bounds that are upper ones
      const std::int64_t before = taken();
      in.bytes += wire_bytes;
      node.used_bytes += taken() - before;
      return true;
    }
    work_out_all(node, now);
  }
  const bool lossless = (buffer.lossless >> priority & 1) != 0;
  const std::int64_t wanted = in.bytes + wire_bytes;
  if (wanted > buffer.reserve_bytes && wanted - buffer.reserve_bytes > threshold()) {
    if (!lossless || in.headroom_bytes + wire_bytes > network_->link_headroom_bytes[ingress])
      return false;
    in.headroom_bytes += wire_bytes;
  } else {
    const std::int64_t before = taken();
    in.bytes = wanted;
    node.used_bytes += taken() - before;
  }
  if (lossless && !in.pausing &&
      (in.headroom_bytes > 0 || taken() >= threshold())) {
    in.pausing = true;
    in.paused_since = now;
    if (node.pausing++ == 0) watch(node);
    tell(ingress, priority, true, now);
  }
  return true;
}

// A packet has left the buffer.
void Links::release(Switch& node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes,
                    TimePs now) {
  const BufferConfig& buffer = network_->buffer;
  Ingress& in = ingress_[std::size_t{ingress} * kPriorities + priority];
  const auto taken = [&] { return std::max<std::int64_t>(in.bytes - buffer.reserve_bytes, 0); };
  const std::int64_t of_headroom = std::min<std::int64_t>(in.headroom_bytes, wire_bytes);
  in.headroom_bytes -= of_headroom;
  const std::int64_t before = taken();
  in.bytes -= wire_bytes - of_headroom;
  node.used_bytes += taken() - before;
  if (!in.pausing || in.headroom_bytes > 0) return;
  const std::int64_t threshold = buffer.threshold_bytes(node.shared_bytes - node.used_bytes);
  if (taken() > 0 && taken() + buffer.resume_bytes > threshold) return;
  in.pausing = false;
  counters_[ingress].paused_ps += now - in.paused_since;
  --node.pausing;
  tell(ingress, priority, false, now);
}

void Links::work_out_all(const Switch& node, TimePs now) {
  for (const std::uint32_t number : node.ports) {
    if (links_[number].waiting != 0) work_out(links_[number], number, now);
  }
}

// From now on every start at this switch has an event, so that it resumes in time.
void Links::watch(const Switch& node) {
  for (const std::uint32_t number : node.ports) {
    Link& link = links_[number];
    expect_start(link, number, link.free);
  }
}

// A pause frame, or one that ends a pause, to the source of a link: back along its cable.
void Links::tell(std::uint32_t ingress, std::uint32_t priority, bool pause, TimePs now) {
  if (pause) ++counters_[ingress].pauses;
  const std::uint32_t number = ingress ^ 1;
  Link& link = links_[number];
  if (link.waiting != 0) work_out(link, number, now);
  Flight frame;
  frame.connection = kPauseFrame;
  frame.priority = kLinkControl;
  frame.value = priority << 1 | (pause ? 1u : 0u);
  frame.opcode = kPauseOpcode;
  const std::uint32_t wire_bytes = wire_bytes_of(frame);
  if (link.free <= now) {
    start(link, number, frame, wire_bytes, now);
    return;
  }
  put(link, number, ports_[number], frame, wire_bytes);
  if (has_start_events(link, switch_of(ports_[number]))) expect_start(link, number, now);
}

// A pause frame has come by `number`: what is said of the port beside it. True when that may send again.
bool Links::paused_by(const Flight& frame, std::uint32_t number, TimePs now) {
  const std::uint32_t other = number ^ 1, priority = frame.value >> 1;
  Link& link = links_[other];
  if (link.waiting != 0) work_out(link, other, now);
  const auto bit = static_cast<std::uint8_t>(1u << priority);
  if ((frame.value & 1) != 0) {
    link.paused |= bit;
  } else {
    link.paused &= static_cast<std::uint8_t>(~bit);
    if ((link.waiting & bit) != 0) link.free = std::max(link.free, now);
  }
  if (has_start_events(link, switch_of(ports_[other]))) expect_start(link, other, now);
  return (link.paused & bit) == 0;
}

}  // namespace genie::twin
