// Results of a simulation, of all processes together.
#include <algorithm>
#include <utility>

#include "core/index.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

bool Simulator::done() const {
  return !failed_ &&
         std::all_of(walkers().begin(), walkers().end(), [](const Walker& walker) { return walker.done(); });
}

double Simulator::share_done() { return done() ? 1 : planned_.share(data_packets()); }

std::vector<std::string> Simulator::problems() const {
  std::vector<std::string> lines;
  for (const Process& process : processes_)
    lines.insert(lines.end(), process.errors.begin(), process.errors.end());
  if (too_long_) lines.emplace_back(kPastLastTime);
  if (!lines.empty()) return lines;
  for (const Walker& walker : walkers()) {
    if (lines.size() >= 8) break;
    if (!walker.done()) {
      for (std::string& line : walker.waiting(2)) lines.push_back(std::move(line));
    }
  }
  return lines;
}

TimePs Simulator::now() const {
  TimePs latest = played_until_;
  for (const Process& process : processes_) latest = std::max(latest, process.now);
  return latest;
}

std::uint64_t Simulator::data_packets() const {
  std::uint64_t sum = played_packets_;
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

std::vector<std::uint32_t> Simulator::dead_links() const {
  std::vector<std::uint32_t> dead;
  for (const Process& process : processes_) {
    for (const std::uint32_t queue_pair : process.given_up) hosts_.add_dead_links(queue_pair, dead);
  }
  return dead;
}

void Simulator::add_played(std::int32_t rank, const roce::QueuePairCounters& counters,
                           std::uint64_t data_packets) {
  if (played_.empty()) played_.resize(hosts_.ranks().ranks());
  played_[index(rank)] += counters;
  played_packets_ += data_packets;
}

roce::QueuePairCounters Simulator::totals(std::int32_t rank) const {
  const QueuePairs& queue_pairs = hosts_.queue_pairs();
  roce::QueuePairCounters sum = played_.empty() ? roce::QueuePairCounters{} : played_[index(rank)];
  for (std::uint32_t id = queue_pairs.first_of(rank); id < queue_pairs.size() && queue_pairs[id].rank == rank;
       ++id)
    sum += queue_pairs[id].queue_pair.counters();
  return sum;
}

}  // namespace genie::twin
