// Circles of ports that wait for each other.
#include <algorithm>

#include "core/index.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

std::vector<std::uint32_t> Links::deadlock() const {
  const auto is_stuck = [&](std::uint32_t link, unsigned priority) {
    return ports_[link].is_paused(priority) && (ports_[link].waiting >> priority & 1) != 0;
  };
  // From a stuck port to those of the next switch in which its packets are stuck.
  const auto waits_for = [&](std::uint32_t link, unsigned priority) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t other : ports_of_node_[index(targets_[link])]) {
      if (!is_stuck(other, priority)) continue;
      const PriorityQueue& queue = ports_[other].queues[priority];
      bool from_link = false;
      for (std::uint32_t place = 0; place < queue.waiting; ++place)
        from_link |= queue.at(queue.flying + place).ingress() == link;
      if (from_link) next.push_back(other);
    }
    return next;
  };
  for (unsigned priority = 0; priority < kPauseClass; ++priority) {
    std::vector<bool> seen(count_, false);
    for (std::uint32_t first = 0; first < count_; ++first) {
      if (seen[first] || !is_stuck(first, priority)) continue;
      std::vector<std::uint32_t> path{first};
      std::vector<std::vector<std::uint32_t>> ahead{waits_for(first, priority)};
      seen[first] = true;
      while (!path.empty()) {
        if (ahead.back().empty()) {
          path.pop_back();
          ahead.pop_back();
          continue;
        }
        const std::uint32_t next = ahead.back().back();
        ahead.back().pop_back();
        const auto known = std::find(path.begin(), path.end(), next);
        if (known != path.end()) return {known, path.end()};
        if (seen[next]) continue;
        seen[next] = true;
        path.push_back(next);
        ahead.push_back(waits_for(next, priority));
      }
    }
  }
  return {};
}

}  // namespace genie::twin
