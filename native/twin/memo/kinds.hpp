// Kinds of collectives and messages: those of a kind are all played apart, or none.
#pragma once
#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "walker/plan.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

// The place of the sizes of blocks, which collectives with equal sizes share.
using Kind = std::int64_t;
inline constexpr Kind kMessages = -1;

class Kinds {
 public:
  Kinds(const SharedPlan& shared, const std::vector<const RankPlan*>& plans);

  // Some kind comes more than once.
  bool any_again() const { return any_again_; }
  // Collectives and messages of the job.
  std::uint64_t acts() const { return acts_; }
  // A kind is not played apart from now on.
  void set_live(Kind kind) { live_.insert(kind); }
  // Some kind may still be played apart.
  bool any_left() const {
    return std::ranges::any_of(kinds_, [&](Kind kind) { return !live_.contains(kind); });
  }
  Kind of(const RankPlan& plan, std::int32_t node) const { return plan.bound(node).sizes_start; }
  // Of a rank's bindings; a collective without messages is its own.
  std::vector<Walker::Play> plays_of(const RankPlan& plan) const;

 private:
  bool is_collective(const RankPlan& plan, std::size_t binding) const;
  void find_uneven_groups(const std::vector<const RankPlan*>& plans);
  void count(const std::vector<const RankPlan*>& plans);

  const SharedPlan* shared_;
  std::vector<Kind> kinds_;  // of the job
  std::set<Kind> live_;
  std::vector<std::uint8_t> is_uneven_;  // by group: members have unlike sizes, and so no kind
  bool any_again_ = false;
  std::uint64_t acts_ = 0;
};

}  // namespace genie::twin
