#include "twin/fabric/shortest_paths.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {

ShortestPaths::ShortestPaths(std::int32_t nodes, std::vector<std::int32_t> source,
                             std::vector<std::int32_t> target, std::vector<std::int32_t> length)
    : nodes_(nodes), source_(std::move(source)), target_(std::move(target)), length_(std::move(length)) {
  const auto sort_links = [&](const std::vector<std::int32_t>& node_of, std::vector<std::int32_t>& start,
                              std::vector<std::int32_t>& links) {
    start.assign(index(nodes) + 1, 0);
    for (const std::int32_t node : node_of) ++start[index(node) + 1];
    for (std::size_t node = 0; node < index(nodes); ++node) start[node + 1] += start[node];
    links.resize(node_of.size());
    std::vector<std::int32_t> next(start.begin(), start.end() - 1);
    for (std::size_t link = 0; link < node_of.size(); ++link)
      links[index(next[index(node_of[link])]++)] = static_cast<std::int32_t>(link);
  };
  sort_links(target_, arriving_start_, arriving_);
  sort_links(source_, leaving_start_, leaving_);
  runs_.resize(index(nodes));
  rows_of_node_.resize(index(nodes));
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
        assert(length_[link] > 0 && index(length_[link]) < at_distance_.size());
        reach(source_[link], at + length_[link]);
      }
    }
    bucket.clear();
  }
}

std::vector<std::int32_t> ShortestPaths::add(const std::vector<std::int32_t>& nearest) {
  std::vector<std::int32_t> distance(static_cast<std::size_t>(nodes_), kUnreachable);
  search(nearest, distance);
  std::vector<std::int32_t> on_paths;
  for (std::int32_t node = 0; node < nodes_; ++node) {
    on_paths.clear();
    for (std::int32_t place = leaving_start_[node]; place < leaving_start_[node + 1]; ++place) {
      const std::int32_t link = leaving_[place], after = distance[target_[link]];
      if (after >= 0 && after + length_[link] == distance[node]) on_paths.push_back(link);
    }
    add_run(node, on_paths);
  }
  ++groups_;
  return distance;
}

// A run begins where the node's links are not those to the group before.
void ShortestPaths::add_run(std::int32_t node, const std::vector<std::int32_t>& links) {
  std::vector<Run>& runs = runs_[index(node)];
  if (runs.empty() ? links.empty() : rows_[index(runs.back().row)] == links) return;
  std::vector<std::int32_t>& own = rows_of_node_[index(node)];
  const auto known = std::ranges::find_if(own, [&](std::int32_t row) { return rows_[index(row)] == links; });
  if (known != own.end()) {
    runs.push_back({groups_, *known});
    return;
  }
  own.push_back(static_cast<std::int32_t>(rows_.size()));
  runs.push_back({groups_, own.back()});
  rows_.push_back(links);
}

NextHops ShortestPaths::take() {
  NextHops hops;
  hops.run_start.push_back(0);
  for (const std::vector<Run>& runs : runs_) {
    for (const Run& run : runs) {
      hops.run_group.push_back(run.group);
      hops.run_row.push_back(run.row);
    }
    hops.run_start.push_back(static_cast<std::int64_t>(hops.run_group.size()));
  }
  hops.row_start.push_back(0);
  for (const std::vector<std::int32_t>& row : rows_) {
    hops.links.insert(hops.links.end(), row.begin(), row.end());
    hops.row_start.push_back(static_cast<std::int64_t>(hops.links.size()));
  }
  groups_ = 0;
  rows_.clear();
  for (std::vector<Run>& runs : runs_) runs.clear();
  for (std::vector<std::int32_t>& own : rows_of_node_) own.clear();
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
