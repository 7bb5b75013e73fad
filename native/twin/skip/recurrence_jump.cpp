// A state that recurs: by how many periods the simulation may move, and the move.
#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::twin {

// All that sleeps has slept since the earlier state.
bool Recurrence::recurs(const SharedState& earlier, const State& later) const {
  return earlier && earlier->scope.ranks == later.scope.ranks && earlier->scope.links == later.scope.links &&
         later.others.latest < earlier->snapshot.now && earlier->snapshot.recurs_in(later.snapshot);
}

// A state recurs.
void Recurrence::found(const Search& search, const State& earlier, const SharedState& later) {
  known_[static_cast<std::size_t>(search.kind)] = {search.seen_period, search.period};
  if (search.kind != Kind::kRounds) return;
  rounds_from_ = finder_.count() + 2 * (later->seen - earlier.seen);
  if (loop_.receives > 0 && long_.is_over()) loop_reference_ = later;
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

// True where a group is ahead now. Others end the jump of all, or others are ahead already.
bool Recurrence::set_ahead(const Search& search, const State& earlier, const State& later,
                           std::int64_t periods) {
  const bool is_inner = search.kind != Kind::kLoops && loop_.receives > 0;
  if (!sets_ahead_ || is_inner) return false;
  bool any = false;
  for (GroupsAhead::Group& group : ahead_.groups_between(earlier.snapshot, later.snapshot, later.scope)) {
    group.periods = this->periods(earlier, later, ahead_.horizon_of(group), group.scope,
                                  group.earlier.periods_left(group.later));
    if (group.periods > periods || (ahead_.any() && group.periods > 0))
      any |= ahead_.set_ahead(std::move(group));
  }
  return any;
}

// The group of the watched rank recurs, where others do not.
bool Recurrence::set_watched_ahead(const Search& search, const State& later) {
  const bool is_inner = search.kind != Kind::kLoops && loop_.receives > 0;
  if (!sets_ahead_ || is_inner || watched_ < 0) return false;
  for (const SharedState& earlier : {search.latest, search.reference}) {
    if (!earlier || later.others.latest >= earlier->snapshot.now) continue;
    Scope awake = later.scope;
    for (std::size_t rank = 0; rank < awake.ranks.size(); ++rank)
      awake.ranks[rank] &= earlier->scope.ranks[rank];
    for (std::size_t link = 0; link < awake.links.size(); ++link)
      awake.links[link] &= earlier->scope.links[link];
    std::optional<GroupsAhead::Group> group =
        ahead_.recurring_group(watched_, earlier->snapshot, later.snapshot, awake);
    if (!group) continue;
    group->periods = periods(*earlier, later, ahead_.horizon_of(*group), group->scope,
                             group->earlier.periods_left(group->later));
    if (group->periods > 0 && ahead_.set_ahead(std::move(*group))) return true;
  }
  return false;
}

// Its rank is ahead of others.
void Recurrence::leave_watched(Search& search) {
  end(search, true);
  watch_another();
}

// Others than before have something to do.
void Recurrence::watch_another() {
  watched_ = -1;
  idle_max_ = kIdleFirst;
  forget();
}

// The simulation has come to `now`, at which a group is no longer ahead.
void Recurrence::fetch_back(TimePs now) {
  const std::uint64_t packets = simulator_.data_packets();
  report_.periods += ahead_.fetch_back(now);
  report_.packets += simulator_.data_packets() - packets;
  ++report_.jumps;
  watch_another();
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
    count = simulator_.walkers()[index(other.rank)].repeats(other.progress.instance, stride,
                                                            other.progress.lowest - stride, count);
  }
  return moves && count > 0 ? earlier.snapshot.periods_replayed(later.snapshot, count) : 0;
}

std::int64_t Recurrence::periods_until_alike(const State& earlier, const State& later) const {
  std::int64_t periods = 1;
  for (std::size_t at = 0; at < later.places.size(); ++at) {
    const Place &before = earlier.places[at], &after = later.places[at];
    const std::int32_t stride = after.progress.base - before.progress.base;
    if (stride <= 0 || before.progress.instance != after.progress.instance) continue;
    periods = std::max(periods, simulator_.walkers()[index(after.rank)].periods_until_alike(
                                    after.progress.instance, stride, after.progress.lowest - stride));
  }
  return periods;
}

void Recurrence::jump(const State& earlier, const State& later, std::int64_t periods) {
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
  finder_.skip((later.seen - earlier.seen) * count);
  ++report_.jumps;
  report_.periods += count;
  report_.packets += simulator_.data_packets() - packets;
  report_.time += by;
}

}  // namespace genie::twin
