// Plays of components: they go so far at a time, and leave checkpoints.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "twin/components/components.hpp"
#include "twin/components/past_plays.hpp"
#include "twin/memo/episode_memo.hpp"

namespace genie::twin {

class ComponentPlays {
 public:
  // Checkpoints take up the memory that known episodes leave. `checkpoint_packets`: data packets that a play
  // goes on for at a time, and at the least between two checkpoints.
  ComponentPlays(EpisodeMemo& memo, const ComponentServices& services, const ComponentPlans& plans,
                 const Components& components, const Simulator& simulator, std::uint64_t checkpoint_packets)
      : memo_(&memo),
        plans_(&plans),
        components_(&components),
        simulator_(&simulator),
        past_(memo, services, plans),
        checkpoint_packets_(checkpoint_packets) {}

  // Plays a component that no known episode stands for, from checkpoints where there are some. A checkpoint
  // is at `now`, as starts that join the component come later. `services`: before it.
  // `waiting_plays`: those of all components that wait to go on.
  Episode begin(Component& component, const std::vector<Row>& rows, const InputServices& services, TimePs now,
                std::size_t waiting_plays);
  // Goes on with the play of a component, to its end or by a number of packets: what joins takes the rest
  // back. An interrupt may end either early: ranks may then have to know more.
  Episode go_on(Component& component, TimePs now, std::size_t waiting_plays);

 private:
  void keep_checkpoint(Component& component, TimePs time);
  std::size_t checkpoint_bytes(const Component& left_out) const;

  EpisodeMemo* memo_;
  const ComponentPlans* plans_;
  const Components* components_;
  const Simulator* simulator_;
  PastPlays past_;
  std::uint64_t checkpoint_packets_;
};

}  // namespace genie::twin
