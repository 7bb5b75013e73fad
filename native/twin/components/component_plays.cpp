#include "twin/components/component_plays.hpp"

#include <algorithm>
#include <utility>

namespace genie::twin {
namespace {

constexpr std::size_t kCheckpointsMost = 3;  // of a play
constexpr std::uint64_t kLeastShare = 4;     // of the packets between two: before the first

}  // namespace

Episode ComponentPlays::begin(Component& component, const std::vector<Row>& rows,
                              const InputServices& services, TimePs now, std::size_t waiting_plays) {
  const EpisodePlace& place = *component.place;
  component.unfinished.reset();
  memo_->costs.change_standing(std::exchange(component.played, 0), 0);
  const std::vector<EpisodePlay::Past> past = past_.of(component, rows);
  component.unfinished = std::make_unique<Component::UnfinishedPlay>(
      memo_->places.network_of(place.alike), memo_->job.config, plans_->plan_of(place, component.first, rows),
      services, past);
  Component::UnfinishedPlay& own = *component.unfinished;
  own.former.tags = component.tags();
  memo_->costs.add_past(past.size());
  const TimePs from = past.empty() ? 0 : past.front().from->now(), here = now - component.first;
  if (here > from) {
    own.play.run(EpisodePlay::kAll, here, memo_->interrupt);
    if (!memo_->interrupt.is_set() &&
        (!past.empty() || own.play.played() >= checkpoint_packets_ / kLeastShare))
      keep_checkpoint(component, here);
  }
  return go_on(component, now, waiting_plays);
}

Episode ComponentPlays::go_on(Component& component, TimePs now, std::size_t waiting_plays) {
  constexpr TimePs kLeastWindows = 64;
  constexpr std::size_t kStoppedMost = 256;  // simulators of plays that are kept
  Component::UnfinishedPlay& own = *component.unfinished;
  if (own.play.played() - own.kept >= checkpoint_packets_)
    keep_checkpoint(component, own.play.next_instant());
  const TimePs least = now - component.first + kLeastWindows * simulator_->window_ps();
  const bool may_stop = waiting_plays < kStoppedMost;
  bool goes_on = own.play.run(checkpoint_packets_, kNever, memo_->interrupt);
  while (goes_on && (own.play.known_until() < least || !may_stop) && !memo_->interrupt.is_set())
    goes_on = own.play.run(checkpoint_packets_, kNever, memo_->interrupt);
  own.former.until = components_->latest_sequence();
  if (!own.former.checkpoints.empty()) component.formers = {own.former};
  const std::uint64_t played = own.play.played() - std::exchange(own.counted, own.play.played());
  memo_->costs.add_played(played);
  memo_->costs.change_standing(component.played, component.played + played);
  component.played += played;
  Episode episode = own.play.result(!goes_on);
  if (!goes_on) component.unfinished.reset();
  return episode;
}

// The latest are kept, in the memory of the oldest.
void ComponentPlays::keep_checkpoint(Component& component, TimePs time) {
  Component::UnfinishedPlay& own = *component.unfinished;
  std::vector<Component::Checkpoint>& checkpoints = own.former.checkpoints;
  own.kept = own.play.played();
  const std::size_t each = checkpoints.empty() ? 0 : checkpoints.back().memory_bytes();
  const std::size_t others = memo_->known.memory_bytes() + checkpoint_bytes(component);
  if (others + each >= memo_->known.most_bytes() || !own.play.come_to(time)) return;
  SharedCheckpoint oldest;
  while (!checkpoints.empty() && (checkpoints.size() == kCheckpointsMost ||
                                  others + (checkpoints.size() + 1) * each >= memo_->known.most_bytes())) {
    oldest = std::move(checkpoints.front().play);
    checkpoints.erase(checkpoints.begin());
    for (Component::Former& former : component.formers)
      std::erase_if(former.checkpoints, [&](const Component::Checkpoint& it) { return it.play == oldest; });
  }
  checkpoints.push_back({own.play.checkpoint(time, std::move(oldest)), component.place, component.first});
}

// Of all other components.
std::size_t ComponentPlays::checkpoint_bytes(const Component& left_out) const {
  std::size_t bytes = 0;
  for (const std::unique_ptr<Component>& component : components_->all()) {
    if (component.get() == &left_out) continue;
    for (const Component::Former& former : component->formers) {
      for (const Component::Checkpoint& own : former.checkpoints) bytes += own.memory_bytes();
    }
  }
  return bytes;
}

}  // namespace genie::twin
