// Tournament tree: the next event of each of a few sources, and which of them is first. It is a tournament of
// times, in which sources with lower numbers win ties. Setting a time costs one comparison a round. A round
// has half the players of the one before. The sources whose times change all the time have a tournament of
// their own. The many others thus cost them no rounds.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

class TournamentTree {
 public:
  // The times of the first `often` sources change more often than those of the others.
  explicit TournamentTree(std::uint32_t sources = 0, std::uint32_t often = 0)
      : often_(often), often_size_(size_of(often)), others_size_(size_of(sources - often)) {
    nodes_.assign(2 * (std::size_t{often_size_} + others_size_), Node{kNever, 0});
    for (std::uint32_t source = 0; source < sources; ++source) nodes_[place_of(source)].source = source;
  }

  TimePs next_time() const { return next_.time; }  // kNever: none
  std::uint32_t next_source() const { return static_cast<std::uint32_t>(next_.source); }
  TimePs time_of(std::uint32_t source) const { return nodes_[place_of(source)].time; }

  // The source's event is at `time`; kNever: it has none.
  [[gnu::always_inline]] inline void set(std::uint32_t source, TimePs time) {
    assert(place_of(source) < nodes_.size());
    const bool is_often = source < often_;
    Node* const nodes = nodes_.data() + (is_often ? 0 : others_at());
    std::uint64_t at = is_often ? source + often_size_ : source - often_ + others_size_, winner = source;
    nodes[at].time = time;
    while (at > 1) {
      // The one on the left has lower numbers below it.
      const Node& other = nodes[at ^ 1];
      const bool lost = (at & 1) != 0 ? other.time <= time : other.time < time;
      time = lost ? other.time : time;
      winner = lost ? other.source : winner;
      at >>= 1;
      nodes[at].time = time;
      nodes[at].source = winner;
    }
    // Halves of nodes alone are read: a whole one that has just been written in halves comes late.
    const Node& other = is_often ? *others() : nodes_[1];
    const bool lost = is_often ? other.time < time : other.time <= time;
    next_.time = lost ? other.time : time;
    next_.source = lost ? other.source : winner;
  }
  // All events come so much later.
  void move(TimePs by) {
    const auto move_one = [by](TimePs& time) {
      if (time != kNever) time += by;
    };
    for (Node& node : nodes_) move_one(node.time);
    move_one(next_.time);
  }

 private:
  struct Node {
    TimePs time;
    std::uint64_t source;
  };

  static std::uint32_t size_of(std::uint32_t players) { return std::bit_ceil(std::max(players, 1u)); }
  std::uint32_t others_at() const { return 2 * often_size_; }
  std::uint32_t place_of(std::uint32_t source) const {
    return source + (source < often_ ? often_size_ : others_at() + others_size_ - often_);
  }
  const Node* others() const { return nodes_.data() + others_at() + 1; }  // its winner

  Node next_{kNever, 0};  // of both
  std::uint32_t often_, often_size_, others_size_;
  std::vector<Node> nodes_;  // of either tournament: [1] the winner, [size ...) the players
};

}  // namespace genie::twin
