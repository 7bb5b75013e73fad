// The job whose episodes are played apart: what its simulators have in common.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "roce/queue_pair.hpp"
#include "roce/spread.hpp"
#include "twin/fabric/network.hpp"
#include "walker/plan.hpp"

namespace genie::twin {

struct EpisodeJob {
  EpisodeJob(const Network& own_network, const roce::QueuePairConfig& own_config,
             const SharedPlan& own_shared, std::vector<const RankPlan*> own_plans,
             std::vector<std::int32_t> own_hosts);

  // In the order of their places in it.
  std::span<const std::int32_t> members_of(std::int32_t group) const;
  // The reason why nothing of it is played apart, for its network and configuration; "" where there is none.
  std::string problem(const roce::SpreadConfig& spread) const;

  const Network* network;
  std::shared_ptr<const roce::QueuePairConfig> config;  // with the network's pacing, of all plays
  const SharedPlan* shared;
  std::vector<const RankPlan*> plans;                    // by rank
  std::vector<std::int32_t> host_of_rank, rank_of_host;  // -1: no rank is there
};

}  // namespace genie::twin
