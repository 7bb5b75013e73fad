#include "twin/fabric/shortest_paths.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace genie::twin {

ShortestPaths::ShortestPaths(std::int32_t nodes, std::vector<std::int32_t> source,
                             std::vector<std::int32_t> target, std::vector<std::int32_t> length)
    : nodes_(nodes), source_(std::move(source)), target_(std::move(target)), length_(std::move(length)) {
  arriving_start_.assign(static_cast<std::size_t>(nodes) + 1, 0);
  for (const std::int32_t node : target_) ++arriving_start_[node + 1];
  for (std::int32_t node = 0; node < nodes; ++node) arriving_start_[node + 1] += arriving_start_[node];
  arriving_.resize(target_.size());
  std::vector<std::int32_t> next(arriving_start_.begin(), arriving_start_.end() - 1);
  for (std::size_t link = 0; link < target_.size(); ++link)
    arriving_[next[target_[link]]++] = static_cast<std::int32_t>(link);
  const auto longest = std::max_element(length_.begin(), length_.end());
  at_distance_.resize(longest == length_.end() ? 2 : static_cast<std::size_t>(*longest) + 1);
}

// Dijkstra's search with a bucket for each distance that can be under way: a link leads no further than the
// longest.
void ShortestPaths::search(const std::vector<std::int32_t>& nearest, std::vector<std::int32_t>& distance) {
  std::size_t waiting = 0;
  const auto reach = [&](std::int32_t node, std::int32_t at) {
    if (distance[node] != kUnreachable && distance[node] <= at) return;
    distance[node] = at;
    at_distance_[static_cast<std::size_t>(at) % at_distance_.size()].push_back(node);
    ++waiting;
  };
  for (const std::int32_t node : nearest) reach(node, 0);
  for (std::int32_t at = 0; waiting > 0; ++at) {
    std::vector<std::int32_t>& bucket = at_distance_[static_cast<std::size_t>(at) % at_distance_.size()];
    waiting -= bucket.size();
    for (const std::int32_t node : bucket) {
      if (distance[node] != at) continue;  // a shorter path has been found since
      for (std::int32_t place = arriving_start_[node]; place < arriving_start_[node + 1]; ++place) {
        const std::int32_t link = arriving_[place];
        reach(source_[link], at + length_[link]);
      }
    }
    bucket.clear();
  }
}

std::vector<std::int32_t> ShortestPaths::add(const std::vector<std::int32_t>& nearest) {
  std::vector<std::int32_t> distance(static_cast<std::size_t>(nodes_), kUnreachable);
  search(nearest, distance);
  for (std::size_t link = 0; link < source_.size(); ++link) {
    const std::int32_t after = distance[target_[link]];
    if (after >= 0 && after + length_[link] == distance[source_[link]])
      on_paths_.push_back(static_cast<std::int32_t>(link));
  }
  group_start_.push_back(on_paths_.size());
  return distance;
}

NextHops ShortestPaths::take() {
  const std::size_t groups = group_start_.size() - 1;
  NextHops hops;
  hops.start.assign(static_cast<std::size_t>(nodes_) * groups + 1, 0);
  const auto for_each = [&](auto&& use) {
    for (std::size_t group = 0; group < groups; ++group) {
      for (std::size_t place = group_start_[group]; place < group_start_[group + 1]; ++place) {
        const std::int32_t link = on_paths_[place];
        use(static_cast<std::size_t>(source_[link]) * groups + group, link);
      }
    }
  };
  for_each([&](std::size_t row, std::int32_t) { ++hops.start[row + 1]; });
  for (std::size_t row = 1; row < hops.start.size(); ++row) hops.start[row] += hops.start[row - 1];
  hops.links.resize(on_paths_.size());
  // A row's start moves to its end while it is filled, and is moved back.
  for_each([&](std::size_t row, std::int32_t link) { hops.links[hops.start[row]++] = link; });
  for (std::size_t row = hops.start.size() - 1; row > 0; --row) hops.start[row] = hops.start[row - 1];
  hops.start[0] = 0;
  on_paths_ = {};
  group_start_ = {0};
  return hops;
}

std::vector<std::int32_t> components_of(std::int32_t nodes, const std::vector<std::int32_t>& source,
                                        const std::vector<std::int32_t>& target) {
  std::vector<std::int32_t> above(static_cast<std::size_t>(nodes));
  std::iota(above.begin(), above.end(), 0);
  const auto top = [&above](std::int32_t node) {
    while (above[node] != node) node = above[node] = above[above[node]];
    return node;
  };
  for (std::size_t link = 0; link < source.size(); ++link) {
    const std::int32_t a = top(source[link]), b = top(target[link]);
    above[std::max(a, b)] = std::min(a, b);
  }
  // The first node of each is its top: numbers follow in the order of nodes.
  std::vector<std::int32_t> number(above.size());
  std::int32_t next = 0;
  for (std::int32_t node = 0; node < nodes; ++node) {
    const std::int32_t first = top(node);
    number[node] = first == node ? next++ : number[first];
  }
  return number;
}

}  // namespace genie::twin
