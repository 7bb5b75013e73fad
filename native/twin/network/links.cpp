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
    : network_(&network), routes_(&network.routes.front()), schedule_(&schedule), seed_(seed) {
  const std::size_t cables = network.link_source.size(), hosts = index(network.hosts);
  count_ = static_cast<std::uint32_t>(cables + hosts);  // the network's, then one from each host to itself
  blocks_.resize(count_);
  inbound_.resize(count_);
  targets_.resize(count_);
  ingress_.resize(std::size_t{count_} * kClasses);
  counters_.resize(count_);
  buckets_.resize(count_);
  deficit_bytes_.resize(count_);
  lost_.resize(count_);
  switches_.resize(index(network.nodes));
  balancers_.resize(index(network.nodes));
  for (unsigned opcode = 0; opcode < header_bytes_.size(); ++opcode)
    header_bytes_[opcode] =
        static_cast<std::uint16_t>(frame_header_bytes(network, static_cast<roce::Opcode>(opcode)));
  const std::uint32_t pause =
      kPauseBytes + std::max(network.frame_overhead_bytes, kFramingBytes) - kFramingBytes;
  header_bytes_[static_cast<std::uint8_t>(kPauseOpcode)] =
      static_cast<std::uint16_t>(network.pause_bytes != 0 ? network.pause_bytes : pause);
  for (std::uint32_t number = 0; number < cables; ++number) {
    Block& block = blocks_[number];
    const std::int32_t target = network.link_target[number], source = network.link_source[number];
    inbound_[number] = number;
    targets_[number] = target;
    block.node = source;
    block.rate_bps = network.link_rate_bps[number];
    block.delay = network.link_delay_ps[number];
    block.to_host = target < network.hosts;
    if (block.to_host) block.delay += network.packet_latency_ps[index(target)];
    block.buffer_bytes = network.link_buffer_bytes[number];
    if (source < network.hosts) {
      blocks_[cables + index(source)].rate_bps = block.rate_bps;
    } else {
      switches_[index(source)].ports.push_back(number);
      if (const std::int64_t minimum = network.link_ecn[number].minimum_bytes; minimum >= 0)
        block.unmarked_bytes = minimum;
    }
  }
  for (std::size_t host = 0; host < hosts; ++host) {
    Block& block = blocks_[cables + host];
    inbound_[cables + host] = static_cast<std::uint32_t>(cables + host);
    block.node = targets_[cables + host] = static_cast<std::int32_t>(host);
    block.to_host = true;
    block.delay = network.packet_latency_ps[host];
  }
  for (Block& block : blocks_) set_rate(block, block.rate_bps);
  for (std::uint32_t number = 0; number < cables; ++number) {
    Block& block = blocks_[number];
    if (const std::int64_t burst = network.link_burst_bytes[number]; burst > 0 && block.rate_bps > 0) {
      block.flags |= kBucket;
      buckets_[number].burst = serialisation_ps(burst, block.rate_bps);
    }
    set_cut_through(number);
  }
  for (std::uint32_t number = 0; number < network.link_errors.size(); ++number)
    set_errors(number, network.link_errors[number]);
  for (std::size_t node = hosts; node < switches_.size(); ++node)
    switches_[node].shared_bytes = network.shared_bytes[node];
}

TimePs Links::lookahead(std::uint32_t number) const {
  const std::uint16_t least = *std::min_element(header_bytes_.begin(), header_bytes_.end());
  const Block& block = blocks_[number];
  if ((block.flags & kBucket) != 0) return block.delay;
  const std::uint32_t read =
      (block.flags & kCutThrough) != 0 ? std::min<std::uint32_t>(least, kHeaderBytes) : least;
  return block.delay + serialisation(block, read);
}

void Links::attach(const std::vector<std::uint32_t>& process_of_node) {
  std::vector<std::uint32_t> nodes(schedule_->processes());
  for (const std::uint32_t process : process_of_node) ++nodes[process];
  waiting_.assign(schedule_->processes(), {});
  inputs_.assign(schedule_->processes(), {});
  scratch_.resize(schedule_->threads());
  arenas_.resize(schedule_->threads());
  mailboxes_.resize(std::size_t{schedule_->threads()} * schedule_->threads());
  for (std::uint32_t number = 0; number < count_; ++number) {
    Block& block = blocks_[number];
    block.process = process_of_node[index(block.node)];
    block.target_process = process_of_node[index(targets_[number])];
    block.thread = schedule_->thread_of(block.process);
    if (block.process == block.target_process) block.flags |= kInside;
    if (targets_[number] >= network_->hosts && nodes[block.target_process] == 1) {
      block.flags |= kToSwitch;
      inputs_[block.target_process].add(number);
    }
  }
  for (std::uint32_t number = 0; number < count_; ++number) {
    const Block& block = blocks_[number];
    if (schedule_->thread_of(block.process) == schedule_->thread_of(block.target_process)) continue;
    inbound_[number] = static_cast<std::uint32_t>(blocks_.size());
    Block far;
    far.target_process = block.target_process;
    far.thread = schedule_->thread_of(block.target_process);
    far.flags = block.flags;
    far.to_host = block.to_host;
    blocks_.push_back(std::move(far));
    blocks_[number].flags |= kAbroad;
  }
}

LinkCounters Links::totals(std::uint32_t number) const {
  LinkCounters counters = counters_[number];
  counters.dropped += lost_[number].packets;
  counters.dropped_bytes += lost_[number].bytes;
  if (!errors_.empty()) counters.replays = errors_[number].replays;
  counters.packets = blocks_[number].packets;
  counters.bytes = blocks_[number].bytes;
  counters.longest_queue_bytes = std::max(counters.longest_queue_bytes, blocks_[number].longest_bytes);
  counters.queue_bytes = blocks_[number].waiting_bytes;
  return counters;
}

LinkCounters Links::look(std::uint32_t number, TimePs now) {
  Block& block = blocks_[number];
  LinkCounters counters = totals(number);
  if (block.free > now && (block.flags & (kDown | kBucket)) == 0) {
    TimePs left = block.free - now;
    if ((block.flags & kErrors) != 0) left = std::min(left, errors_[number].time);  // of its last sending
    counters.bytes -=
        std::min(counters.bytes, static_cast<std::uint64_t>(congestion::bytes_in(block.rate_bps, left)));
  }
  for (std::uint32_t own = 0; own < kPauseClass; ++own) {
    const Ingress& in = ingress_[std::size_t{number} * kClasses + own];
    if (in.pausing) counters.paused_ps += now - in.paused_since;
  }
  counters_[number].longest_queue_bytes = counters.longest_queue_bytes;
  counters.longest_queue_bytes = std::exchange(block.longest_bytes, 0);
  return counters;
}

// A ring gets twice the room that its packets take.
void Links::fit(const Block& block, Lane& lane) {
  const std::uint32_t count = lane.flying + lane.waiting,
                      size = std::max(RingArena::kLeast, std::bit_ceil(2 * count));
  RingArena& arena = arenas_[block.thread];
  Flight* const other = arena.take(size);
  for (std::uint32_t place = 0; place < count; ++place) other[place] = lane.at(place);
  if (lane.slots != nullptr) arena.give(lane.slots, lane.capacity);
  lane.slots = other;
  lane.capacity = size;
  lane.head = 0;
}

// -- threads
// ----------------------------------------------------------------------------------------------------

void Links::post(const Block& block, std::uint32_t number, const Flight& flight, TimePs arrival) {
  const std::uint32_t from = schedule_->thread_of(block.process),
                      to = schedule_->thread_of(block.target_process);
  std::vector<Letter>& letters = mailboxes_[from * schedule_->threads() + to].letters;
  letters.push_back({number, flight});
  letters.back().flight.arrival = arrival;
}

void Links::take_mail(std::uint32_t thread) {
  for (std::uint32_t from = 0; from < schedule_->threads(); ++from) {
    std::vector<Letter>& letters = mailboxes_[from * schedule_->threads() + thread].letters;
    for (const Letter& letter : letters) {
      Block& block = blocks_[inbound_[letter.link]];
      if ((block.flags & kErrors) != 0 && letter.flight.connection == kPauseFrame) {
        put_before(block, letter.link, letter.flight, letter.flight.arrival);
      } else {
        put_on_wire(block, letter.link, letter.flight, letter.flight.arrival);
      }
    }
    letters.clear();
  }
}

// -- ports
// ------------------------------------------------------------------------------------------------------

void Links::wait(Block& block, std::uint32_t number, const Flight& flight, std::uint32_t ingress,
                 std::uint32_t wire_bytes, TimePs now) {
  Switch& node = switch_of(block);
  // A header that is left of a packet has the buffer of its own class: data has filled the port's.
  const std::int64_t before =
      flight.trimmed != 0 ? block.lanes[flight.lane].waiting_bytes : block.waiting_bytes;
  const bool full = block.buffer_bytes >= 0 && before + wire_bytes > block.buffer_bytes;
  if (const bool down = (block.flags & kDown) != 0;
      down || full || (node.shared_bytes > 0 && !admit(node, ingress, flight.lane, wire_bytes, now))) {
    if (down || !network_->trims || !trim(flight, ingress, number, now)) drop(number, flight, wire_bytes);
    return;
  }
  put(block, number, flight, wire_bytes);
  block.longest_bytes = std::max(block.longest_bytes, block.waiting_bytes);
  if (has_start_events(block, node)) expect_start(block, number, now);
}

// The next start of a port has an event.
void Links::expect_start(const Block& block, std::uint32_t number, TimePs now) {
  const std::uint32_t source = count_ + number;
  if ((block.waiting & ~block.paused) != 0 && schedule_->time_of(source) == kNever)
    schedule_->set(source, std::max(block.free, now));
}

// Packets that have started before `now`. Apart from its callers, which mostly find none.
[[gnu::noinline]] void Links::work_out(Block& block, std::uint32_t number, TimePs now) {
  while (block.free < now && (block.waiting & ~block.paused) != 0) start_next(block, number);
}

void Links::starts(std::uint32_t number, TimePs now) {
  Block& block = blocks_[number];
  while (block.free <= now && (block.waiting & ~block.paused) != 0) start_next(block, number);
  schedule_->set(count_ + number, kNever);
  if (has_start_events(block, switch_of(block))) expect_start(block, number, now);
}

TimePs Links::finish(std::uint32_t process, TimePs end) {
  std::vector<std::uint32_t>& waiting = waiting_[process];
  TimePs next = kNever;
  for (std::size_t at = 0; at < waiting.size();) {
    const std::uint32_t number = waiting[at];
    Block& block = blocks_[number];
    work_out(block, number, end);
    if (block.waiting == 0) {
      trim_rings(block);
      block.flags &= static_cast<std::uint8_t>(~kListed);
      waiting[at] = waiting.back();
      waiting.pop_back();
      continue;
    }
    if ((block.waiting & ~block.paused) != 0) next = std::min(next, block.free);
    ++at;
  }
  return next;
}

// A ring that a queue of long ago has made much too large gets less: packets walk through all of it, and what
// is small stays in the cache.
void Links::trim_rings(Block& block) {
  for (Lane& lane : block.lanes) {
    if (lane.capacity > RingArena::kLeast && lane.flying <= lane.capacity / 8) fit(block, lane);
  }
}

// Whether the packet that is next may leave when its port is free; otherwise the port is free when it may.
bool Links::has_tokens(Block& block, std::uint32_t number) const {
  const auto ready = static_cast<std::uint8_t>(block.waiting & ~block.paused);
  const auto strict = static_cast<std::uint8_t>(ready & network_->strict_classes);
  // The highest strict class's; the longest of the others, any of which may be next.
  std::uint32_t wire_bytes = 0;
  for (unsigned left = strict != 0 ? std::bit_floor(strict) : ready; left != 0; left &= left - 1) {
    const Lane& lane = block.lanes[static_cast<unsigned>(std::countr_zero(left))];
    wire_bytes = std::max(wire_bytes, wire_bytes_of(lane.at(lane.flying)));
  }
  const TimePs at = buckets_[number].start(block.free, serialisation(block, wire_bytes));
  return std::exchange(block.free, at) == at;
}

void Links::start_next(Block& block, std::uint32_t number) {
  if ((block.flags & kBucket) != 0 && !has_tokens(block, number)) return;
  const std::uint32_t own = next_class(block, number);
  Lane& lane = block.lanes[own];
  Flight& flight = lane.at(lane.flying);
  const std::uint32_t wire_bytes = wire_bytes_of(flight);
  lane.fetch(lane.flying + 2);
  lane.waiting_bytes -= wire_bytes;
  block.waiting_bytes -= wire_bytes;
  if (--lane.waiting == 0) block.waiting &= static_cast<std::uint8_t>(~(1u << own));
  const TimePs at = block.free;
  if (flight.connection != kPauseFrame) {
    if (flight.capable != 0 && lane.waiting_bytes > block.unmarked_bytes &&
        is_marked(number, block, lane.waiting_bytes))
      flight.congested = 1;
    if (Switch& node = switch_of(block); node.shared_bytes > 0)
      release(node, ingress_of(flight), own, wire_bytes, at);
  }
  if (flight.telemetry != 0) [[unlikely]]
    describe(block, number, flight, at);
  const TimePs arrival = occupy(block, flight, wire_bytes, at);
  if (arrival == kNever) [[unlikely]]
    return lose_waiting(number, lane, wire_bytes);
  ++lane.flying;
  if ((block.flags & kAbroad) != 0) {
    post(block, number, flight, arrival);
    return lane.pop();
  }
  flight.arrival = arrival;
  tell_target(block, number, own, arrival);
}

// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), whose quantum is proportional to the weight.
std::uint32_t Links::next_weighted(Block& block, std::uint32_t number, unsigned ready) {
  std::array<std::int64_t, kClasses>& deficit = deficit_bytes_[number];
  while (true) {
    const std::uint32_t own = block.turn;
    if ((ready >> own & 1) != 0) {
      const std::int64_t size = wire_bytes_of(block.lanes[own].at(block.lanes[own].flying));
      if (deficit[own] >= size) {
        deficit[own] -= size;
        return own;
      }
    } else {
      deficit[own] = 0;
    }
    block.turn = (own + 1) % kClasses;
    deficit[block.turn] += network_->weight_bytes[block.turn];
  }
}

// Marks as its queue is when a packet leaves it: RED between two thresholds, always above the upper one.
bool Links::is_marked(std::uint32_t number, Block& block, std::int64_t queued) {
  const EcnProfile& profile = network_->link_ecn[number];
  if (queued <= profile.maximum_bytes) {
    const std::uint64_t drawn = mixed(seed_ ^ mixed(std::uint64_t{number} << 32 ^ ++block.marks_drawn));
    const double chance = profile.chance_at_maximum * static_cast<double>(queued - profile.minimum_bytes) /
                          static_cast<double>(profile.maximum_bytes - profile.minimum_bytes);
    if (static_cast<double>(drawn >> 11) * 0x1p-53 >= chance) return false;
  }
  ++counters_[number].marked;
  return true;
}

}  // namespace genie::twin
