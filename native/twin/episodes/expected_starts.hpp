// Starts that a component expects: of a collective that waits for one in progress, or for its slot, at the
// end of that one. That one may be another component's. Episodes have these starts too, so that fewer are
// played. A start that does not come is noticed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <set>
#include <vector>

#include "twin/components/components.hpp"
#include "twin/memo/episode_job.hpp"
#include "twin/memo/kinds.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

class ExpectedStarts {
 public:
  ExpectedStarts(const EpisodeJob& job, const Kinds& kinds, EpisodePlaces& places, Claims& claims,
                 Components& components, Simulator& simulator)
      : job_(&job),
        kinds_(&kinds),
        places_(&places),
        claims_(&claims),
        components_(&components),
        simulator_(&simulator),
        bytes_left_(job.plans.size()) {}

  // Adds the collectives that ranks are expected to begin. All members that may send then must have their
  // cables. One that no member has begun is added if the component has all of its cables, or if all members
  // begin it. Other components may become part of this one.
  void add_to(Component& component, TimePs now);
  // A rank looks at each of these starts, so that one which does not come is noticed. Returns the time after
  // the last.
  TimePs wake_at(Component& component, std::uint32_t forecast);
  // True where an expected member ends less than `lead_ps` after it begins. A start that does not come would
  // be noticed too late: its rank would have heard of the end.
  static bool ends_at_once(const Component& component, TimePs lead_ps);
  // Components of which a start has not come by a time have changed.
  void notice_missing(TimePs time);

 private:
  struct Chain {  // of collectives that a rank begins one after the other
    std::int32_t rank = -1;
    const Act::Member* from = nullptr;  // in progress
    Component* other = nullptr;         // the component of that one; nullptr: the one at hand
    std::vector<std::int32_t> nodes;
    std::vector<std::uint64_t> keys;
  };
  struct Candidate {           // a collective that may be expected
    const Act* act = nullptr;  // nullptr: no member has begun it
    std::size_t members = 0;   // of which it is expected
    bool has_cables = false;   // the component has all that its members may use
    bool are_free = false;     // or could have them
  };
  struct WaitedFor {  // a start, by a forecast
    TimePs time;
    std::uint32_t forecast;
    Act* act;  // while the forecast holds
    std::size_t member;
    friend bool operator>(const WaitedFor& a, const WaitedFor& b) { return a.time > b.time; }
  };

  std::vector<Chain> possible_chains(const Component& component, TimePs now);
  std::set<Component*> others_in_the_way(const Component& component, const std::vector<Chain>& chains,
                                         TimePs now);
  bool may_begin(const Component& component, const Chain& chain, std::size_t at, const Candidate& candidate,
                 TimePs now);
  const EpisodePlace& place_of(const Chain& chain, std::size_t at);
  std::vector<Chain> chains_of(const Component& component);
  Chain chain_from(std::int32_t rank, const Act::Member& own, std::int64_t& bytes_left);
  std::vector<Chain> chains_from_others(const Component& component, TimePs now);
  Chain chain_to(const Component& component, const Act& act, std::size_t member);
  Candidate candidate_of(const Component& component, const Chain& chain, std::size_t at, TimePs now);
  void add(Component& component, const Chain& chain);
  void claim(Component& component, const EpisodePlace& place, std::size_t member);

  const EpisodeJob* job_;
  const Kinds* kinds_;
  EpisodePlaces* places_;
  Claims* claims_;
  Components* components_;
  Simulator* simulator_;
  std::priority_queue<WaitedFor, std::vector<WaitedFor>, std::greater<>> waited_for_;
  // Kept for their memory.
  std::vector<std::int64_t> bytes_left_;  // by rank; 0 for those that are not of the component at hand
  Walker::Following following_;           // of the rank at hand
};

}  // namespace genie::twin
