// Links that packets have passed in a simulator of their own, and links that go on from the state of others.
#include <algorithm>
#include <cassert>

#include "twin/network/links.hpp"

namespace genie::twin {

void Links::add_played(std::uint32_t link, const LinkCounters& counters) {
  Port& port = ports_[link];
  port.packets += counters.packets;
  port.bytes += counters.bytes;
  port.longest_bytes = std::max(port.longest_bytes, counters.longest_queue_bytes);
}

bool Links::has_packets_of(std::uint32_t link, std::uint32_t one, std::uint32_t other) const {
  for (const PriorityQueue& queue : ports_[link].queues) {
    for (std::uint32_t place = 0; place < queue.flying + queue.waiting; ++place) {
      const std::uint32_t own = queue.at(place).connection;
      if (own == one || own == other) return true;
    }
  }
  return false;
}

bool Links::has_doubtful_turn() const {
  return std::ranges::any_of(batches_, [](const ArrivalBatch& batch) { return batch.has_doubtful_turn; });
}

bool Links::has_drawn_turn() const {
  return std::ranges::any_of(batches_, [](const ArrivalBatch& batch) { return batch.has_drawn; });
}

Links::State Links::state() const {
  State state{.targets = targets_,
              .ports = {},
              .packets = {},
              .skipped_bytes = {},
              .arrivals = {},
              .buffers = buffers_,
              .inputs = {}};
  keep(state);
  return state;
}

void Links::keep(State& state) const {
  assert(state.targets == targets_);
  state.ports.assign(ports_.begin(), ports_.end());
  state.packets.clear();
  state.skipped_bytes = skipped_bytes_;
  state.arrivals.assign(count_, kNever);
  state.buffers = buffers_;
  state.inputs = inputs_;
  for (std::uint32_t link = 0; link < count_; ++link) {
    const bool is_cable = link < static_cast<std::uint32_t>(network_->links());
    if (is_cable && targets_[link] < network_->hosts) state.arrivals[link] = schedule_->time_of(link);
    for (const PriorityQueue& queue : ports_[link].queues) {
      for (std::uint32_t place = 0; place < queue.flying + queue.waiting; ++place)
        state.packets.push_back(queue.at(place));
    }
  }
}

bool Links::State::is_used(std::uint32_t link) const {
  return ports[link].packets > 0 || ports[link].waiting != 0;
}

TimePs Links::State::served_at(std::uint32_t link) const {
  return ports[link].is(Port::kToSwitch) ? inputs.service_of(link).time : InputOrder::kLongAgo;
}

// Nothing of them is random, paused or limited by tokens; see EpisodeJob::problem.
void Links::take_over_ports(const State& earlier, const Renumbering& to,
                            const std::function<Packet(const Packet&)>& renumbered) {
  auto packet = earlier.packets.begin();
  for (std::uint32_t link = 0; link < earlier.ports.size(); ++link) {
    if (!earlier.is_used(link)) continue;
    const std::uint32_t number = to.links[link];
    const Port& from = earlier.ports[link];
    Port& own = ports_[number];
    assert(from.paused == 0 && (is_empty(number) || (from.flying == 0 && from.waiting == 0)));
    own.free = std::max(own.free, from.free);
    own.packets += from.packets;
    own.bytes += from.bytes;
    own.flying |= from.flying;
    if (from.flying != 0 && own.is(Port::kToSwitch)) inputs_.set_busy(own.target_process, number);
    own.waiting |= from.waiting;
    own.waiting_bytes += from.waiting_bytes;
    own.longest_bytes = std::max(own.longest_bytes, from.longest_bytes);
    for (std::size_t priority = 0; priority < kClasses; ++priority) {
      const PriorityQueue& before = from.queues[priority];
      PriorityQueue& queue = own.queues[priority];
      for (std::uint32_t place = 0; place < before.flying + before.waiting; ++place) {
        Packet& next = append(own, queue, renumbered(*packet++));
        const bool is_flying = place < before.flying;
        if (!is_flying) next.set_ingress(to.links[next.ingress()]);
        ++(is_flying ? queue.flying : queue.waiting);
      }
      queue.waiting_bytes += before.waiting_bytes;
    }
    if (from.is(Port::kListed) && !own.is(Port::kListed)) {
      own.set(Port::kListed);
      waiting_[own.process].push_back(number);
    }
    skipped_bytes_[number] += earlier.skipped_bytes[link];
    buffers_.take_over_ingress(earlier.buffers, link, number);
    if (earlier.arrivals[link] != kNever) schedule_->set(number, earlier.arrivals[link]);
  }
  assert(packet == earlier.packets.end());
}

void Links::take_over(const State& earlier, const Renumbering& to, bool is_alone,
                      const std::function<Packet(const Packet&)>& renumbered) {
  take_over_ports(earlier, to, renumbered);
  take_over_services(earlier, to, is_alone);
  for (std::size_t node = 0; node < to.nodes.size(); ++node)
    buffers_.take_over_node(earlier.buffers, static_cast<std::int32_t>(node), to.nodes[node]);
}

void Links::restore(const State& earlier) {
  Renumbering same;
  for (std::uint32_t link = 0; link < count_; ++link) same.links.push_back(link);
  take_over_ports(earlier, same, [](const Packet& packet) { return packet; });
  buffers_ = earlier.buffers;
  inputs_ = earlier.inputs;
}

void Links::take_over_services(const State& earlier, const Renumbering& to, bool is_alone) {
  inputs_.take_over(earlier.inputs, to, [&](std::uint32_t link) { return earlier.is_used(link); }, is_alone);
}

}  // namespace genie::twin
