// Numbers of a simulation's parts in another simulation that has them too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace genie::twin {

// By the earlier number. Numbers ascend, as ties go by number. kNone: it is not there. The simulator adds
// queue pairs, and links from hosts to themselves.
struct Renumbering {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::vector<std::int32_t> nodes, ranks;
  std::vector<std::uint32_t> links;  // the network's, then one from each host to itself
  std::vector<std::uint32_t> queue_pairs;
  std::vector<std::vector<std::int32_t>> rows;  // by rank: of its plan's nodes; -1: it has not begun
  // By rank there: another that is taken over has used it later. Empty: there is none.
  std::vector<std::uint8_t> is_earlier = {};

  bool is_latest(std::int32_t rank) const {
    return is_earlier.empty() || is_earlier[static_cast<std::size_t>(rank)] == 0;
  }
};

}  // namespace genie::twin
