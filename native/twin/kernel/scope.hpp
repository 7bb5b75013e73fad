// A part of a simulation: ranks with their queue pairs, and links.
#pragma once
#include <cstdint>
#include <vector>

namespace genie::twin {

struct Scope {
  std::vector<std::uint8_t> ranks, links;  // by number: whether it is part of it
};

}  // namespace genie::twin
