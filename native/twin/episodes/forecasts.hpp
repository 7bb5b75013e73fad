// Forecasts of components: what they come to if nothing joins them, from an episode that is alike. At its end
// a component's results become the simulator's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "twin/components/component_plans.hpp"
#include "twin/components/component_plays.hpp"
#include "twin/components/components.hpp"
#include "twin/episodes/expected_starts.hpp"
#include "twin/memo/episode_memo.hpp"

namespace genie::twin {

class Forecasts {
 public:
  Forecasts(EpisodeMemo& memo, ComponentServices& services, Claims& claims, Components& components,
            ExpectedStarts& expected, Simulator& simulator, std::uint64_t checkpoint_packets)
      : memo_(&memo),
        services_(&services),
        claims_(&claims),
        components_(&components),
        expected_(&expected),
        simulator_(&simulator),
        plans_(memo.job, memo.places),
        plays_(memo, services, plans_, components, simulator, checkpoint_packets) {}

  // Components that have changed are forecast, but for those that may wait.
  void make_due(TimePs now);
  // Components whose forecasts end soon are forecast further, and all that are alike with them.
  void go_on(TimePs now);
  // Results of components that are over by a time become the simulator's.
  void finish_until(TimePs time);

 private:
  struct End {
    TimePs time;
    Component* component;
    std::uint64_t serial;
    friend bool operator>(const End& a, const End& b) { return a.time > b.time; }
  };
  struct HeardEnd {
    std::size_t rank;  // of the component's place
    std::int32_t row;
    const Act* act;
    std::size_t member;
  };

  bool waits(Component& component, TimePs now);
  void forecast(Component& component, TimePs now);
  std::string play(Component& component, TimePs now);
  Episode& episode_of(Component& component, const std::vector<Act*>& acts, TimePs now);
  std::string adopt(Component& component, TimePs now);
  bool takes_ends(Component& component, TimePs now, std::uint32_t forecast);
  void hear(const Act& act, std::size_t member, const Component& component, std::uint32_t forecast);
  void take_rests(Component& component);
  void finish(Component& component);
  void forget_unused();
  bool stop_if_interrupted();
  // Lead: ranks need a forecast this long before an end.
  TimePs lead_ps() const { return 4 * simulator_->window_ps(); }
  // True where ranks need not know more yet.
  bool is_known(const Component& component, const Episode& episode, TimePs now) const {
    return episode.is_whole() || component.known_until_by(episode) - lead_ps() > now;
  }

  EpisodeMemo* memo_;
  ComponentServices* services_;
  Claims* claims_;
  Components* components_;
  ExpectedStarts* expected_;
  Simulator* simulator_;
  ComponentPlans plans_;
  ComponentPlays plays_;
  std::vector<Component*> partly_known_;  // and others that were
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<HeardEnd> heard_;             // of the component at hand
  InputServices before_;                    // services before the component at hand
  KnownEpisodes::Description description_;  // of the component at hand
};

}  // namespace genie::twin
