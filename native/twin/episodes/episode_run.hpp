// One simulator's run with episodes: starts make components, which are forecast.
#pragma once
#include <cstdint>
#include <vector>

#include "core/flat_map.hpp"
#include "twin/components/claims.hpp"
#include "twin/components/component_services.hpp"
#include "twin/components/components.hpp"
#include "twin/episodes/expected_starts.hpp"
#include "twin/episodes/forecasts.hpp"
#include "twin/memo/episode_memo.hpp"

namespace genie::twin {

class EpisodeRun {
 public:
  EpisodeRun(EpisodeMemo& memo, Simulator& simulator, std::uint64_t checkpoint_packets);
  EpisodeRun(const EpisodeRun&) = delete;  // its parts refer to each other
  EpisodeRun& operator=(const EpisodeRun&) = delete;

  // Ranks have begun what they hold or tell. In the order of time.
  void began(const std::vector<RankStart>& starts, TimePs now);
  void finish_until(TimePs time) { forecasts_.finish_until(time); }
  // Packets of the simulator's own must not depend on those that were played apart.
  void check_live();

 private:
  void note_live(const RankStart& start);
  void begin(const RankStart& start);
  Act& act_of(const RankStart& start);
  bool takes_expected(const RankStart& start);
  void join(const Act& act, const std::vector<std::uint32_t>& cables, TimePs time);

  EpisodeMemo* memo_;
  Simulator* simulator_;
  ComponentServices services_;
  Claims claims_;
  Components components_;
  ExpectedStarts expected_;
  Forecasts forecasts_;
  FlatMap<std::uint32_t> told_;  // (group, tag) -> members that have begun
  bool has_live_ = false;        // packets of its own
};

}  // namespace genie::twin
