// The plan as Python holds it; the walkers of both worlds keep references into it.
#pragma once
#include <memory>
#include <vector>

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

}  // namespace genie::bindings
