// Plays of components: they go so far at a time, and leave checkpoints.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "twin/components/components.hpp"
#include "twin/components/past_plays.hpp"
#include "twin/memo/known_episodes.hpp"

namespace genie::twin {

class ComponentPlays {
 public:
  // Checkpoints take up the memory that known episodes leave. `checkpoint_packets`: data packets that a play
  // goes on for at a time, and at the least between two checkpoints.
  ComponentPlays(const EpisodeJob& job, EpisodePlaces& places, const KnownEpisodes& known, PlayCosts& costs,
                 Interrupt& interrupt, const ComponentServices& services, const ComponentPlans& plans,
                 const Components& components, const Simulator& simulator, std::uint64_t checkpoint_packets)
      : job_(&job),
        places_(&places),
        known_(&known),
        costs_(&costs),
        interrupt_(&interrupt),
        plans_(&plans),
        components_(&components),
        past_(job, places, costs, interrupt, services, plans),
        simulator_(&simulator),
        checkpoint_packets_(checkpoint_packets) {}

  // Plays a component that no known episode stands for, from checkpoints where there are some. A checkpoint
  // is at `now`, as starts that join the component come later. `services`: before it. `stopped`: plays that
  // wait to go on.
  Episode begin(Component& component, const std::vector<Row>& rows, const InputServices& services, TimePs now,
                std::size_t stopped);
  // Goes on with the play of a component, to its end or by a number of packets: what joins takes the rest
  // back. An interrupt may end either early: ranks may then have to know more.
  Episode go_on(Component& component, TimePs now, std::size_t stopped);

 private:
  void keep_checkpoint(Component& component, TimePs time);
  std::size_t checkpoint_bytes(const Component& left_out) const;

  const EpisodeJob* job_;
  EpisodePlaces* places_;
  const KnownEpisodes* known_;
  PlayCosts* costs_;
  Interrupt* interrupt_;
  const ComponentPlans* plans_;
  const Components* components_;
  PastPlays past_;
  const Simulator* simulator_;
  std::uint64_t checkpoint_packets_;
};

}  // namespace genie::twin
