// Recurrence: ranks that are watched, and the searches that what they see gives reason for.
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "core/index.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::twin {
namespace {

constexpr std::uint64_t kPatience = 2;    // slices without a message before packets are watched
constexpr std::uint64_t kUnlikeMost = 8;  // messages at other times, before a rhythm shows again
constexpr std::uint64_t kIdleMost = 1 << 25, kIdleOfGroup = 1 << 22;  // events

// Two periods are small multiples of a third. Messages that come by several paths show now one, now another.
bool are_alike(TimePs one, TimePs other) {
  constexpr TimePs kMultipleMost = 16;
  return std::gcd(one, other) * kMultipleMost >= std::max(one, other);
}

// The number of equal looks, at most 4, that so many periods are divided into. Fewer than 8 are not divided.
std::uint32_t parts_of(TimePs periods) {
  constexpr std::uint32_t kMost = 4, kFew = 8;
  std::uint32_t parts = periods < kFew ? 1 : kMost;
  while (periods % parts != 0) --parts;
  return parts;
}

}  // namespace

// The rank with most left to do, of those that no other watch is for.
void Recurrence::choose_watched(Watch& own) {
  std::int64_t most = 0;
  std::int32_t best = -1;
  const std::vector<Walker>& walkers = simulator_.walkers();
  std::vector<std::uint8_t> is_watched(walkers.size(), 0);
  for (const auto& other : watches_) {
    for (std::size_t rank = 0; rank < other->members.size(); ++rank) is_watched[rank] |= other->members[rank];
  }
  for (std::size_t rank = 0; rank < walkers.size(); ++rank) {
    if (is_watched[rank] != 0 || static_cast<std::int32_t>(rank) == own.rank ||
        !is_awake(static_cast<std::int32_t>(rank)))
      continue;
    const std::int64_t left = walkers[rank].steps_left();
    if (left <= most) continue;
    most = left;
    best = static_cast<std::int32_t>(rank);
  }
  if (best < 0 && own.rank < 0) return;
  if (own.rank >= 0) own.idle_max = std::min(2 * own.idle_max, kIdleMost);
  simulator_.hosts().ranks().see(own.rank, false);
  own.rank = best;
  if (best >= 0) own.idle_events = 0;
  if (sets_ahead_) {
    Scope awake = ahead_.rest();
    active_ranks_ = simulator_.leave_out_sleepers(awake, std::exchange(chosen_at_, simulator_.next())).active;
  }
  own.inner = own.outer = {};  // they count what the rank before has seen
  own.rounds_from = 0;
  own.leave_loop();
  own.finder.clear();
  simulator_.hosts().ranks().see(best, true);
}

void Recurrence::take_seen() {
  // A change of the network makes earlier failures meaningless.
  if (const TimePs change = simulator_.next_change_time(); std::exchange(next_change_, change) != change) {
    for (const auto& own : watches_) own->failures = {};
    budget_.forget_vain();
  }
  const std::uint64_t played = budget_.earn(simulator_.events());
  for (const auto& own : watches_) own->idle_events += played;
  for (const auto& [rank, time] : simulator_.hosts().ranks().take_seen()) {
    for (const auto& own : watches_) {
      if (own->rank != rank) continue;
      own->finder.add(time);
      own->idle_events = 0;
    }
  }
}

void Recurrence::watch() {
  // Groups that have nothing to do for a while are as good as unknown.
  std::erase_if(watches_, [&](const auto& own) {
    const bool is_over = own != watches_.front() && !own->is_ahead && own->idle_events > kIdleOfGroup;
    if (is_over) simulator_.hosts().ranks().see(own->rank, false);
    return is_over;
  });
  for (const auto& own : watches_) {
    if (!own->is_ahead) watch(*own);
  }
}

bool Recurrence::are_idle(std::uint64_t events) const {
  return std::ranges::all_of(watches_,
                             [&](const auto& own) { return own->is_ahead || own->idle_events >= events; });
}

// Begins the searches that what has been seen gives reason for.
void Recurrence::watch(Watch& own) {
  const bool is_first = &own == watches_.front().get();
  if (is_first && (own.rank < 0 || own.idle_events > own.idle_max)) choose_watched(own);
  if (own.idle_events > 0 || own.rank < 0) {
    if (is_first && are_idle(kPatience * slice_)) watch_packets(own);
    return;
  }
  if (is_first) rhythm_.stop();
  watch_loops(own);
  watch_rounds(own);
}

void Recurrence::find_loop(Watch& own) {
  assert(own.rank >= 0);
  const Walker& walker = simulator_.walkers()[index(own.rank)];
  const std::vector<Walker::Progress> in_progress = walker.in_progress();
  for (const Walker::Progress& progress : in_progress) {
    if (progress.instance == own.loop_instance) return;
  }
  own.leave_loop();
  for (const Walker::Progress& progress : in_progress) {
    own.loop_instance = progress.instance;
    own.loop = walker.loop(progress.instance);
    own.loop_from = own.finder.count();
    if (own.loop.receives > 0) return;
  }
}

void Recurrence::watch_loops(Watch& own) {
  find_loop(own);
  if (!own.outer.is_over() && !own.finder.shows({own.outer.lag, own.outer.seen_period}))
    leave(own, own.outer);
  if (own.loop.receives == 0 || !own.outer.is_over() || !can_afford(own, Kind::kLoops)) return;
  const PeriodFinder::Period seen =
      own.finder.multiple_of(static_cast<std::uint32_t>(own.loop.receives), times(own, Kind::kLoops));
  // Collectives that follow each other come again, too, but each ends its loops.
  if (seen.lag == 0 || seen.lag > own.finder.count() - own.loop_from) return;
  const TimePs next = earliest_look(own);
  own.outer = {.kind = Kind::kLoops,
               .seen_period = seen.time,
               .lag = seen.lag,
               .period = seen.time,
               .next_look = next,
               .group = {.rank = own.rank},
               .events = simulator_.events(),
               .looked_at = simulator_.next(),
               .first_period = seen.time};
  if (own.loop_reference && own.loop_reference->snapshot.now + seen.time > next) {
    own.outer.next_look = own.loop_reference->snapshot.now + seen.time;
    own.outer.reference = std::move(own.loop_reference);
  }
  own.loop_reference.reset();
}

// A delay by others goes round a ring, and moves the messages of each rank that it passes. Looks at a group
// move with those of the watched rank, and its search outlasts the messages that come at other times.
bool Recurrence::keeps_step(Watch& own, TimePs seen_period) {
  Search& search = own.inner;
  if (!own.scope || search.is_over() || search.kind != Kind::kRounds) return false;
  const std::uint64_t count = own.finder.count();
  if (seen_period == 0 || !are_alike(seen_period, search.seen_period))
    return count - search.beat.shown <= kUnlikeMost + 2 * std::max(search.lag, times(own, Kind::kRounds));
  search.beat.shown = count;
  const std::uint64_t periods = (count - search.beat.seen) / search.lag;
  const std::uint64_t seen = search.beat.seen + periods * search.lag;
  if (periods == 0) return true;
  const TimePs time = own.finder.time(count - seen);
  const TimePs slip = time - search.beat.time - static_cast<TimePs>(periods) * search.seen_period;
  if (time < 0) return false;
  search.beat = {seen, time, count};
  if (std::max(slip, -slip) >= search.seen_period / 2) return false;
  search.next_look += slip;
  if (slip >= 0) return true;
  const TimePs next = std::max(simulator_.now() + 1, simulator_.next());
  while (search.next_look < next) search.next_look += search.period;
  return true;
}

void Recurrence::watch_rounds(Watch& own) {
  const PeriodFinder::Period seen = own.finder.shortest(times(own, Kind::kRounds));
  if (keeps_step(own, seen.time)) return;
  // Shorter periods show within a longer one. Looks at a group move with its messages instead.
  const bool shows_within = !own.scope && seen.time < own.inner.seen_period &&
                            own.finder.shows({own.inner.lag, own.inner.seen_period});
  const bool is_shown =
      own.inner.kind == Kind::kRounds && (shows_within || are_alike(seen.time, own.inner.seen_period));
  if (!own.inner.is_over() && !is_shown) leave(own, own.inner);
  const bool is_loop = static_cast<std::int32_t>(seen.lag) == own.loop.receives ||
                       (!own.outer.is_over() && seen.time == own.outer.seen_period);
  if (seen.lag == 0 || is_loop || !own.inner.is_over() || own.finder.count() < own.rounds_from ||
      !can_afford(own, Kind::kRounds))
    return;
  begin_inner(own, Kind::kRounds, seen, own.rank);
}

// No message has come for a while.
void Recurrence::watch_packets(Watch& own) {
  const bool is_of_packets = !own.inner.is_over() && own.inner.kind == Kind::kPackets;
  // Rounds that are so long wait, where packets recur.
  if (!own.inner.is_over() && !is_of_packets && own.failures[static_cast<std::size_t>(Kind::kPackets)] > 0)
    return;
  if (is_of_packets && rhythm_.is_over()) own.inner = {};
  if (own.inner.is_over() && !can_afford(own, Kind::kPackets)) return;
  const PeriodFinder::Period seen = rhythm_.look(times(own, Kind::kPackets));
  if (seen.lag == 0) return;
  // Packets between two acknowledgements are equally far apart too: the longer period is that of all.
  if (is_of_packets && !own.inner.is_over() &&
      (seen.time <= own.inner.seen_period || are_alike(seen.time, own.inner.seen_period)))
    return;
  begin_inner(own, Kind::kPackets, seen, rhythm_.rank());
}

void Recurrence::begin_inner(Watch& own, Kind kind, const PeriodFinder::Period& seen, std::int32_t rank) {
  const TimePs period = seen.time;
  assert(period > 0);
  const KnownPeriod& known = known_[static_cast<std::size_t>(kind)];
  const bool is_known = period == known.seen;
  // A state that recurred after many periods may recur after fewer of them this time.
  const std::uint32_t parts = is_known ? parts_of(known.whole / period) : 1;
  assert(!is_known || known.whole % period == 0);
  const TimePs every = is_known ? known.whole / parts : period;
  own.inner = {.kind = kind,
               .seen_period = period,
               .lag = seen.lag,
               .period = every,
               .next_look = earliest_look(own),
               .group = {.rank = rank, .count = is_known ? 0u : 1u},
               .events = simulator_.events(),
               .looked_at = simulator_.next(),
               .first_period = every,
               .beat = {own.finder.count(), own.finder.time(0), own.finder.count()},
               .looks_max = parts};
}

// Once all have come to a time, or the watched group while all others stand.
TimePs Recurrence::earliest_look(const Watch& own) const {
  const TimePs next = simulator_.next();
  return own.scope && ahead_.is_behind(next) ? next : std::max(simulator_.now() + 1, next);
}

bool Recurrence::can_afford(const Watch& own, Kind kind) const {
  const std::uint32_t failures =
      std::min(own.failures[static_cast<std::size_t>(kind)], kind == Kind::kPackets ? 2u : 4u);
  const bool looks_at_all = kind == Kind::kLoops;
  const std::uint64_t one = std::max(words_of(own) * 2, looks_at_all ? 0 : budget_.rank_cost() * 16);
  // Loops skip more than rounds: their search is not starved.
  const std::uint64_t for_loops = kind == Kind::kRounds && own.loop.receives > 0 ? words_of(own) * 2 : 0;
  const std::uint64_t least = (one << failures) + for_loops;
  return budget_.has(report_.snapshots < kFreeLooks ? budget_.rank_cost() << failures : least);
}

// A period must show so many times in a row: twice as often after each search that has found nothing.
std::uint32_t Recurrence::times(const Watch& own, Kind kind) {
  constexpr std::uint32_t kDoublingsMost = 6, kPackets = 40;  // beside acknowledgements of 16 packets
  const std::uint32_t failures = own.failures[static_cast<std::size_t>(kind)];
  return (kind == Kind::kPackets ? kPackets : PeriodFinder::kLeast) << std::min(failures, kDoublingsMost);
}

void Recurrence::end(Watch& own, Search& search, bool is_found) {
  std::uint32_t& failures = own.failures[static_cast<std::size_t>(search.kind)];
  failures = is_found ? 0 : failures + 1;
  if (search.kind == Kind::kPackets) rhythm_.stop();
  search = {};
  if (is_found) {
    budget_.forget_vain();
  } else {  // its group may have to do with others now
    own.scope.reset();
    own.inner.kept.clear();
    own.outer.kept.clear();
  }
}

// The rhythm has changed. That it has taken a while to show is a failure of the search.
void Recurrence::leave(Watch& own, Search& search) {
  if (search.all_looks >= kLooksFew) ++own.failures[static_cast<std::size_t>(search.kind)];
  search = {};
}

}  // namespace genie::twin
