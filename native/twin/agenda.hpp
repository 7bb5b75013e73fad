// The next event of each of a few sources, and which of them is first: a tournament of times, in which
// sources with lower numbers win ties. Setting a time costs one comparison a round; a round has half the
// players of the one before.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

class Agenda {
 public:
  explicit Agenda(std::uint32_t sources = 0) { resize(sources); }

  // Forgets all events.
  void resize(std::uint32_t sources) {
    size_ = std::bit_ceil(sources < 2 ? 2u : sources);
    nodes_.assign(2 * std::size_t{size_}, Node{kNever, 0});
    for (std::uint32_t source = 0; source < size_; ++source) nodes_[size_ + source].source = source;
    for (std::uint32_t at = size_ - 1; at > 0; --at) nodes_[at] = nodes_[2 * std::size_t{at}];
  }

  TimePs next_time() const { return nodes_[1].time; }  // kNever: none
  std::uint32_t next_source() const { return static_cast<std::uint32_t>(nodes_[1].source); }
  TimePs time_of(std::uint32_t source) const { return nodes_[size_ + source].time; }

  // The source's event is at `time`; kNever: it has none.
  void set(std::uint32_t source, TimePs time) {
    Node* const nodes = nodes_.data();
    std::uint64_t at = size_ + source, winner = source;
    nodes[at].time = time;
    do {
      // The one on the left has lower numbers below it.
      const Node other = nodes[at ^ 1];
      const bool lost = (at & 1) != 0 ? other.time <= time : other.time < time;
      time = lost ? other.time : time;
      winner = lost ? other.source : winner;
      at >>= 1;
      nodes[at] = {time, winner};
    } while (at > 1);
  }

 private:
  struct Node {
    TimePs time;
    std::uint64_t source;
  };

  std::uint32_t size_ = 0;
  std::vector<Node> nodes_;  // [1] the winner of all, [size_ + source] the players
};

}  // namespace genie::twin
