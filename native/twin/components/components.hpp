// The components of a simulator's run, with their acts and the forecasts that ranks have of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/flat_map.hpp"
#include "core/index.hpp"
#include "twin/components/claims.hpp"
#include "twin/components/component.hpp"
#include "twin/memo/play_costs.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

class Components {
 public:
  struct InProgress {
    Act* act;
    std::size_t member;
  };

  Components(std::size_t ranks, const EpisodePlaces& places, Claims& claims, PlayCosts& costs,
             Simulator& simulator)
      : places_(&places), claims_(&claims), costs_(&costs), simulator_(&simulator), in_progress_(ranks) {}

  const std::vector<std::unique_ptr<Component>>& all() const { return components_; }
  Component& make();
  // One becomes part of another.
  void absorb(Component& into, Component& other);
  // Nothing of it is left.
  void release(Component& component);

  // `key`: of a collective. One that is expected again has the tag that it had.
  Act& add_act(Component& component, const EpisodePlace& place, Kind kind, std::uint64_t key = 0);
  // A collective that not all members have begun; nullptr: there is none.
  Act* find(std::uint64_t key) const {
    Act* const* const known = act_of_.find(key);
    return known == nullptr ? nullptr : *known;
  }
  // All members have begun: another collective may have its key.
  void forget_key(const Act& act);
  void set_begun(Act& act, std::size_t member);
  // Takes expected members out. False where nothing was expected.
  bool withdraw(Component& component);
  // Collectives of a rank that have begun.
  const std::vector<InProgress>& in_progress(std::int32_t rank) const { return in_progress_[index(rank)]; }
  std::uint64_t make_sequence() { return ++latest_sequence_; }
  std::uint64_t latest_sequence() const { return latest_sequence_; }

  void set_changed(Component& component);
  // All that have changed since their forecast, and others that had. Those that are put back come again.
  std::vector<Component*> take_changed() { return std::exchange(changed_, {}); }
  void put_back(Component& component) { changed_.push_back(&component); }
  // Ranks hear of none of its ends any more.
  void take_back(Component& component);
  void give_back_rooms(Component& component);

 private:
  void keep_former(Component& component) const;

  const EpisodePlaces* places_;
  Claims* claims_;
  PlayCosts* costs_;
  Simulator* simulator_;
  std::vector<std::unique_ptr<Component>> components_;
  std::vector<Component*> free_, changed_;
  FlatMap<Act*> act_of_;           // (group, tag) -> collective that not all members have begun
  FlatMap<std::uint32_t> tag_of_;  // (group, tag) of a collective in progress -> its act's tag
  std::vector<std::vector<InProgress>> in_progress_;  // by rank
  std::uint64_t latest_sequence_ = 0, latest_number_ = 0;
  std::uint32_t latest_tag_ = 0;
};

}  // namespace genie::twin
