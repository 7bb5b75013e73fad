// Knowledge of a job's episodes that outlives its simulators: one that has to begin again knows more than the
// one before.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "twin/memo/episode_job.hpp"
#include "twin/memo/episode_places.hpp"
#include "twin/memo/interrupt.hpp"
#include "twin/memo/kinds.hpp"
#include "twin/memo/known_episodes.hpp"
#include "twin/memo/play_costs.hpp"
#include "twin/memo/refusals.hpp"

namespace genie::twin {

struct EpisodeMemo {
  EpisodeMemo(EpisodeJob own_job, const roce::SpreadConfig& spread, std::uint64_t memory_bytes,
              std::uint64_t free_packets)
      : job(std::move(own_job)),
        kinds(*job.shared, job.plans),
        places(job),
        known(memory_bytes),
        costs({*job.shared, job.plans, job.config->mtu_bytes}, free_packets),
        refusals(kinds, kinds.any_again() ? job.problem(spread) : "no collective comes again") {}
  EpisodeMemo(const EpisodeMemo&) = delete;  // its parts refer to each other
  EpisodeMemo& operator=(const EpisodeMemo&) = delete;

  EpisodeJob job;
  Kinds kinds;
  EpisodePlaces places;
  KnownEpisodes known;
  PlayCosts costs;
  Interrupt interrupt = {};
  Refusals refusals;
};

}  // namespace genie::twin
