// Plays that a component goes on from, once something has joined it: those of its parts.
#pragma once
#include <optional>
#include <vector>

#include "twin/components/component_plans.hpp"
#include "twin/components/component_services.hpp"
#include "twin/components/part.hpp"
#include "twin/memo/episode_memo.hpp"

namespace genie::twin {

class PastPlays {
 public:
  PastPlays(EpisodeMemo& memo, const ComponentServices& services, const ComponentPlans& plans)
      : memo_(&memo), services_(&services), plans_(&plans) {}

  // At the latest valid checkpoint: what its component, and the other parts, have come to by then. Empty:
  // there is none, so that the play begins anew.
  std::vector<EpisodePlay::Past> of(const Component& component, const std::vector<Row>& rows);

 private:
  std::optional<Component::Checkpoint> whole(const Component::Checkpoint& checkpoint);
  static std::vector<Part> parts_at(const Component& component, const std::vector<Row>& rows,
                                    const Component::Checkpoint& checkpoint, const Component::Former& former);
  bool play_parts(const Component& component, std::vector<Part>& parts);
  std::optional<Component::Checkpoint> play_alone(const Component& component, const Part& part,
                                                  const std::vector<const Part*>& others, TimePs until);

  EpisodeMemo* memo_;
  const ComponentServices* services_;
  const ComponentPlans* plans_;
};

}  // namespace genie::twin
