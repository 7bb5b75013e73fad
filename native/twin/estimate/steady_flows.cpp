#include "twin/estimate/steady_flows.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>

#include "core/mix.hpp"
#include "twin/estimate/advance.hpp"

namespace genie::twin {

std::vector<Flow> SteadyFlows::flows(TimePs now) const {
  std::vector<Flow> found;
  const QueuePairs& queue_pairs = simulator_.hosts().queue_pairs();
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    const HostQueuePair& own = queue_pairs[id];
    const auto progress = own.queue_pair.progress();
    if (progress.messages == 0) continue;
    const std::int64_t allowed_bps = own.queue_pair.allowed_bps(now);
    found.push_back({.queue_pair = id,
                     .rank = own.rank,
                     .peer = own.peer_rank,
                     .messages = progress.messages,
                     .unacked_psn = progress.unacked_psn,
                     .end_psn = progress.end_psn,
                     .packets = progress.packets,
                     .left = progress.left,
                     .allowed_bps = allowed_bps == congestion::Controller::kUnlimited ? -1 : allowed_bps});
  }
  return found;
}

// Colour refinement: flows and links are told apart by what they are. Then they are told apart again and
// again by what they meet, as many times as a path has links.
std::vector<std::uint32_t> SteadyFlows::classes(const std::vector<std::uint32_t>& queue_pairs) const {
  const Links& links = simulator_.links();
  const QueuePairs& all = simulator_.hosts().queue_pairs();
  struct Path {
    std::vector<std::uint32_t> links;
    std::size_t forth = 0;  // of them, those of data
  };
  std::vector<Path> paths;
  std::size_t longest = 0;
  for (const std::uint32_t id : queue_pairs) {
    Path path;
    for (const std::uint32_t end : {id, all[id].peer}) {
      const std::vector<std::uint32_t> own = links.path_from(all[end].route);
      path.links.insert(path.links.end(), own.begin(), own.end());
      if (end == id) path.forth = own.size();
    }
    longest = std::max(longest, path.links.size());
    paths.push_back(std::move(path));
  }
  std::vector<std::uint64_t> of_flow(paths.size(), 1);
  std::map<std::uint32_t, std::uint64_t> of_link;
  for (const Path& path : paths) {
    for (const std::uint32_t link : path.links)
      of_link[link] = mixed(static_cast<std::uint64_t>(links.rate_bps(link)) +
                            kGoldenGamma * static_cast<std::uint64_t>(links.delay_ps(link)));
  }
  for (std::size_t turn = 0; turn < longest; ++turn) {
    std::map<std::uint32_t, std::uint64_t> met;  // a sum, so that the order of flows says nothing
    for (std::size_t flow = 0; flow < paths.size(); ++flow) {
      std::uint64_t colour = mixed(of_flow[flow]);
      for (const std::uint32_t link : paths[flow].links)
        colour = mixed(colour * kGoldenGamma + of_link[link]);
      of_flow[flow] = colour;
      for (std::size_t at = 0; at < paths[flow].links.size(); ++at)
        met[paths[flow].links[at]] += mixed(colour + (at < paths[flow].forth ? 1 : 2));
    }
    for (auto& [link, colour] : of_link) colour = mixed(colour * kGoldenGamma + met[link]);
  }
  std::map<std::uint64_t, std::uint32_t> number_of;
  std::vector<std::uint32_t> classes;
  for (const std::uint64_t colour : of_flow)
    classes.push_back(
        number_of.try_emplace(colour, static_cast<std::uint32_t>(number_of.size())).first->second);
  return classes;
}

void SteadyFlows::count(TimePs now, TimePs since) {
  while (!counted_.empty() && counted_.front().at < since) counted_.pop_front();
  Count counted;
  simulator_.fold(counted);
  counted_.push_back({now, counted.take()});
}

TimePs SteadyFlows::horizon() const {
  Count counted;
  simulator_.fold(counted);
  return std::min(counted.horizon(), simulator_.next_change_time());
}

bool SteadyFlows::advance(TimePs now, TimePs by, const std::vector<std::uint32_t>& queue_pairs,
                          const std::vector<std::uint32_t>& packets) {
  assert(queue_pairs.size() == packets.size());
  if (counted_.empty() || counted_.front().at >= now || !simulator_.can_fold()) return false;
  const Counted& first = counted_.front();
  Count counted;
  simulator_.fold(counted);
  const std::vector<std::uint64_t> counters = counted.take();
  if (counters.size() != first.counters.size()) return false;
  std::vector<std::uint32_t> sent(simulator_.hosts().queue_pairs().size(), 0);
  for (std::size_t at = 0; at < packets.size(); ++at) sent[queue_pairs[at]] = packets[at];
  const std::uint64_t before = simulator_.data_packets();
  Advance moved(now, by, sent, first.counters, counters,
                static_cast<double>(by) / static_cast<double>(now - first.at));
  simulator_.fold(moved);
  assert(moved.is_over());
  simulator_.move(by, now + by);
  // Rounded shares of what threads have sent are not the sum of the flows.
  const std::uint64_t all = std::accumulate(packets.begin(), packets.end(), std::uint64_t{0});
  simulator_.add_data_packets(before + all - simulator_.data_packets());
  counted_.clear();
  return true;
}

}  // namespace genie::twin
