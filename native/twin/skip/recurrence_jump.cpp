// A state that recurs: by how many periods the simulation may move, and the move.
#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::twin {

// Nothing that is outside both states has come in since the earlier one.
bool Recurrence::is_closed(const State& earlier, const State& later) {
  return earlier.is_of_group == later.is_of_group && later.others.latest < earlier.snapshot.now &&
         later.foreign && later.foreign == earlier.foreign;
}

// While groups are ahead, nothing of the rest may have used their links.
bool Recurrence::recurs(const SharedState& earlier, const State& later) const {
  return earlier && !later.is_of_group && is_closed(*earlier, later) &&
         earlier->scope.ranks == later.scope.ranks && earlier->scope.links == later.scope.links &&
         earlier->snapshot.recurs_in(later.snapshot) &&
         (!ahead_.any() || ahead_.moves_within(earlier->snapshot, later.snapshot, later.scope));
}

// A state recurs.
void Recurrence::found(Watch& own, const Search& search, const State& earlier, const SharedState& later) {
  // Not where the rhythm has slipped between the states.
  const TimePs whole = later->snapshot.now - earlier.snapshot.now;
  if (whole % search.seen_period == 0)
    known_[static_cast<std::size_t>(search.kind)] = {search.seen_period, whole};
  if (search.kind != Kind::kRounds) return;
  own.rounds_from = own.finder.count() + 2 * (later->seen - earlier.seen);
  if (own.loop.receives > 0 && own.outer.is_over()) own.loop_reference = later;
}

// The states are equal, and the steps are not alike. The next look is a period before unlike steps are over:
// it takes the state that the look after it compares with.
void Recurrence::wait(Search& search, const State& earlier, const SharedState& later) const {
  constexpr std::uint32_t kDoublingsMost = 2;
  std::int64_t periods = periods_until_alike(earlier, *later);
  // Something else may end the jump, such as a controller that still moves.
  if (periods == 1) periods <<= std::min(search.waits - 1, kDoublingsMost);
  search.reference.reset();
  search.latest.reset();
  if (periods == 1) search.reference = later;
  search.next_look = later->snapshot.now + std::max<std::int64_t>(periods - 1, 1) * search.period;
}

// The end of a group's own steps and timers, and its rank's next look at loops.
TimePs Recurrence::horizon_of(const Watch& own, const Search& search, const GroupsAhead::Group& group) const {
  const TimePs horizon = ahead_.horizon_of(group);
  const bool is_own = own.rank >= 0 && group.scope.ranks[index(own.rank)] != 0;
  return is_own && &search == &own.inner ? std::min(horizon, own.outer.next_look) : horizon;
}

// True where groups are ahead now. Others end the jump of all, or others are ahead already.
bool Recurrence::set_ahead(Watch& own, Search& search, const SharedState& earlier, const SharedState& later,
                           std::int64_t periods) {
  if (!sets_ahead_) return false;
  bool any = false;
  for (GroupsAhead::Group& group : ahead_.groups_between(earlier->snapshot, later->snapshot, later->scope)) {
    group.periods = this->periods(*earlier, *later, horizon_of(own, search, group), group.scope,
                                  group.earlier.periods_left(group.later));
    if (group.periods > periods || (ahead_.any() && group.periods > 0))
      any |= ahead_.set_ahead(std::move(group));
  }
  if (any) leave_ahead(own, search, earlier, later);
  return any;
}

// The group of the watched rank recurs, where others do not.
bool Recurrence::set_own_ahead(Watch& own, Search& search, const SharedState& later) {
  if (!sets_ahead_ || own.rank < 0) return false;
  std::vector<SharedState> candidates{search.latest, search.reference};
  for (auto kept = search.kept.rbegin(); kept != search.kept.rend(); ++kept) {
    if ((*kept)->digest == later->digest && *kept != search.latest) candidates.push_back(*kept);
  }
  for (const SharedState& earlier : candidates) {
    if (!earlier || !is_closed(*earlier, *later)) continue;
    std::optional<GroupsAhead::Group> group = ahead_.recurring_group(
        own.rank, earlier->snapshot, later->snapshot, earlier->scope.in_both(later->scope));
    if (!group) continue;
    group->periods = periods(*earlier, *later, horizon_of(own, search, *group), group->scope,
                             group->earlier.periods_left(group->later));
    if (group->periods == 0 || !ahead_.set_ahead(std::move(*group))) continue;
    leave_ahead(own, search, earlier, later);
    return true;
  }
  return false;
}

// Watches of groups that are ahead now wait for them. The first leaves its place to another.
void Recurrence::leave_ahead(Watch& own, Search& search, SharedState earlier, const SharedState& later) {
  for (const auto& other : watches_) {
    const GroupsAhead::Group* const group =
        other->rank < 0 || other->is_ahead ? nullptr : ahead_.group_of(other->rank);
    if (group == nullptr) continue;
    other->is_ahead = true;
    other->members = group->scope.ranks;
    other->scope = std::make_shared<const Scope>(group->scope);
    other->towards = group->towards;
    other->seen_each = 0;
    if (other.get() != &own) other->forget();
  }
  if (own.is_ahead) {
    found(own, search, *earlier, later);
    own.seen_each = later->seen - earlier->seen;
    if (&search == &own.outer) own.inner = {};
  }
  end(own, search, true);
  if (watches_.front()->is_ahead) {
    rhythm_.stop();
    watches_.insert(watches_.begin(), std::make_unique<Watch>(lag_max_));
  }
  // One watch is enough for a group.
  std::erase_if(watches_, [&](const auto& other) {
    const bool is_one_more =
        other.get() != &own && other->is_ahead && own.is_ahead && own.members[index(other->rank)] != 0;
    if (is_one_more) simulator_.hosts().ranks().see(other->rank, false);
    return is_one_more;
  });
}

bool Recurrence::come_to(TimePs now) {
  run(~std::uint64_t{0}, now);
  return !simulator_.is_failed() && (!ahead_.any() || !simulator_.over());
}

bool Recurrence::bring_all_to(TimePs now) {
  constexpr int kTriesMost = 4;  // a look at `now` may set groups ahead
  for (int tries = 0; tries < kTriesMost; ++tries) {
    run(~std::uint64_t{0}, now);
    if (!ahead_.any()) return !simulator_.is_failed();
    if (simulator_.over()) return false;
    fetch_back(now, true);
  }
  return false;
}

// The simulation has come to `now`, at which a group is no longer ahead.
void Recurrence::fetch_back(TimePs now, bool all) {
  const std::uint64_t packets = simulator_.data_packets();
  for (const GroupsAhead::Back& back : ahead_.fetch_back(now, all)) {
    const auto periods = static_cast<std::uint64_t>(back.periods);
    report_.periods += periods;
    for (const auto& own : watches_) {
      if (own->is_ahead && back.scope.ranks[index(own->rank)] != 0) own->go_on(periods);
    }
  }
  report_.packets += simulator_.data_packets() - packets;
  ++report_.jumps;
}

// The number of times that what lies between two states can be played again.
std::int64_t Recurrence::periods(const State& earlier, const State& later, TimePs until) const {
  const TimePs end =
      std::min({later.snapshot.horizon, later.others.next, simulator_.next_change_time(), until});
  return periods(earlier, later, end, simulator_.whole(), earlier.snapshot.periods_left(later.snapshot));
}

std::int64_t Recurrence::periods(const State& earlier, const State& later, TimePs until, const Scope& scope,
                                 std::int64_t left) const {
  const TimePs now = later.snapshot.now, end = std::min(until, kLastTime);
  std::int64_t count = std::min(left, std::max<TimePs>(end - now, 0) / (now - earlier.snapshot.now));
  bool moves = left != Snapshot::kUnbounded;
  const auto own_of = [&](const State& state) {
    std::vector<Place> own;
    for (const Place& place : state.places) {
      if (scope.ranks[index(place.rank)] != 0) own.push_back(place);
    }
    return own;
  };
  const std::vector<Place> before = own_of(earlier), after = own_of(later);
  if (before.size() != after.size()) return 0;
  for (std::size_t at = 0; at < after.size() && count > 0; ++at) {
    const Place &one = before[at], &other = after[at];
    if (one.rank != other.rank || one.progress.instance != other.progress.instance) return 0;
    const std::int32_t stride = other.progress.base - one.progress.base;
    if (stride < 0) return 0;
    if (stride == 0) continue;
    moves = true;
    count = simulator_.walkers()[index(other.rank)].repeats(one.progress, other.progress, count);
  }
  return moves && count > 0 ? earlier.snapshot.periods_replayed(later.snapshot, count) : 0;
}

std::int64_t Recurrence::periods_until_alike(const State& earlier, const State& later) const {
  std::int64_t periods = 1;
  for (std::size_t at = 0; at < later.places.size(); ++at) {
    const Place &before = earlier.places[at], &after = later.places[at];
    const std::int32_t stride = after.progress.base - before.progress.base;
    if (stride <= 0 || before.progress.instance != after.progress.instance) continue;
    periods = std::max(periods, simulator_.walkers()[index(after.rank)].periods_until_alike(before.progress,
                                                                                            after.progress));
  }
  return periods;
}

void Recurrence::jump(Watch& own, const State& earlier, const State& later, std::int64_t periods) {
  const std::uint64_t packets = simulator_.data_packets(), count = static_cast<std::uint64_t>(periods);
  const TimePs by = (later.snapshot.now - earlier.snapshot.now) * periods;
  if (sets_ahead_) {
    ahead_.jump(earlier.snapshot, later.snapshot, periods, later.scope);
  } else {
    Shift shift(earlier.snapshot, later.snapshot, periods);
    simulator_.fold(shift);
    assert(shift.is_over());
    simulator_.move(by, later.snapshot.now + by);
  }
  own.finder.skip((later.seen - earlier.seen) * count);
  ++report_.jumps;
  report_.periods += count;
  report_.packets += simulator_.data_packets() - packets;
  report_.time += by;
}

}  // namespace genie::twin
