#include "twin/skip/groups_ahead.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"

namespace genie::twin {
namespace {

// Sets of numbers that are made one by one.
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t count) : parents_(count) {
    for (std::size_t at = 0; at < count; ++at) parents_[at] = at;
  }
  std::size_t find(std::size_t at) {
    while (parents_[at] != at) at = parents_[at] = parents_[parents_[at]];
    return at;
  }
  void unite(std::size_t one, std::size_t other) { parents_[find(one)] = find(other); }

 private:
  std::vector<std::size_t> parents_;
};

// Parts of which a value differs between two states, or that only one of them has.
std::vector<Snapshot::Start> moved_parts(const Snapshot& earlier, const Snapshot& later) {
  std::unordered_map<std::uint64_t, std::size_t> places;  // in the earlier state, where they are not the same
  const bool are_same =
      std::ranges::equal(earlier.starts, later.starts, {}, &Snapshot::Start::key, &Snapshot::Start::key);
  for (std::size_t at = 0; at < earlier.starts.size() && !are_same; ++at)
    places[earlier.starts[at].key()] = at;
  std::vector<Snapshot::Start> moved;
  for (std::size_t at = 0; at < later.starts.size(); ++at) {
    const Snapshot::Start &own = later.starts[at], own_end = later.end_of(at);
    if (own.kind == Fold::Part::kShared) continue;
    const auto found = places.find(own.key());
    if (!are_same && found == places.end()) {
      moved.push_back(own);
      continue;
    }
    const std::size_t same = are_same ? at : found->second;
    const Snapshot::Start &before = earlier.starts[same], end = earlier.end_of(same);
    if (!are_same) places.erase(found);
    const auto differs = [&](const auto& one, const auto& other, std::uint32_t Snapshot::Start::* place) {
      return !std::equal(one.begin() + before.*place, one.begin() + end.*place, other.begin() + own.*place,
                         other.begin() + own_end.*place);
    };
    if (differs(earlier.words, later.words, &Snapshot::Start::words) ||
        differs(earlier.counters, later.counters, &Snapshot::Start::counters) ||
        differs(earlier.latest, later.latest, &Snapshot::Start::latest) ||
        differs(earlier.either, later.either, &Snapshot::Start::either) ||
        differs(earlier.left, later.left, &Snapshot::Start::left))
      moved.push_back(own);
  }
  for (const auto& [key, at] : places) {
    if (earlier.starts[at].kind != Fold::Part::kShared) moved.push_back(earlier.starts[at]);
  }
  return moved;
}

bool is_within(const Scope& some, const Scope& all) {
  const auto is_part = [](std::uint8_t own, std::uint8_t other) { return own <= other; };
  return std::ranges::equal(some.ranks, all.ranks, is_part) &&
         std::ranges::equal(some.links, all.links, is_part);
}

// The turns of a scope's inputs. Each has the places of its latest service and meeting among those at its
// switch, and of its kept service.
std::vector<std::size_t> turns_of(const Snapshot& state, const Scope& scope, const Links& links) {
  struct Turn {
    std::int32_t node = 0;
    std::uint64_t served = 0, met = 0, order = 0;
    TimePs time = 0;
  };
  std::vector<Turn> turns;
  for (std::size_t at = 0; at < state.starts.size(); ++at) {
    const Snapshot::Start& own = state.starts[at];
    if (own.kind == Fold::Part::kTurn && scope.links[own.number] != 0)
      turns.push_back({.node = links.target_of(own.number),
                       .served = state.counters[own.counters],
                       .met = std::max(state.counters[own.counters], state.counters[own.counters + 1])});
    if (own.kind == Fold::Part::kService && scope.links[own.number] != 0)
      turns.back().time = state.latest[own.latest];
    if (own.kind == Fold::Part::kOrder && scope.links[own.number] != 0)
      turns.back().order = state.counters[own.counters];
  }
  std::vector<std::size_t> places;
  for (const Turn& own : turns) {
    std::size_t before_service = 0, before_meeting = 0, before = 0;
    for (const Turn& other : turns) {
      if (other.node != own.node) continue;
      before_service += other.served < own.served;
      before_service += other.met < own.served;
      before_meeting += other.served < own.met;
      before_meeting += other.met < own.met;
      before += std::pair(other.time, other.order) < std::pair(own.time, own.order);
    }
    places.insert(places.end(), {before_service, before_meeting, before});
  }
  return places;
}

}  // namespace

std::size_t GroupsAhead::State::memory_bytes() const {
  std::size_t bytes = 0;
  for (const SharedGroup& group : groups)
    bytes += group->earlier.memory_bytes() + group->later.memory_bytes() + group->scope.links.size() +
             group->scope.ranks.size() + group->towards.size() * sizeof(std::uint32_t);
  return bytes;
}

bool GroupsAhead::is_awake(const Scope& scope) const { return !any() || is_within(scope, rest_); }

const GroupsAhead::Group* GroupsAhead::group_of(std::int32_t rank) const {
  const auto own = std::ranges::find_if(
      state_.groups, [&](const SharedGroup& it) { return it->scope.ranks[index(rank)] != 0; });
  return own == state_.groups.end() ? nullptr : own->get();
}

std::vector<Scope> GroupsAhead::scopes_between(const Snapshot& earlier, const Snapshot& later) const {
  const std::vector<Snapshot::Start> moved = moved_parts(earlier, later);
  Hosts& hosts = simulator_.hosts();
  QueuePairs& queue_pairs = hosts.queue_pairs();
  const Links& links = simulator_.links();
  const std::size_t ranks = hosts.ranks().ranks();
  DisjointSets sets(ranks + links.links() / 2 + 1);
  std::vector<std::uint8_t> is_in(ranks + links.links() / 2 + 1, 0);
  for (const Snapshot::Start& own : moved) {
    if (own.kind == Fold::Part::kRank) is_in[own.number] = 1;
    if (own.kind != Fold::Part::kQueuePair) continue;
    const auto rank = index(queue_pairs[own.number].rank), peer = index(queue_pairs[own.number].peer_rank);
    sets.unite(rank, peer);
    is_in[rank] = is_in[peer] = 1;
    for (const std::uint32_t route : queue_pairs.routes_of(own.number)) {
      for (const std::uint32_t link : links.path_from(route)) {
        sets.unite(rank, ranks + link / 2);
        is_in[ranks + link / 2] = 1;
      }
    }
  }
  for (const Snapshot::Start& own : moved) {
    const bool is_port = own.kind == Fold::Part::kPort || own.kind == Fold::Part::kService;
    if (is_port && is_in[ranks + own.number / 2] == 0) return {};
  }
  std::vector<Scope> scopes;
  std::vector<std::size_t> scope_of(is_in.size(), 0);  // by root: place + 1
  for (std::size_t at = 0; at < is_in.size(); ++at) {
    if (is_in[at] == 0) continue;
    std::size_t& scope = scope_of[sets.find(at)];
    if (scope == 0) {
      scopes.push_back({std::vector<std::uint8_t>(ranks, 0), std::vector<std::uint8_t>(links.links(), 0)});
      scope = scopes.size();
    }
    Scope& own = scopes[scope - 1];
    if (at < ranks) {
      own.ranks[at] = 1;
    } else {
      own.links[2 * (at - ranks)] = own.links[2 * (at - ranks) + 1] = 1;
    }
  }
  return scopes;
}

bool GroupsAhead::moves_within(const Snapshot& earlier, const Snapshot& later, const Scope& scope) const {
  const std::vector<Scope> moved = scopes_between(earlier, later);
  return !moved.empty() &&
         std::ranges::all_of(moved, [&](const Scope& own) { return is_within(own, scope); });
}

std::vector<GroupsAhead::Group> GroupsAhead::groups_between(const Snapshot& earlier, const Snapshot& later,
                                                            const Scope& awake) const {
  std::vector<Group> groups;
  for (const Scope& scope : scopes_between(earlier, later)) {
    if (!is_within(scope, awake)) return {};
    groups.push_back({.scope = scope, .earlier = some_of(earlier, scope), .later = some_of(later, scope)});
  }
  return groups;
}

std::optional<GroupsAhead::Group> GroupsAhead::recurring_group(std::int32_t rank, const Snapshot& earlier,
                                                               const Snapshot& later,
                                                               const Scope& awake) const {
  const std::vector<Scope> scopes = scopes_between(earlier, later);
  const auto own = std::ranges::find_if(scopes, [&](const Scope& it) { return it.ranks[index(rank)] != 0; });
  if (own == scopes.end() || !is_within(*own, awake)) return std::nullopt;
  Group group{.scope = *own, .earlier = some_of(earlier, *own), .later = some_of(later, *own)};
  if (!group.earlier.recurs_in(group.later)) return std::nullopt;
  const Links& links = simulator_.links();
  if (turns_of(earlier, group.scope, links) != turns_of(later, group.scope, links)) return std::nullopt;
  return group;
}

// The state of a scope alone.
Snapshot GroupsAhead::some_of(const Snapshot& state, const Scope& scope) const {
  const std::vector<std::uint32_t> processes = simulator_.hosts_in(scope);
  Hosts& hosts = simulator_.hosts();
  return state.of_parts([&](Fold::Part kind, std::uint32_t number) {
    switch (kind) {
      case Fold::Part::kRank:
        return scope.ranks[number] != 0;
      case Fold::Part::kQueuePair:
        return scope.ranks[index(hosts.queue_pairs()[number].rank)] != 0;
      case Fold::Part::kNic:
        return scope.links[hosts.nics()[number].link()] != 0;
      case Fold::Part::kPort:
      case Fold::Part::kService:
        return scope.links[number] != 0;
      case Fold::Part::kProcess:
        return std::ranges::binary_search(processes, number);
      case Fold::Part::kTurn:
      case Fold::Part::kOrder:
      case Fold::Part::kShared:
        break;
    }
    return false;
  });
}

void GroupsAhead::jump(const Snapshot& earlier, const Snapshot& later, std::int64_t periods,
                       const Scope& scope) {
  const Snapshot before = some_of(earlier, scope), after = some_of(later, scope);
  Shift shift(before, after, periods);
  simulator_.fold_own(shift, scope);
  assert(shift.is_over());
  simulator_.move(scope, shift.by(), shift.by());
  simulator_.go_on_from(later.now + shift.by());
}

// By cable: the queue pairs whose messages or answers use it.
void GroupsAhead::keep_users() {
  const QueuePairs& queue_pairs = simulator_.hosts().queue_pairs();
  const Links& links = simulator_.links();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> uses;  // cable, queue pair
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    for (const std::uint32_t route : queue_pairs.routes_of(id)) {
      for (const std::uint32_t link : links.path_from(route)) uses.emplace_back(link / 2, id);
    }
  }
  std::ranges::sort(uses);
  first_user_.assign(links.links() / 2 + 2, 0);
  for (const auto& [cable, id] : uses) {
    users_.push_back(id);
    first_user_[cable + 1] = static_cast<std::uint32_t>(users_.size());
  }
  for (std::size_t cable = 1; cable < first_user_.size(); ++cable)
    first_user_[cable] = std::max(first_user_[cable], first_user_[cable - 1]);
}

std::vector<std::uint32_t> GroupsAhead::towards(const Scope& scope) {
  if (first_user_.empty()) keep_users();
  const QueuePairs& queue_pairs = simulator_.hosts().queue_pairs();
  std::vector<std::uint32_t> found;
  for (std::size_t link = 0; link < scope.links.size(); ++link) {
    if (scope.links[link] == 0) continue;
    for (std::uint32_t at = first_user_[link / 2]; at < first_user_[link / 2 + 1]; ++at) {
      if (scope.ranks[index(queue_pairs[users_[at]].rank)] == 0) found.push_back(users_[at]);
    }
  }
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    const HostQueuePair& own = queue_pairs[id];
    if (scope.ranks[index(own.rank)] == 0 && scope.ranks[index(own.peer_rank)] != 0) found.push_back(id);
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::optional<std::uint64_t> GroupsAhead::foreign_packets(const Scope& scope,
                                                          const std::vector<std::uint32_t>& towards,
                                                          TimePs now) const {
  const Hosts& hosts = simulator_.hosts();
  std::uint64_t sum = 0;
  for (const std::uint32_t id : towards) {
    if (may_send(id, scope, now)) return std::nullopt;
    const roce::QueuePairCounters& own = hosts.queue_pairs()[id].queue_pair.counters();
    const std::uint64_t packets = own.data_sent + own.data_received + own.acks_sent + own.acks_received +
                                  own.naks_sent + own.naks_received + own.cnps_sent + own.cnps_received;
    sum += packets * (mixed(id) | 1);
  }
  return sum;
}

TimePs GroupsAhead::horizon_of(const Group& group) const {
  Observe seen(group.later.now);
  simulator_.fold_own(seen, group.scope);
  return is_behind(group.later.now) ? std::min(seen.found().horizon, state_.stands_at) : seen.found().horizon;
}

// Its packets' share of shared buffers, at the most. False where others may come near a threshold beside it.
bool GroupsAhead::reserve(Group& group) {
  Links& links = simulator_.links();
  std::map<std::int32_t, std::int64_t> bytes_of;  // by switch
  for (std::uint32_t link = 0; link < links.links(); ++link) {
    const std::int32_t node = links.source_of(link);
    if (group.scope.links[link] != 0 && links.buffers().is_shared(node))
      bytes_of[node] += links.totals(link).longest_queue_bytes;
  }
  bool has_room = true;
  for (const auto& [node, bytes] : bytes_of) {
    if (bytes == 0) continue;
    group.rooms.emplace_back(node, bytes);
    has_room &= links.buffers().reserve(node, bytes);
  }
  return has_room;
}

void GroupsAhead::give_back_rooms(const Group& group) {
  for (const auto& [node, bytes] : group.rooms) simulator_.links().buffers().give_back(node, bytes);
}

// Something that it sends may reach a scope before `until`. Those that have brought groups back stand.
bool GroupsAhead::may_send(std::uint32_t queue_pair, const Scope& scope, TimePs until) const {
  if (simulator_.hosts().is_quiet(queue_pair, scope)) return false;
  return until > state_.stands_at || !std::ranges::binary_search(state_.touched, queue_pair);
}

bool GroupsAhead::set_ahead(Group group) {
  group.towards = towards(group.scope);
  group.wake = group.later.now + group.periods * (group.later.now - group.earlier.now);
  const auto may_send = [&](std::uint32_t own) { return this->may_send(own, group.scope, group.wake); };
  if (std::ranges::any_of(group.towards, may_send)) return false;
  if (!reserve(group)) {
    give_back_rooms(group);
    return false;
  }
  const TimePs now = group.later.now, by = group.wake - now;
  Displacement displacement(now, by);
  simulator_.fold_own(displacement, group.scope);
  simulator_.move(group.scope, by, 0);
  state_.groups.push_back(std::make_shared<const Group>(std::move(group)));
  renew();
  simulator_.go_on_from(now);
  return true;
}

// To the end of its latest period by `now`; returns that end.
TimePs GroupsAhead::bring_back(const Group& group, TimePs now) {
  const TimePs from = group.later.now, period = from - group.earlier.now;
  assert(now >= from);
  const std::int64_t periods = std::min(group.periods, (now - from) / period);
  Displacement back(from, -group.periods * period);
  simulator_.fold_own(back, group.scope);
  Shift shift(group.earlier, group.later, periods);
  if (periods > 0) {
    simulator_.fold_own(shift, group.scope);
    assert(shift.is_over());
  }
  simulator_.move(group.scope, (periods - group.periods) * period, periods * period);
  give_back_rooms(group);
  return from + periods * period;
}

std::vector<GroupsAhead::Back> GroupsAhead::fetch_back(TimePs now, bool all) {
  std::vector<std::uint32_t> touched = simulator_.hosts().take_touched();
  std::ranges::sort(touched);
  const auto comes_back = [&](const SharedGroup& group) {
    return all || group->wake <= now || std::ranges::any_of(touched, [&](std::uint32_t own) {
             return std::ranges::binary_search(group->towards, own);
           });
  };
  const auto stay = std::ranges::stable_partition(state_.groups, std::not_fn(comes_back)).begin();
  // Groups that have gone through the same periods are in step: the order of their services stays known.
  struct InStep {
    TimePs earlier = 0, later = 0, end = 0;
    Scope scope;
  };
  std::vector<InStep> all_in_step;
  std::vector<Back> back;
  TimePs from = now;
  for (auto own = stay; own != state_.groups.end(); ++own) {
    const Group& group = **own;
    const TimePs earlier = group.earlier.now, later = group.later.now, end = bring_back(group, now);
    from = std::min(from, end);
    const auto in_step = std::ranges::find_if(all_in_step, [&](const InStep& it) {
      return it.earlier == earlier && it.later == later && it.end == end;
    });
    if (in_step != all_in_step.end()) {
      in_step->scope.add(group.scope);
    } else {
      all_in_step.push_back({earlier, later, end, group.scope});
    }
    back.push_back({group.scope, (end - later) / (later - earlier)});
  }
  for (const InStep& own : all_in_step) simulator_.links().inputs().come_back(own.scope);
  state_.groups.erase(stay, state_.groups.end());
  if (now >= state_.stands_at) {
    state_.stands_at = now;
    state_.touched = std::move(touched);
  }
  renew();
  simulator_.go_on_from(from);
  return back;
}

// All that is not ahead, and the guards of the rest.
void GroupsAhead::renew() {
  rest_ = simulator_.whole();
  std::vector<std::uint8_t> guarded(simulator_.hosts().queue_pairs().size(), 0);
  const auto leave_out = [](std::vector<std::uint8_t>& from, const std::vector<std::uint8_t>& others) {
    for (std::size_t at = 0; at < from.size(); ++at) from[at] = others[at] != 0 ? 0 : from[at];
  };
  for (const SharedGroup& group : state_.groups) {
    leave_out(rest_.ranks, group->scope.ranks);
    leave_out(rest_.links, group->scope.links);
    for (const std::uint32_t own : group->towards) guarded[own] = 1;
  }
  simulator_.hosts().guard(std::move(guarded));
}

}  // namespace genie::twin
