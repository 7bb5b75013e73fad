// Plays of components: they go so far at a time, and leave checkpoints.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "twin/episodes/episodes.hpp"

namespace genie::twin {
namespace {

constexpr std::size_t kCheckpointsMost = 3;  // of a play
constexpr std::uint64_t kLeastShare = 4;     // of the packets between two: before the first
constexpr std::uint64_t kMostInVain = 4;     // one of so many packets of a job may be played in vain

}  // namespace

std::size_t Episodes::memory_of(const Component::Checkpoint& checkpoint) {
  return checkpoint.play->memory_bytes();
}

// Of all other components.
std::size_t Episodes::checkpoint_bytes(const Component& left_out) const {
  std::size_t bytes = 0;
  for (const std::unique_ptr<Component>& component : components_) {
    if (component.get() == &left_out) continue;
    for (const Component::Source& source : component->sources) {
      for (const Component::Checkpoint& own : source.checkpoints) bytes += memory_of(own);
    }
  }
  return bytes;
}

// Data packets that were played for a component's forecast: at its end they are compared with those that they
// replace.
void Episodes::set_played(Component& component, std::uint64_t packets) {
  standing_packets_ += packets - std::exchange(component.played, packets);
}

// Plays that replace nothing, because something has joined them, cost too much of the job.
bool Episodes::is_too_costly() {
  const std::uint64_t useful = standing_packets_ + report_.packets;
  if (report_.played <= free_packets_ + useful) return false;
  if (most_in_vain_ == 0) most_in_vain_ = std::max(free_packets_, planned_.count() / kMostInVain);
  return report_.played - useful > most_in_vain_;
}

// Plays a component that no known episode stands for, from checkpoints where there are some. A checkpoint is
// at `now`, as starts that join the component come later.
Episode Episodes::play_new(Component& component, const std::vector<Row>& rows, TimePs now) {
  const EpisodePlace& place = *component.place;
  component.play.reset();
  set_played(component, 0);
  const std::vector<EpisodePlay::Past> past = past_of(component, rows);
  component.play = std::make_unique<Component::Play>(places_.network_of(place.alike), config_,
                                                     plan_of(place, component.first, rows), services_, past);
  Component::Play& own = *component.play;
  own.source.tags = tags_of(component);
  report_.resumed += !past.empty();
  report_.joined += past.size() > 1;
  const TimePs from = past.empty() ? 0 : past.front().from->now(), here = now - component.first;
  if (here > from) {
    own.play.run(EpisodePlay::kAll, here);
    if (!past.empty() || own.play.played() >= checkpoint_packets_ / kLeastShare)
      keep_checkpoint(component, here);
  }
  return play_on(component, now);
}

// Goes on with the play of a component, to its end or by a number of packets: what joins takes the rest back.
Episode Episodes::play_on(Component& component, TimePs now) {
  constexpr TimePs kLeastWindows = 64;
  constexpr std::size_t kStoppedMost = 256;  // simulators of plays that are kept
  Component::Play& own = *component.play;
  if (own.play.played() - own.kept >= checkpoint_packets_)
    keep_checkpoint(component, own.play.next_instant());
  const TimePs least = now - component.first + kLeastWindows * simulator_->window_ps();
  const bool may_stop = partly_known_.size() < kStoppedMost;
  bool goes_on = own.play.run(checkpoint_packets_);
  while (goes_on && (own.play.known_until() < least || !may_stop))
    goes_on = own.play.run(checkpoint_packets_);
  own.source.until = latest_sequence_;
  if (!own.source.checkpoints.empty()) component.sources = {own.source};
  const std::uint64_t played = own.play.played() - std::exchange(own.counted, own.play.played());
  report_.played += played;
  set_played(component, component.played + played);
  Episode episode = own.play.result(!goes_on);
  if (!goes_on) component.play.reset();
  return episode;
}

// The latest are kept, in the memory of the oldest.
void Episodes::keep_checkpoint(Component& component, TimePs time) {
  Component::Play& own = *component.play;
  std::vector<Component::Checkpoint>& checkpoints = own.source.checkpoints;
  own.kept = own.play.played();
  const std::size_t each = checkpoints.empty() ? 0 : memory_of(checkpoints.back());
  const std::size_t others = memory_bytes_ + checkpoint_bytes(component);
  if (others + each >= memory_max_bytes_ || !own.play.come_to(time)) return;
  SharedCheckpoint oldest;
  while (!checkpoints.empty() && (checkpoints.size() == kCheckpointsMost ||
                                  others + (checkpoints.size() + 1) * each >= memory_max_bytes_)) {
    oldest = std::move(checkpoints.front().play);
    checkpoints.erase(checkpoints.begin());
    for (Component::Source& source : component.sources)
      std::erase_if(source.checkpoints, [&](const Component::Checkpoint& it) { return it.play == oldest; });
  }
  checkpoints.push_back({own.play.checkpoint(time, std::move(oldest)), component.place, component.first});
}

}  // namespace genie::twin
