// Shortest paths from all nodes to groups of hosts, and the links that lie on them (equal-cost multipath).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "twin/fabric/next_hops.hpp"

namespace genie::twin {

class ShortestPaths {
 public:
  static constexpr std::int32_t kUnreachable = -1;

  // Link i leads from source[i] to target[i] and counts as length[i] links, 1 or more.
  ShortestPaths(std::int32_t nodes, std::vector<std::int32_t> source, std::vector<std::int32_t> target,
                std::vector<std::int32_t> length);

  // Adds the next group: hosts that hang on these nodes. Each node's distance to the nearest of them, in
  // links.
  std::vector<std::int32_t> add(const std::vector<std::int32_t>& nearest);

  // Of all groups, in the order of `add`; links ascend, and have the numbers that the search was given.
  NextHops take();

 private:
  void add_run(std::int32_t node, const std::vector<std::int32_t>& links);
  void search(const std::vector<std::int32_t>& nearest, std::vector<std::int32_t>& distance);

  std::int32_t nodes_;
  std::vector<std::int32_t> source_, target_, length_;
  std::vector<std::int32_t> arriving_start_, arriving_;  // links by target
  std::vector<std::vector<std::int32_t>> at_distance_;   // nodes to look at, by distance modulo its size
  std::vector<std::int32_t> leaving_start_, leaving_;    // links by source
  std::int32_t groups_ = 0;
  struct Run {
    std::int32_t group, row;
  };
  std::vector<std::vector<Run>> runs_;                   // by node
  std::vector<std::vector<std::int32_t>> rows_of_node_;  // numbers of rows
  std::vector<std::vector<std::int32_t>> rows_;          // links
};

// For each node the number of those that it is joined with, whichever way links lead: 0, 1, ...
std::vector<std::int32_t> components_of(std::int32_t nodes, const std::vector<std::int32_t>& source,
                                        const std::vector<std::int32_t>& target);

}  // namespace genie::twin
