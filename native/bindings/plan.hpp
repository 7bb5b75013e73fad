// The plan as Python holds it; the walkers of both worlds keep references into it.
#pragma once
#include <memory>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "walker/walker.hpp"

namespace genie::bindings {

struct Plan {
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  SharedPlan shared;
  std::vector<std::shared_ptr<const NodeTable>> tables;
  std::vector<std::unique_ptr<RankPlan>> ranks;
};

// Records of a walker: three dictionaries of arrays under "nodes", "sends" and "receives".
nb::dict records_of(const Walker& walker);
// By rank, when its last node ended.
template <class Simulator>
auto ends(const Simulator& simulator) {
  std::vector<std::int64_t> ends;
  for (const Walker& walker : simulator.walkers()) ends.push_back(walker.last_end());
  return to_numpy(std::move(ends));
}

}  // namespace genie::bindings
