// ECN marking of the ports of switches, as a queue is when a packet leaves it: RED between two thresholds,
// always above the upper one. A draw is a function of the seed, the port and the number of draws before it.
#pragma once
#include <cassert>
#include <cstdint>
#include <vector>

#include "core/fold.hpp"
#include "core/mix.hpp"
#include "twin/fabric/network.hpp"

namespace genie::twin {

class EcnMarker {
 public:
  EcnMarker(const std::vector<EcnProfile>& profiles, std::uint64_t seed)
      : profiles_(&profiles), seed_(seed), states_(profiles.size()) {}

  // True if a packet is marked that leaves `queued_bytes` behind it, more than the port's lower threshold.
  bool mark(std::uint32_t link, std::int64_t queued_bytes) {
    const EcnProfile& profile = (*profiles_)[link];
    assert(profile.minimum_bytes >= 0 && queued_bytes > profile.minimum_bytes);
    State& state = states_[link];
    if (queued_bytes <= profile.maximum_bytes) {
      const std::uint64_t drawn = mixed(seed_ ^ mixed(std::uint64_t{link} << 32 ^ ++state.drawn));
      const double chance = profile.chance_at_maximum *
                            static_cast<double>(queued_bytes - profile.minimum_bytes) /
                            static_cast<double>(profile.maximum_bytes - profile.minimum_bytes);
      if (static_cast<double>(drawn >> 11) * 0x1p-53 >= chance) return false;
    }
    ++state.marked;
    return true;
  }
  std::uint64_t marked(std::uint32_t link) const { return link < states_.size() ? states_[link].marked : 0; }
  bool has_drawn(std::uint32_t link) const { return link < states_.size() && states_[link].drawn > 0; }
  void fold(Fold& fold, std::uint32_t link) {
    static_assert(has_size<State>(16));
    if (link >= states_.size()) return;
    fold.rare(states_[link].drawn);
    fold.total(states_[link].marked);
  }

 private:
  struct State {
    std::uint64_t drawn = 0, marked = 0;
  };
  const std::vector<EcnProfile>* profiles_;  // by link of the network
  std::uint64_t seed_;
  std::vector<State> states_;
};

}  // namespace genie::twin
