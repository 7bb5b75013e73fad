// Next hops: the links by which nodes send to groups of hosts. A node treats most groups as the group before.
// So a run of groups is kept only where the node's links change. A table thus grows with what is unlike, not
// with nodes times groups.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/index.hpp"

namespace genie::twin {

struct NextHops {
  // Runs of node n: run_start[n] to run_start[n + 1]. A run begins at group run_group and has the links of
  // row run_row: links[row_start[row]] to the one before the next start.
  std::vector<std::int64_t> run_start;
  std::vector<std::int32_t> run_group, run_row;
  std::vector<std::int64_t> row_start;
  std::vector<std::int32_t> links;

  std::span<const std::int32_t> of(std::int32_t node, std::int32_t group) const {
    assert(index(node) + 1 < run_start.size() && group >= 0);
    const auto first = run_group.begin() + run_start[index(node)],
               last = run_group.begin() + run_start[index(node) + 1];
    const auto run = std::upper_bound(first, last, group);
    if (run == first) return {};
    const std::size_t row = index(run_row[static_cast<std::size_t>(run - run_group.begin() - 1)]);
    return std::span(links).subspan(static_cast<std::size_t>(row_start[row]),
                                    static_cast<std::size_t>(row_start[row + 1] - row_start[row]));
  }
  // No node has a way to any group.
  static NextHops none(std::size_t nodes) {
    return {.run_start = std::vector<std::int64_t>(nodes + 1, 0),
            .run_group = {},
            .run_row = {},
            .row_start = {0},
            .links = {}};
  }
  // The error in the arrays, or "".
  std::string check(std::size_t nodes, std::size_t count_of_links) const {
    const auto fits = [](const std::vector<std::int64_t>& start, std::size_t size) {
      return !start.empty() && start.front() == 0 && start.back() == static_cast<std::int64_t>(size) &&
             std::ranges::is_sorted(start);
    };
    if (run_start.size() != nodes + 1 || !fits(run_start, run_group.size()) ||
        run_group.size() != run_row.size() || !fits(row_start, links.size()))
      return "the network's routes do not fit its nodes";
    for (const std::int32_t row : run_row) {
      if (row < 0 || index(row) + 1 >= row_start.size()) return "a route names no row";
    }
    for (std::size_t node = 0; node < nodes; ++node) {
      if (!std::is_sorted(run_group.begin() + run_start[node], run_group.begin() + run_start[node + 1]))
        return "the network's routes are out of order";
    }
    for (const std::int32_t link : links) {
      if (link < 0 || index(link) >= count_of_links) return "a route names no link";
    }
    return "";
  }
};

}  // namespace genie::twin
