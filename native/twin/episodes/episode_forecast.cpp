// Forecasts of components: what they come to if nothing joins them, from an episode that is alike.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/index.hpp"
#include "twin/episodes/episodes.hpp"

namespace genie::twin {
namespace {

constexpr std::size_t kMarksMost = 1 << 16;
constexpr std::uint64_t kPlacesBytes = std::uint64_t{1} << 30;

}  // namespace

// The acts, so that those of components that are alike come in one order; rows of their ranks.
std::vector<Episodes::Act*> Episodes::in_order(Component& component) {
  std::vector<Act*> acts;
  for (const std::unique_ptr<Act>& act : component.acts) acts.push_back(act.get());
  const auto key = [](const Act* act) {
    TimePs first = kNever;
    for (const Act::Member& member : act->members) first = std::min(first, member.start);
    return std::tuple(first, act->place->ranks.front(), act->place->ranks.back(), act->members.size(),
                      act->sender, act->kind, act->operation.size_bytes, act->operation.handle);
  };
  if (acts.size() > 1) std::ranges::stable_sort(acts, {}, key);
  struct OfRank {
    std::size_t rank;  // among those of the component
    Act::Member* member;
    auto key() const { return std::pair(rank, member->sequence); }
  };
  std::vector<OfRank> rows;
  rows.reserve(component.place->ranks.size());
  for (Act* act : acts) {
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      Act::Member& member = act->members[at];
      member.row = -1;
      if (member.node < 0 && !act->is_message()) continue;
      rows.push_back({component.place->place_of(act->place->ranks[at]), &member});
    }
  }
  if (!std::ranges::is_sorted(rows, {}, &OfRank::key)) std::ranges::stable_sort(rows, {}, &OfRank::key);
  for (auto first = rows.begin(); first != rows.end();) {
    const auto end =
        std::find_if(first, rows.end(), [&](const OfRank& it) { return it.rank != first->rank; });
    for (auto row = first; row != end; ++row) {
      Act::Member& own = *row->member;
      own.row = static_cast<std::int32_t>(row - first);
      if (own.is_expected) {
        own.after = own.follows == nullptr ? -1 : own.follows->row;
        continue;
      }
      const auto before = std::find_if(first, end, [&](const OfRank& it) {
        return it.member != &own && it.member->end == own.start && own.start != kNever;
      });
      own.after = before == end ? -1 : static_cast<std::int32_t>(before - first);
    }
    first = end;
  }
  return acts;
}

// Of those that are alike and begin at one time all services are at one time. The same link's have the order
// that they had before.
InputOrder::Service Episodes::service_after(const Component& component, std::size_t at) {
  const InputService& own = component.episode->services[at];
  const TimePs time = component.first + own.time;
  if (!own.is_alone) {
    // Places in the list are those of the forecast, unless the episode is known further by now.
    const bool is_same_list = component.known_until == known_until(component, *component.episode);
    return {time, at, own.mark == 0 && is_same_list ? component.mark : ++latest_mark_};
  }
  const std::uint32_t link = component.place->part.links[own.link];
  const auto entry = std::ranges::find(component.entries, link, &Component::Entry::link);
  if (entry == component.entries.end()) return {time, at, ++latest_mark_};
  if (marks_in_step_.size() > kMarksMost) marks_in_step_.clear();  // orders are then less well known
  const auto [known, is_new] = marks_in_step_.try_emplace(
      {component.episode, component.first, own.link, entry->service.time, entry->service.mark}, 0);
  if (is_new) known->second = ++latest_mark_;
  const bool is_first = entry->service.time == InputOrder::kLongAgo;
  return {time, is_first ? link : entry->service.order, known->second};
}

// The services before a component, by the numbers of its part. Those before its first start count by their
// order. `numbers`: of the component, whose own services do not count. Leaves the entries that do.
InputServices Episodes::services_before(std::vector<Component::Entry>& entries,
                                        const std::vector<std::uint64_t>& numbers, TimePs first,
                                        const NetworkPart& part) const {
  using Entry = Component::Entry;
  std::ranges::sort(entries, {}, [](const Entry& it) { return std::pair(it.link, it.service.time); });
  std::size_t kept = 0;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    Entry own = entries[at];
    const bool is_again = kept > 0 && entries[kept - 1].link == own.link;
    const TimePs before = is_again ? entries[kept - 1].service.time : InputOrder::kLongAgo;
    const bool is_own = std::ranges::find(numbers, own.from) != numbers.end();
    if (is_again && (is_own || own.service.time < first || own.service.time == before)) continue;
    own.is_later = is_again;
    entries[kept++] = own;
  }
  entries.resize(kept);
  std::ranges::sort(entries, {}, [&](const Entry& it) {
    return std::tuple(simulator_->links().target_of(it.link), it.service.time, it.service.mark,
                      it.service.order, it.link);
  });
  InputServices services;
  services.reserve(entries.size());
  TimePs place = -static_cast<TimePs>(entries.size()) - 1;
  std::uint32_t mark = 0;
  const auto target_of = [&](const Entry& own) { return simulator_->links().target_of(own.link); };
  for (auto own = entries.begin(); own != entries.end();) {
    // Of those together the order is known within a mark. One mark before the episode is as good as times.
    const auto end = std::find_if(own, entries.end(), [&](const Entry& it) {
      return target_of(it) != target_of(*own) || it.service.time != own->service.time;
    });
    const bool is_before = own->service.time < first;
    const bool is_in_order = is_before && (own->service.time == InputOrder::kLongAgo ||
                                           own->service.mark == std::prev(end)->service.mark);
    if (is_before && !is_in_order) ++place;
    for (auto before = own; own != end; before = own++) {
      if (before == own || before->service.mark != own->service.mark) ++mark;
      if (is_in_order) ++place;
      services.push_back({.link = part.link(own->link),
                          .time = is_before ? place : own->service.time - first,
                          .mark = is_in_order ? 0 : mark,
                          .is_later = own->is_later});
    }
  }
  return services;
}

void Episodes::forget_unused() {
  std::set<const Episode*> used;
  for (const std::unique_ptr<Component>& component : components_) used.insert(component->episode);
  marks_in_step_.clear();
  memory_bytes_ = 0;
  for (auto known = known_.begin(); known != known_.end();) {
    if (used.contains(&known->second)) {
      memory_bytes_ += known->second.memory_bytes() + known->first.size() * sizeof(known->first.front());
      ++known;
    } else {
      known = known_.erase(known);
    }
  }
}

TimePs Episodes::known_until(const Component& component, const Episode& episode) {
  return episode.is_whole() ? kNever : component.first + episode.until;
}

// True where ranks need not know more yet.
bool Episodes::is_known(const Component& component, const Episode& episode, TimePs now) const {
  return episode.is_whole() || known_until(component, episode) - lead_ps() > now;
}

// Others may refer to what was known before.
void Episodes::replace(Episode& known, Episode next) {
  memory_bytes_ -= known.memory_bytes();
  if (next.refusal.empty()) {
    known = std::move(next);
  } else {
    known.refusal = std::move(next.refusal);
    known.until = kNever;
  }
  memory_bytes_ += known.memory_bytes();
}

Episode& Episodes::episode_of(Component& component, const std::vector<Act*>& acts, TimePs now) {
  const EpisodePlace& place = *component.place;
  std::vector<std::int64_t>& key = key_;
  key.assign({static_cast<std::int64_t>(place.alike)});
  for (const InputService& own : services_)
    key.insert(key.end(), {own.link, own.time, own.mark, own.is_later});
  for (const Act* act : acts) {
    key.insert(key.end(), {act->is_message() ? act->operation.size_bytes : act->kind, act->is_message(),
                           static_cast<std::int64_t>(act->members.size())});
    if (!act->is_message() && !std::ranges::is_sorted(members_of(*act))) {
      for (const std::int32_t rank : members_of(*act))
        key.push_back(static_cast<std::int64_t>(place.place_of(rank)));
    }
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      const Act::Member& member = act->members[at];
      const std::int32_t rank = act->place->ranks[at];
      const bool is_bound = member.node >= 0 && !act->is_message();
      key.insert(key.end(), {static_cast<std::int64_t>(place.place_of(rank)), member.row,
                             member.node < 0 || member.after >= 0 ? -1 : member.start - component.first,
                             is_bound ? plans_[index(rank)]->bound(member.node).template_id : -1,
                             is_bound ? plans_[index(rank)]->bound(member.node).sizes_start : -1,
                             member.after, member.is_by_timer});
    }
  }
  const auto [known, is_new] = known_.try_emplace(key);
  Episode& episode = known->second;
  if (is_new) {
    ++report_.distinct;
    memory_bytes_ += episode.memory_bytes() + key.size() * sizeof(key.front());
  }
  if (is_new || !is_known(component, episode, now)) {
    replace(episode, play_new(component, rows_of(acts), now));
  } else {
    component.play.reset();
    if (component.episode != &episode) set_played(component, 0);
  }
  return episode;
}

// Ends of a component's acts, if nothing joins it but what it expects.
void Episodes::forecast(Component& component, TimePs now) {
  if (std::ranges::none_of(component.acts, [](const auto& act) { return act->has_begun(); })) return;
  take_back(component);
  withdraw(component);
  if (3 * component.acts.size() > 2 * kinds_.acts()) return give_up("nearly all comes together");
  if (is_too_costly()) {
    report_.is_too_costly = true;
    return give_up("playing apart what comes together costs more than it gains");
  }
  if (places_.memory_bytes() > kPlacesBytes) return give_up("parts of the network take too much memory");
  if (memory_bytes_ > memory_max_bytes_) forget_unused();
  expect_starts(component, now);
  std::string refusal = play(component, now);
  if (!refusal.empty()) {  // expected starts may not come
    take_back(component);
    if (withdraw(component)) refusal = play(component, now);
  }
  if (!refusal.empty()) refuse(component, refusal);
}

// Components whose forecasts end soon are forecast further, and all that are alike with them.
void Episodes::go_on(TimePs now) {
  std::erase_if(partly_known_, [](const Component* it) { return it->known_until == kNever; });
  for (std::size_t at = 0; at < partly_known_.size() && !simulator_->is_abandoned(); ++at) {
    Component& own = *partly_known_[at];
    if (own.known_until == kNever || own.is_changed || own.known_until - lead_ps() > now) continue;
    if (!is_known(own, *own.episode, now)) {
      if (own.play == nullptr) {
        forecast(own, now);
        continue;
      }
      ++report_.continued;
      replace(*own.episode, play_on(own, now));
    }
    const std::vector<Component*> all = partly_known_;
    for (Component* other : all) {
      if (other->known_until == kNever || other->is_changed || other->episode != own.episode) continue;
      take_back(*other);
      if (!take_forecast(*other, now).empty()) forecast(*other, now);
    }
  }
}

// Takes the forecast from the episode that stands for the component. Returns the reason if none does;
// expected starts may be the reason.
std::string Episodes::play(Component& component, TimePs now) {
  std::vector<std::uint32_t> places = component.claimed_places;
  for (const std::unique_ptr<Act>& act : component.acts) places.push_back(act->place->number);
  component.place = &places_.of_all(std::move(places));
  if (const auto tags = tags_of(component); std::ranges::adjacent_find(tags) != tags.end())
    return "two collectives that come together have one tag";  // after 2^23 others
  const std::vector<Act*> acts = in_order(component);
  services_ = services_before(component.entries, component.numbers, component.first, component.place->part);
  component.episode = &episode_of(component, acts, now);
  return take_forecast(component, now);
}

std::string Episodes::take_forecast(Component& component, TimePs now) {
  const Episode& episode = *component.episode;
  if (!episode.refusal.empty()) return episode.refusal;
  const bool is_complete =
      std::ranges::all_of(component.acts, [](const auto& act) { return act->is_complete(); });
  if (is_complete && episode.is_whole() && !episode.is_over) return "it does not come to an end";
  component.mark = ++latest_mark_;
  const std::uint32_t number = simulator_->hosts().ranks().make_forecast();
  component.forecasts.push_back(number);
  if (!takes_ends(component, now, number)) {
    refuse(component, "an end is known too late");  // it is past, whatever is expected
    return "";
  }
  const EpisodePlace& place = *component.place;
  for (const Episode::Room& room : episode.rooms) {
    const std::int32_t node = place.part.switches[index(room.node) - place.part.hosts.size()];
    component.rooms.emplace_back(node, room.bytes);
    if (!simulator_->links().buffers().reserve(node, room.bytes))
      return "a shared buffer is near a threshold";
  }
  component.until = wake_at_expected(component, number);
  if (ends_at_once(component)) return "what is expected ends at once";
  take_rests(component);
  component.known_until = known_until(component, episode);
  if (!episode.is_whole()) {
    simulator_->hosts().ranks().wake(place.ranks.front(), component.known_until - lead_ps());
    if (std::ranges::find(partly_known_, &component) == partly_known_.end())
      partly_known_.push_back(&component);
  }
  if (!is_complete || !episode.is_whole()) component.until = kNever;
  for (const std::unique_ptr<Act>& act : component.acts) act->is_released |= episode.is_at_rest;
  if (component.until != kNever) ends_.push({component.until, &component, component.serial});
  return "";
}

// Cables are free once nothing that has begun or is expected uses them. Where the end is not known, acts that
// have not ended keep theirs.
void Episodes::take_rests(Component& component) {
  const Episode& episode = *component.episode;
  const std::vector<std::uint32_t>& cables = component.place->cables;
  std::vector<std::uint8_t> is_in_use(cables.size(), episode.is_whole() && !episode.is_at_rest);
  for (const std::unique_ptr<Act>& act : component.acts) {
    const bool has_ended = episode.is_whole() || std::ranges::all_of(act->members, [](const Act::Member& it) {
                             return it.row < 0 || it.end != kNever;
                           });
    for (std::size_t member = 0; member < act->members.size() && !has_ended; ++member) {
      if (act->members[member].row < 0) continue;
      for (const std::uint32_t cable : act->place->cables_of[member])
        is_in_use[static_cast<std::size_t>(std::ranges::lower_bound(cables, cable) - cables.begin())] = 1;
    }
  }
  for (std::size_t at = 0; at < cables.size(); ++at) {
    Claim& own = claims_[cables[at]];
    const TimePs rest = is_in_use[at] != 0 ? kNever : episode.cable_rests[at];
    const TimePs until = rest == kNever ? kNever : component.first + rest;
    component.until = std::max(component.until, until);
    if (own.is_of(component)) own.until = until;
  }
}

// False where a rank should have heard before `now` of what it has not.
bool Episodes::takes_ends(Component& component, TimePs now, std::uint32_t forecast) {
  heard_.clear();
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      Act::Member& member = act->members[at];
      if (member.row < 0) continue;
      const auto& of_rank = component.episode->nodes[component.place->place_of(act->place->ranks[at])];
      const TimePs end = of_rank[index(member.row)].end;
      const TimePs before = std::exchange(member.end, end == kNever ? kNever : component.first + end);
      if (std::min(before, member.end) < now && before != member.end) return false;
      if (member.end >= now && member.end != kNever)
        heard_.push_back({component.place->place_of(act->place->ranks[at]), member.row, act.get(), at});
    }
  }
  // At one instant in the order in which they end.
  if (heard_.size() > 1) {
    std::ranges::sort(heard_, {}, [](const Heard& it) { return std::pair(it.rank, it.row); });
    std::vector<Heard> sorted;
    sorted.reserve(heard_.size());
    for (std::size_t rank = 0; rank < component.episode->end_order.size(); ++rank) {
      for (const std::int32_t row : component.episode->end_order[rank]) {
        const auto own = std::ranges::lower_bound(heard_, std::pair(rank, row), {},
                                                  [](const Heard& it) { return std::pair(it.rank, it.row); });
        if (own != heard_.end() && own->rank == rank && own->row == row) sorted.push_back(*own);
      }
    }
    heard_.swap(sorted);
  }
  for (const Heard& own : heard_) hear(*own.act, own.member, component, forecast);
  return true;
}

// A rank hears of the end of its part.
void Episodes::hear(const Act& act, std::size_t at, const Component& component, std::uint32_t forecast) {
  const Act::Member& member = act.members[at];
  const std::int32_t rank = act.place->ranks[at];
  Completion completion{.type = Completion::Type::kTimer, .time = member.end};
  if (!act.is_message()) {
    completion.handle = Walker::handle_of_node(member.node);
  } else if (rank == act.sender) {
    completion.type = Completion::Type::kSent;
    completion.handle = act.operation.handle;
  } else {
    const auto& of_rank = component.episode->nodes[component.place->place_of(rank)];
    completion.type = Completion::Type::kArrived;
    completion.peer = act.sender;
    completion.tag = act.operation.tag;
    completion.size_bytes = act.operation.size_bytes;
    completion.first = component.first + of_rank[index(member.row)].receives.front().first;
  }
  const std::uint32_t by =
      component.episode->nodes[component.place->place_of(rank)][index(member.row)].end_link;
  const std::uint32_t link = by == RankDriver::kNoLink ? by : component.place->part.links[by];
  simulator_->hosts().ranks().finish_held(rank, member.end, completion, forecast, link);
}

void Episodes::finish_until(TimePs time) {
  for (; !ends_.empty() && ends_.top().time <= time; ends_.pop()) {
    const End& end = ends_.top();
    const Component& own = *end.component;
    if (end.serial == own.serial && own.until == end.time && !own.is_changed) finish(*end.component);
  }
}

// Its results become the simulator's.
void Episodes::finish(Component& component) {
  const Episode& episode = *component.episode;
  const EpisodePlace& place = *component.place;
  Links& links = simulator_->links();
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->is_message(); ++at) {
      const Act::Member& member = act->members[at];
      const std::int32_t rank = act->place->ranks[at];
      const Episode::Node& node = episode.nodes[place.place_of(rank)][index(member.row)];
      simulator_->hosts().ranks().walker(rank).take_held(member.node, node.sends, node.receives,
                                                         component.first);
    }
  }
  for (std::size_t link = 0; link < episode.links.size(); ++link)
    links.add_played(place.part.links[link], episode.links[link]);
  simulator_->add_played_until(component.first + episode.last);
  for (std::size_t rank = 0; rank < place.ranks.size(); ++rank)
    simulator_->add_played(place.ranks[rank], episode.counters[rank], rank == 0 ? episode.data_packets : 0);
  for (std::size_t at = 0; at < episode.services.size(); ++at) {
    const InputService& own = episode.services[at];
    const std::uint32_t link = place.part.links[own.link];
    const TimePs time = component.first + own.time;
    if (links.service_of(link).time >= time) continue;  // others have used it since
    links.set_service(link, service_after(component, at));
  }
  give_back_rooms(component);
  ++report_.replayed;
  report_.packets += episode.data_packets;
  release(component);
}

}  // namespace genie::twin
