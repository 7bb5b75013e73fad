// Plans and descriptions of components, without times and numbers of the job.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "twin/components/row.hpp"
#include "twin/memo/episode_job.hpp"
#include "twin/memo/known_episodes.hpp"

namespace genie::twin {

class ComponentPlans {
 public:
  ComponentPlans(const EpisodeJob& job, const EpisodePlaces& places) : job_(&job), places_(&places) {}

  // The acts, so that those of components that are alike come in one order; members get their rows.
  static std::vector<Act*> in_order(Component& component);
  static std::vector<Row> rows_of(const std::vector<Act*>& acts);
  // Those that are alike have one description. `services`: before the component.
  void describe(const Component& component, const std::vector<Act*>& acts, const InputServices& services,
                KnownEpisodes::Description& description) const;
  // `rows`: those of an act follow one another. `first`: the start of the component.
  std::shared_ptr<const EpisodePlan> plan_of(const EpisodePlace& place, TimePs first,
                                             const std::vector<Row>& rows) const;

 private:
  std::span<const std::int32_t> members_of(const Act& act) const;
  EpisodePlan::Node node_of(const Row& row, TimePs first, const EpisodePlace& place, EpisodePlan& plan) const;

  const EpisodeJob* job_;
  const EpisodePlaces* places_;
};

}  // namespace genie::twin
