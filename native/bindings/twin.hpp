// Common inputs of all levels of the twin: the plans and the hosts of the ranks.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/plan.hpp"
#include "twin/fabric/network.hpp"

namespace genie::bindings {

// Of all ranks, in order. Throws std::invalid_argument.
inline std::vector<const RankPlan*> plans_of(const Plan& plan) {
  std::vector<const RankPlan*> plans;
  for (const auto& rank : plan.ranks) {
    if (rank->rank != static_cast<std::int32_t>(plans.size()))
      throw std::invalid_argument("the twin needs the plans of all ranks, in order");
    plans.push_back(rank.get());
  }
  return plans;
}

// By rank. Throws std::invalid_argument.
inline std::vector<std::int32_t> hosts_of(const twin::Network& network, const Plan& plan,
                                          const Column<std::int32_t>& host_of_rank) {
  std::vector<std::int32_t> hosts = to_vector(host_of_rank);
  if (hosts.size() != plan.ranks.size()) throw std::invalid_argument("every rank needs a host");
  for (const std::int32_t host : hosts) {
    if (host < 0 || host >= network.hosts) throw std::invalid_argument("a rank's host is not in the network");
  }
  return hosts;
}

}  // namespace genie::bindings
