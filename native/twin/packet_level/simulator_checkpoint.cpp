// A simulation's state at an instant, for another that goes on from it.
#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "core/index.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

std::size_t Checkpoint::memory_bytes() const {
  return processes.size() * sizeof(Process) + hosts.memory_bytes() + links.memory_bytes();
}

Checkpoint Simulator::checkpoint(TimePs now, std::optional<Checkpoint> reused) const {
  assert(is_divided() && schedule_.threads() == 1 && network_->changes.empty());
  if (!reused) {
    reused = Checkpoint{.hosts = hosts_.state(), .links = links_.state(), .processes = {}};
  } else {
    hosts_.keep(reused->hosts);
    links_.keep(reused->links);
  }
  reused->now = now;
  reused->processes.clear();
  for (const std::uint32_t process : processes_.of_nodes()) reused->processes.push_back(processes_[process]);
  reused->data_packets = data_packets();
  reused->events = events();
  return *std::move(reused);
}

void Simulator::take_over(const Checkpoint& earlier, Renumbering to, bool is_alone) {
  const auto cables = static_cast<std::uint32_t>(network_->links());
  for (std::size_t host = 0; to.links.size() < earlier.links.targets.size(); ++host)
    to.links.push_back(cables + static_cast<std::uint32_t>(to.nodes[host]));
  QueuePairs& queue_pairs = hosts_.queue_pairs();
  const QueuePairs::State& their_pairs = earlier.hosts.queue_pairs;
  to.queue_pairs = queue_pairs.numbers_of(their_pairs, to);
  hosts_.take_over(earlier.hosts, to);
  links_.take_over(earlier.links, to, is_alone,
                   [&](const Packet& packet) { return queue_pairs.renumbered(packet, their_pairs, to); });
  for (std::size_t node = 0; node < to.nodes.size(); ++node) {
    Process& own = processes_.of(to.nodes[node]);
    const Process& from = earlier.processes[node];
    own.now = std::max(own.now, from.now);
    own.played_at = std::max(own.played_at, from.played_at);
    own.data_packets += from.data_packets;
  }
  standings_.of(0).events += earlier.events;
  has_taken_over_ = true;
}

void Simulator::restore(const Checkpoint& earlier) {
  hosts_.restore(earlier.hosts);
  links_.restore(earlier.links);
  for (std::int32_t node = 0; node < network_->nodes; ++node)
    processes_.of(node) = earlier.processes[index(node)];
  standings_.of(0).events = earlier.events;
  go_on_from(earlier.now);
}

}  // namespace genie::twin
