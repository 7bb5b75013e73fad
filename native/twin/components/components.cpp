#include "twin/components/components.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/clear_to_send.hpp"
#include "core/index.hpp"

namespace genie::twin {

Component& Components::make() {
  if (free_.empty()) {
    components_.push_back(std::make_unique<Component>());
    free_.push_back(components_.back().get());
  }
  Component& own = *free_.back();
  free_.pop_back();
  own.numbers = {++latest_number_};
  return own;
}

void Components::absorb(Component& into, Component& other) {
  if (!into.formers.empty() || !other.formers.empty()) {
    keep_former(into);
    keep_former(other);
  }
  for (std::unique_ptr<Act>& act : other.acts) {
    claims_->hand_over(act->place->cables, other, into);
    act->component = &into;
    into.acts.push_back(std::move(act));
  }
  into.first = std::min(into.first, other.first);
  into.numbers.insert(into.numbers.end(), other.numbers.begin(), other.numbers.end());
  into.entries.insert(into.entries.end(), other.entries.begin(), other.entries.end());
  into.must_forecast |= other.must_forecast;
  into.forecasts.insert(into.forecasts.end(), other.forecasts.begin(), other.forecasts.end());
  into.known_until = std::min(into.known_until, other.known_until);
  into.claimed_places.insert(into.claimed_places.end(), other.claimed_places.begin(),
                             other.claimed_places.end());
  for (const std::uint32_t place : other.claimed_places)
    claims_->hand_over(places_->at(place).cables, other, into);
  into.rooms.insert(into.rooms.end(), other.rooms.begin(), other.rooms.end());
  std::ranges::move(other.formers, std::back_inserter(into.formers));
  release(other);
}

void Components::release(Component& component) {
  for (const std::unique_ptr<Act>& act : component.acts) {
    if (act == nullptr) continue;  // another component has it now
    for (const std::int32_t rank : act->place->ranks)
      std::erase_if(in_progress_[index(rank)], [&](const InProgress& it) { return it.act == act.get(); });
  }
  costs_->change_standing(std::exchange(component.played, 0), 0);
  const std::uint64_t serial = component.serial + 1;
  component = Component{};
  component.serial = serial;
  free_.push_back(&component);
}

Act& Components::add_act(Component& component, const EpisodePlace& place, Kind kind, std::uint64_t key) {
  constexpr std::uint32_t kTagsOfAct = 256;  // channels add to them
  const bool is_collective = kind != kMessages;
  auto act = std::make_unique<Act>();
  Act& own = *act;
  own.place = &place;
  own.kind = kind;
  own.key = key;
  std::uint32_t& known = is_collective ? tag_of_[key] : own.tag;
  if (known == 0) {
    latest_tag_ = (latest_tag_ + kTagsOfAct) & (kCreditTag - 1);
    known = latest_tag_ = std::max(latest_tag_, kTagsOfAct);
  }
  own.tag = known;
  if (is_collective) act_of_[key] = &own;
  own.members.resize(place.ranks.size());
  own.component = &component;
  own.component->acts.push_back(std::move(act));
  return own;
}

void Components::forget_key(const Act& act) {
  act_of_.erase(act.key);
  tag_of_.erase(act.key);
}

void Components::set_begun(Act& act, std::size_t member) {
  act.members[member].sequence = ++latest_sequence_;
  ++act.begun;
  if (!act.is_message()) in_progress_[index(act.place->ranks[member])].push_back({&act, member});
}

bool Components::withdraw(Component& component) {
  bool any = false;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (Act::Member& member : act->members) {
      if (!member.is_expected) continue;
      member = Act::Member{};
      any = true;
    }
    act->expected = 0;
    if (act->begun == 0 && !act->is_message()) act_of_.erase(act->key);
  }
  std::erase_if(component.acts, [](const auto& act) { return act->begun == 0 && !act->is_message(); });
  return any;
}

void Components::set_changed(Component& component) {
  component.unfinished.reset();
  if (!std::exchange(component.is_changed, true)) changed_.push_back(&component);
}

void Components::take_back(Component& component) {
  for (const std::uint32_t forecast : component.forecasts) simulator_->hosts().ranks().take_back(forecast);
  component.forecasts.clear();
  give_back_rooms(component);
}

void Components::give_back_rooms(Component& component) {
  for (const auto& [node, bytes] : component.rooms) simulator_->links().buffers().give_back(node, bytes);
  component.rooms.clear();
}

// The component so far, where it is not of several parts.
void Components::keep_former(Component& component) const {
  if (component.formers.empty())
    component.formers.push_back({.tags = component.tags(), .until = latest_sequence_, .checkpoints = {}});
  if (component.formers.size() > 1) return;
  component.formers.front().numbers = component.numbers;
  component.formers.front().entries = component.entries;
}

}  // namespace genie::twin
