#include "twin/memo/known_episodes.hpp"

#include <utility>

namespace genie::twin {

KnownEpisodes::Lookup KnownEpisodes::find(const Description& description) {
  const auto [known, is_new] = known_.try_emplace(description);
  Episode& episode = known->second;
  if (is_new) {
    ++distinct_;
    bytes_ += episode.memory_bytes() + memory_of(description);
  }
  return {episode, is_new};
}

void KnownEpisodes::replace(Episode& known, Episode next) {
  bytes_ -= known.memory_bytes();
  if (next.refusal.empty()) {
    known = std::move(next);
  } else {
    known.refusal = std::move(next.refusal);
    known.until = kNever;
  }
  bytes_ += known.memory_bytes();
}

void KnownEpisodes::forget_all_but(const std::set<const Episode*>& used) {
  bytes_ = 0;
  for (auto known = known_.begin(); known != known_.end();) {
    if (used.contains(&known->second)) {
      bytes_ += known->second.memory_bytes() + memory_of(known->first);
      ++known;
    } else {
      known = known_.erase(known);
    }
  }
}

}  // namespace genie::twin
