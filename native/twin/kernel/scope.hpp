// A part of a simulation: ranks with their queue pairs, and links.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace genie::twin {

struct Scope {
  std::vector<std::uint8_t> ranks, links;  // by number: whether it is part of it

  void add(const Scope& other) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] |= other.ranks[rank];
    for (std::size_t link = 0; link < links.size(); ++link) links[link] |= other.links[link];
  }
  Scope in_both(const Scope& other) const {
    Scope both = *this;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) both.ranks[rank] &= other.ranks[rank];
    for (std::size_t link = 0; link < links.size(); ++link) both.links[link] &= other.links[link];
    return both;
  }
};

}  // namespace genie::twin
