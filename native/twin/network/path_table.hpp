// Paths of queue pairs as rows of links. A packet's route is the place of its next link.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "twin/kernel/huge_pages.hpp"

namespace genie::twin {

class PathTable {
 public:
  // The place of the path's first link.
  std::uint32_t add(const std::vector<std::uint32_t>& path) {
    const auto first = static_cast<std::uint32_t>(links_.size());
    links_.insert(links_.end(), path.begin(), path.end());
    return first;
  }
  std::uint32_t operator[](std::uint32_t route) const {
    assert(route < links_.size());
    return links_[route];
  }
  // Of two paths to one host.
  bool is_at(std::uint32_t route, const std::vector<std::uint32_t>& path) const {
    return std::equal(path.begin(), path.end(), links_.begin() + route);
  }

 private:
  std::vector<std::uint32_t, HugeAllocator<std::uint32_t>> links_;
};

}  // namespace genie::twin
