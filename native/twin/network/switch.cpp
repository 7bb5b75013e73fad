// What a switch that is a process of its own does in a window: its arrivals, put in order, go on.
#include <algorithm>
#include <bit>

#include "twin/network/links.hpp"

namespace genie::twin {
namespace {

constexpr std::uint32_t kChosenLater = kPauseFrame - 1;  // in place of a link

}  // namespace

std::uint64_t Links::play_switch(std::uint32_t process, TimePs end) {
  Scratch& scratch = scratch_[schedule_->thread_of(process)];
  const TimePs begin = end - schedule_->window_ps();
  // A key has an arrival's time since the window's beginning and, below, its number.
  const auto time_bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(end - begin)));
  const unsigned number_bits = 64 - time_bits;
  TimePs next = kNever;
  Inputs& inputs = inputs_[process];
  const std::size_t count = collect(scratch, inputs.links, begin, end, number_bits, next);
  sort_keys(scratch, count);
  TournamentTree& tree = schedule_->tree(process);
  const std::uint32_t* const sources = schedule_->sources(process);
  std::uint64_t events = count;
  const auto starts_before = [&](TimePs time) {
    while (tree.next_time() < time) [[unlikely]] {
      const TimePs now = tree.next_time();
      starts(sources[tree.next_source()] - count_, now);
      ++events;
    }
  };
  const std::uint64_t* const keys = scratch.keys.data();
  const Arrival* const arrivals = scratch.arrivals.data();
  const std::uint64_t number_mask = (std::uint64_t{1} << number_bits) - 1;
  const auto arrival_at = [&](std::size_t place) -> const Arrival& {
    return arrivals[keys[place] & number_mask];
  };
  constexpr std::size_t kAhead = 6;
  std::size_t settled = 0;  // so many are in order, also of those that come together
  for (std::size_t place = 0; place < count; ++place) {
    if (place + kAhead < count) {  // where a later one is going to be put
      if (const PriorityQueue* const queue = arrival_at(place + kAhead).queue; queue != nullptr)
        queue->fetch(queue->flying + queue->waiting);
    }
    if (place >= settled && place + 1 < count && (keys[place] ^ keys[place + 1]) >> number_bits == 0)
      settled = take_turns(scratch, inputs, place, count, number_bits);
    const TimePs now = begin + static_cast<TimePs>(keys[place] >> number_bits);
    const Arrival& arrival = arrival_at(place);
    const std::uint32_t link = inputs.links[arrival.input];
    inputs.served[arrival.input] = ++inputs.clock;
    starts_before(now);
    std::uint32_t onward = arrival.next;
    if (arrival.queue == nullptr) [[unlikely]] {
      if (onward == kPauseFrame) {
        paused_by(*arrival.packet, link, now);
        continue;
      }
      if (onward == kChosenLater) onward = choose(*arrival.packet, link, now);
      if (onward == kNowhere) {
        lose(link, *arrival.packet);
        continue;
      }
    }
    forward(*arrival.packet, link, onward, now);
  }
  starts_before(end);
  schedule_->rest(process, std::min(next, finish(process, end)));
  return events;
}

// Takes a window's arrivals off their wires, on which nobody puts anything before it is over: until then they
// stay where they lie. Their number; `next` is when the first after them comes.
std::size_t Links::collect(Scratch& scratch, const std::vector<std::uint32_t>& inputs, TimePs begin,
                           TimePs end, unsigned number_bits, TimePs& next) {
  std::size_t count = 0;
  for (std::uint32_t input = 0; input < inputs.size(); ++input) {
    fetch(inputs, input);
    Port& port = ports_[inbound_[inputs[input]]];
    for (unsigned left = port.flying; left != 0; left &= left - 1) {
      const auto own = static_cast<unsigned>(std::countr_zero(left));
      PriorityQueue& queue = port.queues[own];
      const std::uint32_t flying = queue.flying, mask = queue.capacity - 1;
      scratch.make_room(count + flying);
      std::uint64_t* const keys = scratch.keys.data();
      Arrival* const arrivals = scratch.arrivals.data();
      Packet* const slots = queue.slots;
      std::uint32_t place = queue.head, taken = 0;
      for (; taken < flying; ++taken, ++place, ++count) {
        Packet& packet = slots[place & mask];
        const TimePs arrival = packet.arrival;
        if (arrival >= end) {
          next = std::min(next, arrival);
          break;
        }
        keys[count] = static_cast<std::uint64_t>(arrival - begin) << number_bits | count;
        const std::uint32_t route = packet.route;
        if (own == kPauseClass || packet.is_free()) [[unlikely]] {
          arrivals[count] = {&packet, nullptr, input, own == kPauseClass ? kPauseFrame : kChosenLater};
          continue;
        }
        packet.route = route + 1;
        const std::uint32_t onward = paths_[route + 1];
        const Port& out = ports_[onward];
        __builtin_prefetch(&out, 1);
        __builtin_prefetch(&out.queues[own], 1);
        arrivals[count] = {&packet, &out.queues[own], input, onward};
      }
      queue.head = place & mask;
      queue.flying = flying - taken;
      if (taken == flying) port.flying &= static_cast<std::uint8_t>(~(left & (0u - left)));
    }
  }
  return count;
}

// Fetches early what collect is about to read of the inputs after this one.
void Links::fetch(const std::vector<std::uint32_t>& inputs, std::size_t input) const {
  if (input + 3 < inputs.size()) {
    const Port& port = ports_[inbound_[inputs[input + 3]]];
    __builtin_prefetch(&port);
    __builtin_prefetch(&port.queues[0]);
  }
  if (input + 1 < inputs.size()) {
    const Port& port = ports_[inbound_[inputs[input + 1]]];
    for (unsigned left = port.flying; left != 0; left &= left - 1) {
      const PriorityQueue& queue = port.queues[static_cast<unsigned>(std::countr_zero(left))];
      queue.fetch(0);
      queue.fetch(2);
    }
  }
}

// Sorts the keys: into as many buckets as there are, which leaves nearly nothing to do in each.
void Links::sort_keys(Scratch& scratch, std::size_t count) {
  std::uint64_t* keys = scratch.keys.data();
  if (count > 8) {
    const auto bits = std::min<unsigned>(static_cast<unsigned>(std::bit_width(count)) - 1, kBucketBits);
    const unsigned shift = 64 - bits;
    const std::size_t buckets = std::size_t{1} << bits;
    std::uint32_t* const places = scratch.places.data();
    std::fill_n(places, buckets + 1, std::uint32_t{0});
    for (std::size_t at = 0; at < count; ++at) ++places[(keys[at] >> shift) + 1];
    for (std::size_t bucket = 1; bucket < buckets; ++bucket) places[bucket] += places[bucket - 1];
    std::uint64_t* const sorted = scratch.sorted.data();
    for (std::size_t at = 0; at < count; ++at) sorted[places[keys[at] >> shift]++] = keys[at];
    scratch.keys.swap(scratch.sorted);
    keys = sorted;
  }
  for (std::size_t at = 1; at < count; ++at) {
    const std::uint64_t key = keys[at];
    std::size_t hole = at;
    for (; hole > 0 && key < keys[hole - 1]; --hole) keys[hole] = keys[hole - 1];
    keys[hole] = key;
  }
}

}  // namespace genie::twin
