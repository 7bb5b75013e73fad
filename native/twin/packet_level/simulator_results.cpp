// What a simulation has come to: of all processes together.
#include <algorithm>
#include <utility>

#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

bool Simulator::done() const {
  return !failed_ && std::all_of(walkers_.begin(), walkers_.end(), [](const Walker& w) { return w.done(); });
}

std::vector<std::string> Simulator::problems() const {
  std::vector<std::string> lines;
  for (const Process& process : processes_)
    lines.insert(lines.end(), process.errors.begin(), process.errors.end());
  if (too_long_) lines.emplace_back(kPastLastTime);
  if (!lines.empty()) return lines;
  for (const Walker& walker : walkers_) {
    if (lines.size() >= 8) break;
    if (!walker.done()) {
      for (std::string& line : walker.waiting(2)) lines.push_back(std::move(line));
    }
  }
  return lines;
}

TimePs Simulator::now() const {
  TimePs latest = 0;
  for (const Process& process : processes_) latest = std::max(latest, process.now);
  return latest;
}

std::uint64_t Simulator::events() const {
  std::uint64_t sum = 0;
  for (const Process& process : processes_) sum += process.events;
  return sum;
}

std::uint64_t Simulator::data_packets() const {
  std::uint64_t sum = 0;
  for (const Process& process : processes_) sum += process.data_packets;
  return sum;
}

std::vector<PacketTrace> Simulator::trace() const {
  std::vector<PacketTrace> all;
  for (const Process& process : processes_) all.insert(all.end(), process.trace.begin(), process.trace.end());
  std::stable_sort(all.begin(), all.end(), [](const PacketTrace& a, const PacketTrace& b) {
    return std::pair(a.time, a.source) < std::pair(b.time, b.source);
  });
  return all;
}

std::uint64_t Simulator::dropped() const {
  std::uint64_t sum = 0;
  for (std::uint32_t link = 0; link < links_.links(); ++link) sum += links_.totals(link).dropped;
  return sum;
}

roce::QueuePairCounters Simulator::totals(std::int32_t rank) const {
  roce::QueuePairCounters sum;
  for (const HostQueuePair& connection : queue_pairs_) {
    if (connection.rank == rank) sum += connection.queue_pair.counters();
  }
  return sum;
}

}  // namespace genie::twin
