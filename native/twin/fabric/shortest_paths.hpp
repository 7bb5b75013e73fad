// Shortest paths from all nodes to groups of hosts, and the links that lie on them (equal-cost multipath).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace genie::twin {

// Links of node n on shortest paths to group g: links[start[n * groups + g]] to the one before the next
// start, as numbers of the links that the search was given, ascending.
struct NextHops {
  std::vector<std::int64_t> start;
  std::vector<std::int32_t> links;
};

class ShortestPaths {
 public:
  static constexpr std::int32_t kUnreachable = -1;

  // Link i leads from source[i] to target[i] and counts as length[i] links, 1 or more.
  ShortestPaths(std::int32_t nodes, std::vector<std::int32_t> source, std::vector<std::int32_t> target,
                std::vector<std::int32_t> length);

  // Adds the next group: hosts that hang on these nodes. Each node's distance to the nearest of them, in
  // links.
  std::vector<std::int32_t> add(const std::vector<std::int32_t>& nearest);

  // Of all groups, in the order of `add`.
  NextHops take();

 private:
  void search(const std::vector<std::int32_t>& nearest, std::vector<std::int32_t>& distance);

  std::int32_t nodes_;
  std::vector<std::int32_t> source_, target_, length_;
  std::vector<std::int32_t> arriving_start_, arriving_;  // links by target
  std::vector<std::vector<std::int32_t>> at_distance_;   // nodes to look at, by distance modulo its size
  std::vector<std::int32_t> on_paths_;                   // links, group after group
  std::vector<std::size_t> group_start_ = {0};           // into on_paths_
};

// For each node the number of those that it is joined with, whichever way links lead: 0, 1, ...
std::vector<std::int32_t> components_of(std::int32_t nodes, const std::vector<std::int32_t>& source,
                                        const std::vector<std::int32_t>& target);

}  // namespace genie::twin
