// All ranks of a plan over a network without delay, rate or loss. This shows how fast the walker is by
// itself, and whether a plan ends at all.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "walker/walker.hpp"

namespace genie {

struct AloneResult {
  std::int64_t steps = 0, messages = 0;  // of collectives; sends, clear-to-sends included
  TimePs end = 0;                        // of the last node
  std::vector<std::string> problems;     // errors or pending operations; empty when all ranks are done
};

// `plans`: of ranks 0, 1, ... in order.
AloneResult walk_alone(const SharedPlan& shared, const std::vector<const RankPlan*>& plans);

}  // namespace genie
