// A window of a switch that is a process of its own: its arrivals go on in order.
#include <algorithm>
#include <bit>

#include "twin/network/links.hpp"

namespace genie::twin {
namespace {

constexpr std::uint32_t kChosenLater = kPauseFrame - 1;  // in place of a link

}  // namespace

std::uint64_t Links::play_switch(std::uint32_t process, TimePs end) {
  ArrivalBatch& batch = batches_[schedule_->thread_of(process)];
  const TimePs begin = end - schedule_->window_ps();
  // A key has an arrival's time since the window's beginning and, below, its number.
  const auto time_bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(end - begin)));
  const unsigned number_bits = 64 - time_bits;
  TimePs next = kNever;
  InputOrder& inputs = inputs_[process];
  const std::size_t count = collect(batch, inputs, begin, end, number_bits, next);
  batch.sort_keys(count);
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
  const std::uint64_t* const keys = batch.keys.data();
  const Arrival* const arrivals = batch.arrivals.data();
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
    if (place >= settled && place + 1 < count && (keys[place] ^ keys[place + 1]) <= number_mask)
      settled = inputs.take_turns(batch, place, count, number_bits, seed_, begin);
    const TimePs now = begin + static_cast<TimePs>(keys[place] >> number_bits);
    const Arrival& arrival = arrival_at(place);
    const std::uint32_t link = inputs.links[arrival.input];
    inputs.serve(arrival.input);
    if (inputs.keeps_services() && place >= settled) [[unlikely]]
      inputs.serve_alone(arrival.input, now);
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

// Takes a window's arrivals off their wires. No port puts anything on these before the window is over: until
// then packets stay where they lie. Their number; `next` is when the first after them comes.
std::size_t Links::collect(ArrivalBatch& batch, InputOrder& inputs, TimePs begin, TimePs end,
                           unsigned number_bits, TimePs& next) {
  std::size_t count = 0;
  inputs.list_busy(batch.inputs);
  for (std::size_t at = 0; at < batch.inputs.size(); ++at) {
    fetch(inputs.links, batch.inputs, at);
    const std::uint32_t input = batch.inputs[at], link = inputs.links[input];
    Port& port = ports_[inbound_[link]];
    for (unsigned left = port.flying; left != 0; left &= left - 1) {
      const auto own = static_cast<unsigned>(std::countr_zero(left));
      PriorityQueue& queue = port.queues[own];
      const std::uint32_t flying = queue.flying, mask = queue.capacity - 1;
      buffers_.fetch(link, own);
      batch.make_room(count + flying);
      std::uint64_t* const keys = batch.keys.data();
      Arrival* const arrivals = batch.arrivals.data();
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
    if (port.flying == 0) inputs.set_idle(input);
  }
  return count;
}

// Fetches early what collect is about to read of the inputs after this one. On a long link more packets are
// on their way than come in a window.
void Links::fetch(const std::vector<std::uint32_t>& links, const std::vector<std::uint32_t>& inputs,
                  std::size_t at) const {
  constexpr std::uint32_t kMost = 16, kEachLine = 64 / sizeof(Packet);
  if (at + 3 < inputs.size()) {
    const Port& port = ports_[inbound_[links[inputs[at + 3]]]];
    __builtin_prefetch(&port);
    __builtin_prefetch(&port.queues[0]);
  }
  if (at + 1 < inputs.size()) {
    const Port& port = ports_[inbound_[links[inputs[at + 1]]]];
    for (unsigned left = port.flying; left != 0; left &= left - 1) {
      const PriorityQueue& queue = port.queues[static_cast<unsigned>(std::countr_zero(left))];
      const std::uint32_t count = std::min(queue.flying, kMost);
      for (std::uint32_t place = 0; place < count; place += kEachLine) queue.fetch(place);
    }
  }
}

}  // namespace genie::twin
