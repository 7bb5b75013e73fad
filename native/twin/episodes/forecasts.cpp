#include "twin/episodes/forecasts.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {
namespace {

constexpr std::uint64_t kPlacesBytes = std::uint64_t{1} << 30;

}  // namespace

// Those that may wait are looked at again when something begins.
void Forecasts::make_due(TimePs now) {
  for (Component* const own : components_->take_changed()) {
    if (!own->is_changed || simulator_->is_abandoned()) continue;  // it may have become part of another
    if (waits(*own, now)) {
      components_->put_back(*own);
    } else {
      own->is_changed = own->must_forecast = false;
      forecast(*own, now);
    }
  }
}

// Ends of a component's acts, if nothing joins it but what it expects.
void Forecasts::forecast(Component& component, TimePs now) {
  if (std::ranges::none_of(component.acts, [](const auto& act) { return act->has_begun(); })) return;
  components_->take_back(component);
  components_->withdraw(component);
  component.until = kNever;  // an end that was forecast before holds no more
  Refusals& refusals = memo_->refusals;
  if (3 * component.acts.size() > 2 * memo_->kinds.acts())
    return refusals.give_up("nearly all comes together");
  if (memo_->costs.are_too_high())
    return refusals.give_up_for_costs("playing apart what comes together costs more than it gains");
  if (memo_->places.memory_bytes() > kPlacesBytes)
    return refusals.give_up("parts of the network take too much memory");
  if (memo_->known.are_too_large()) forget_unused();
  expected_->add_to(component, now);
  std::string refusal = play(component, now);
  if (!refusal.empty()) {  // expected starts may not come
    components_->take_back(component);
    if (components_->withdraw(component)) refusal = play(component, now);
  }
  if (!refusal.empty()) refusals.refuse(component.kinds(), refusal);
}

void Forecasts::go_on(TimePs now) {
  std::erase_if(partly_known_, [](const Component* it) { return it->known_until == kNever; });
  for (std::size_t at = 0; at < partly_known_.size() && !simulator_->is_abandoned(); ++at) {
    Component& own = *partly_known_[at];
    if (own.known_until == kNever || own.is_changed || own.known_until - lead_ps() > now) continue;
    if (!is_known(own, *own.episode, now)) {
      if (own.unfinished == nullptr) {
        forecast(own, now);
        continue;
      }
      memo_->costs.add_continued();
      memo_->known.replace(*own.episode, plays_.go_on(own, now, partly_known_.size()));
      if (stop_if_interrupted()) return;
    }
    const std::vector<Component*> all = partly_known_;
    for (Component* other : all) {
      if (other->known_until == kNever || other->is_changed || other->episode != own.episode) continue;
      components_->take_back(*other);
      if (!adopt(*other, now).empty()) forecast(*other, now);
    }
  }
}

// True where a play was interrupted. Ranks may have to know more than it says, so that the simulator stops
// here.
bool Forecasts::stop_if_interrupted() {
  if (memo_->interrupt.is_set()) simulator_->abandon();
  return memo_->interrupt.is_set();
}

// Takes the forecast from the episode that stands for the component. Returns the reason if none does;
// expected starts may be the reason.
std::string Forecasts::play(Component& component, TimePs now) {
  std::vector<std::uint32_t> places = component.claimed_places;
  for (const std::unique_ptr<Act>& act : component.acts) places.push_back(act->place->number);
  component.place = &memo_->places.of_all(std::move(places));
  if (const auto tags = component.tags(); std::ranges::adjacent_find(tags) != tags.end())
    return "two collectives that come together have one tag";  // after 2^23 others
  const std::vector<Act*> acts = ComponentPlans::in_order(component);
  before_ = services_->before(component.entries, component.numbers, component.first, component.place->part);
  component.episode = &episode_of(component, acts, now);
  return stop_if_interrupted() ? "" : adopt(component, now);
}

Episode& Forecasts::episode_of(Component& component, const std::vector<Act*>& acts, TimePs now) {
  plans_.describe(component, acts, before_, description_);
  const auto [episode, is_new] = memo_->known.find(description_);
  if (is_new || !is_known(component, episode, now)) {
    const std::vector<Row> rows = ComponentPlans::rows_of(acts);
    memo_->known.replace(episode, plays_.begin(component, rows, before_, now, partly_known_.size()));
  } else {
    component.unfinished.reset();
    if (component.episode != &episode) memo_->costs.change_standing(std::exchange(component.played, 0), 0);
  }
  return episode;
}

void Forecasts::forget_unused() {
  std::set<const Episode*> used;
  for (const std::unique_ptr<Component>& component : components_->all()) used.insert(component->episode);
  services_->forget_steps();
  memo_->known.forget_all_but(used);
}

std::string Forecasts::adopt(Component& component, TimePs now) {
  const Episode& episode = *component.episode;
  if (!episode.refusal.empty()) return episode.refusal;
  const bool is_complete =
      std::ranges::all_of(component.acts, [](const auto& act) { return act->is_complete(); });
  if (is_complete && episode.is_whole() && !episode.is_over) return "it does not come to an end";
  component.mark = services_->make_mark();
  const std::uint32_t number = simulator_->hosts().ranks().make_forecast();
  component.forecasts.push_back(number);
  if (!takes_ends(component, now, number)) {
    memo_->refusals.refuse(component.kinds(),
                           "an end is known too late");  // it is past, whatever is expected
    return "";
  }
  const EpisodePlace& place = *component.place;
  for (const Episode::Room& room : episode.rooms) {
    const std::int32_t node = place.part.switches[index(room.node) - place.part.hosts.size()];
    component.rooms.emplace_back(node, room.bytes);
    if (!simulator_->links().buffers().reserve(node, room.bytes))
      return "a shared buffer is near a threshold";
  }
  component.until = expected_->wake_at(component, number);
  if (ExpectedStarts::ends_at_once(component, lead_ps())) return "what is expected ends at once";
  take_rests(component);
  component.known_until = component.known_until_by(episode);
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
void Forecasts::take_rests(Component& component) {
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
    const TimePs rest = is_in_use[at] != 0 ? kNever : episode.cable_rests[at];
    const TimePs until = rest == kNever ? kNever : component.first + rest;
    component.until = std::max(component.until, until);
    claims_->set_until(component, cables[at], until);
  }
}

// False where a rank should have heard before `now` of what it has not.
bool Forecasts::takes_ends(Component& component, TimePs now, std::uint32_t forecast) {
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
    std::ranges::sort(heard_, {}, [](const HeardEnd& it) { return std::pair(it.rank, it.row); });
    std::vector<HeardEnd> sorted;
    sorted.reserve(heard_.size());
    for (std::size_t rank = 0; rank < component.episode->end_order.size(); ++rank) {
      for (const std::int32_t row : component.episode->end_order[rank]) {
        const auto own = std::ranges::lower_bound(
            heard_, std::pair(rank, row), {}, [](const HeardEnd& it) { return std::pair(it.rank, it.row); });
        if (own != heard_.end() && own->rank == rank && own->row == row) sorted.push_back(*own);
      }
    }
    heard_.swap(sorted);
  }
  for (const HeardEnd& own : heard_) hear(*own.act, own.member, component, forecast);
  return true;
}

// A rank hears of the end of its part.
void Forecasts::hear(const Act& act, std::size_t at, const Component& component, std::uint32_t forecast) {
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

// True where no rank hears of an end before a later time, at which the component will be forecast. What
// begins until then counts too.
bool Forecasts::waits(Component& component, TimePs now) {
  if (component.must_forecast) return false;
  TimePs next = kNever;
  std::int32_t rank = -1;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      const TimePs end = act->members[at].end;
      if (end < now || end >= next) continue;
      next = end;
      rank = act->place->ranks[at];
    }
  }
  if (component.known_until < next) {
    next = component.known_until;
    rank = component.acts.front()->place->ranks.front();
  }
  if (next == kNever) return true;
  const TimePs time = next - lead_ps();
  if (time <= now) return false;
  if (component.wakes_at < now || component.wakes_at > time) {
    component.wakes_at = time;
    simulator_->hosts().ranks().wake(rank, time);
  }
  return true;
}

void Forecasts::finish_until(TimePs time) {
  for (; !ends_.empty() && ends_.top().time <= time; ends_.pop()) {
    const End& end = ends_.top();
    const Component& own = *end.component;
    if (end.serial == own.serial && own.until == end.time && !own.is_changed) finish(*end.component);
  }
}

// Its results become the simulator's.
void Forecasts::finish(Component& component) {
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
    if (links.inputs().service_of(link).time >= time) continue;  // others have used it since
    links.inputs().set_service(link, services_->after(component, at));
  }
  components_->give_back_rooms(component);
  memo_->costs.add_replayed(episode.data_packets);
  components_->release(component);
}

}  // namespace genie::twin
