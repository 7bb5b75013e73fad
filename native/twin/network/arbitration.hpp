// Who goes first of packets that reach a switch at one instant.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace genie::twin {

struct alignas(64) Inputs {  // of a switch
  std::vector<std::uint32_t> links;
  std::vector<std::uint64_t> served;  // by input: the clock after its last arrival
  std::vector<std::uint64_t> met;     // and after the last instant at which it came with others
  std::uint64_t clock = 0;            // arrivals ever

  void add(std::uint32_t link) {
    links.push_back(link);
    served.push_back(0);
    met.push_back(0);
  }
  // Equal for those that came together when they came last.
  std::uint64_t meeting(std::uint32_t input) const { return std::max(served[input], met[input]); }
};

struct Contender {  // of one of those that come together: the lowest rank goes first, then the lowest key
  std::uint64_t rank, key;
  friend bool operator<(const Contender& a, const Contender& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.key < b.key;
  }
};

}  // namespace genie::twin
