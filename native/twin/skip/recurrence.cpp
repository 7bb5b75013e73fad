#include "twin/skip/recurrence.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {
namespace {

constexpr std::uint64_t kEventsPerWord = 3;  // looks take about 2 % of the time
// Looks since something was found, after which they may take half as much time, and at most how often.
constexpr std::uint32_t kVainEach = 64, kVainDoublingsMost = 3;
constexpr std::uint64_t kFirstCredit = 1 << 20;  // words
// Cost of bringing all hosts to one instant, in words for each rank, and of a word of one rank's state.
constexpr std::uint64_t kStopWordsPerRank = 256, kRankWordCost = 2;
constexpr std::uint64_t kFreeLooks = 8;
constexpr std::uint32_t kLooksFirst = 16;  // at all, before others are looked at alone
constexpr std::uint32_t kLooksMax = 64, kRankLooksMax = 64, kNarrowLooksFirst = 16, kMoreLooksMax = 200;
constexpr std::uint64_t kPostponedMost = 1 << 16;  // periods
constexpr std::uint32_t kWaitsMost = 8;            // for steps that are alike, in one search
constexpr std::uint64_t kPatience = 2;             // slices without a message before packets are watched
constexpr std::uint64_t kIdleMost = 1 << 25;       // events

// Rings take as many rounds as they have ranks, with a few messages in each.
std::uint32_t lag_max(std::size_t ranks) {
  constexpr std::size_t kEach = 16, kLeast = 1024, kMost = 8192;
  return static_cast<std::uint32_t>(std::clamp(ranks * kEach, kLeast, kMost));
}

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

// Events in which each rank takes some packets. Several threads wait for each other at the end of each.
std::uint64_t slice_of(std::size_t ranks, bool has_threads) {
  constexpr std::uint64_t kEach = 64, kLeast = 500, kMost = 8000;
  return std::clamp(ranks * kEach, has_threads ? 4 * kLeast : kLeast, kMost);
}

std::uint64_t count_of(const Scope& scope) {
  return static_cast<std::uint64_t>(std::ranges::count(scope.ranks, 1));
}

}  // namespace

Recurrence::Recurrence(Simulator& simulator, bool sets_ahead)
    : simulator_(simulator),
      sets_ahead_(sets_ahead),
      ahead_(simulator),
      finder_(lag_max(simulator.walkers().size())),
      rhythm_(simulator, ahead_),
      awake_ranks_(simulator.walkers().size()),
      slice_(slice_of(simulator.walkers().size(), simulator.threads() > 1)),
      idle_max_(kIdleFirst),
      credit_(kFirstCredit) {}

bool Recurrence::run(std::uint64_t events, TimePs until) {
  if (!std::exchange(is_checked_, true)) is_foldable_ = simulator_.unfoldable().empty();
  if (!is_foldable_) return simulator_.run(events, until);
  const std::uint64_t begin = simulator_.events();
  while (true) {
    const std::uint64_t played = simulator_.events() - begin;
    if (played >= events) return true;
    const TimePs next_look = std::min(short_.next_look, long_.next_look), wake = ahead_.next_wake();
    const TimePs stop = std::min({next_look, wake, until});
    const bool more = simulator_.run(std::min(next_slice(), events - played), stop);
    take_seen();
    if (simulator_.hosts().is_touched() && !simulator_.over()) {
      fetch_back(simulator_.come_to());
      continue;
    }
    if (more) {
      watch();
      const bool any_search = !short_.is_over() || !long_.is_over();
      slices_alone_ = any_search ? 0 : slices_alone_ + 1;
      continue;
    }
    if (simulator_.over() || stop < std::min(next_look, wake)) return false;
    if (stop == wake) {
      fetch_back(stop);
      continue;
    }
    look(stop, std::min(until, wake));
    if (stop == until) return false;
  }
}

// Longer where nothing has given reason for a search for a while: each end of a slice takes time.
std::uint64_t Recurrence::next_slice() const {
  constexpr std::uint64_t kEachDoubling = 32, kDoublingsMost = 3;
  return slice_ << std::min(slices_alone_ / kEachDoubling, kDoublingsMost);
}

void Recurrence::forget() {
  short_ = long_ = {};
  loop_reference_.reset();
  rhythm_.stop();
  finder_.clear();
  rounds_from_ = loop_from_ = 0;
}

// The rank with most left to do.
void Recurrence::choose_watched() {
  std::int64_t most = 0;
  std::int32_t best = -1;
  const std::vector<Walker>& walkers = simulator_.walkers();
  for (std::size_t rank = 0; rank < walkers.size(); ++rank) {
    const std::int64_t left = walkers[rank].steps_left();
    if (left <= most || static_cast<std::int32_t>(rank) == watched_ ||
        !is_behind(static_cast<std::int32_t>(rank)))
      continue;
    most = left;
    best = static_cast<std::int32_t>(rank);
  }
  if (best < 0 && watched_ < 0) return;
  if (watched_ >= 0) idle_max_ = std::min(2 * idle_max_, kIdleMost);
  watched_ = best;
  if (best >= 0) idle_events_ = 0;
  if (sets_ahead_) {
    Scope awake = ahead_.rest();
    simulator_.leave_out_sleepers(awake, simulator_.now());
    awake_ranks_ = count_of(awake);
  }
  short_ = long_ = {};  // they count what the rank before has seen
  rounds_from_ = 0;
  loop_instance_ = -1;
  loop_ = {};
  loop_reference_.reset();
  finder_.clear();
  simulator_.hosts().ranks().watch(best);
}

void Recurrence::take_seen() {
  const std::uint64_t events = simulator_.events(), played = events - std::exchange(events_, events);
  const std::vector<TimePs> seen = simulator_.hosts().ranks().take_seen();
  idle_events_ = seen.empty() ? idle_events_ + played : 0;
  for (const TimePs time : seen) finder_.add(time);
  credit_ += played / (kEventsPerWord << std::min(looks_in_vain_ / kVainEach, kVainDoublingsMost));
}

// Begins the searches that what has been seen gives reason for.
void Recurrence::watch() {
  if (watched_ < 0 || idle_events_ > idle_max_) choose_watched();
  if (idle_events_ > 0 || watched_ < 0) {
    if (idle_events_ >= kPatience * slice_) watch_packets();
    return;
  }
  rhythm_.stop();
  watch_loops();
  watch_rounds();
}

void Recurrence::find_loop() {
  assert(watched_ >= 0);
  const Walker& walker = simulator_.walkers()[index(watched_)];
  const std::vector<Walker::Progress> in_progress = walker.in_progress();
  for (const Walker::Progress& progress : in_progress) {
    if (progress.instance == loop_instance_) return;
  }
  loop_instance_ = -1;
  loop_ = {};
  loop_reference_.reset();
  for (const Walker::Progress& progress : in_progress) {
    loop_instance_ = progress.instance;
    loop_ = walker.loop(progress.instance);
    loop_from_ = finder_.count();
    if (loop_.receives > 0) return;
  }
}

void Recurrence::watch_loops() {
  find_loop();
  if (!long_.is_over() && !finder_.shows({long_.lag, long_.seen_period})) leave(long_);
  if (loop_.receives == 0 || !long_.is_over() || !can_afford(Kind::kLoops)) return;
  const PeriodFinder::Period seen =
      finder_.multiple_of(static_cast<std::uint32_t>(loop_.receives), times(Kind::kLoops));
  // Collectives that follow each other come again, too, but each ends its loops.
  if (seen.lag == 0 || seen.lag > finder_.count() - loop_from_) return;
  const TimePs next = std::max(simulator_.now() + 1, simulator_.next());
  long_ = {.kind = Kind::kLoops,
           .seen_period = seen.time,
           .lag = seen.lag,
           .period = seen.time,
           .next_look = next,
           .group = {.rank = watched_},
           .events = simulator_.events(),
           .first_period = seen.time};
  if (loop_reference_ && loop_reference_->snapshot.now + seen.time > next) {
    long_.next_look = loop_reference_->snapshot.now + seen.time;
    long_.reference = std::move(loop_reference_);
  }
  loop_reference_.reset();
}

void Recurrence::watch_rounds() {
  const PeriodFinder::Period seen = finder_.shortest(times(Kind::kRounds));
  if (!short_.is_over() && (short_.kind != Kind::kRounds || !are_alike(seen.time, short_.seen_period)))
    leave(short_);
  const bool is_loop = static_cast<std::int32_t>(seen.lag) == loop_.receives ||
                       (!long_.is_over() && seen.time == long_.seen_period);
  if (seen.lag == 0 || is_loop || !short_.is_over() || finder_.count() < rounds_from_ ||
      !can_afford(Kind::kRounds))
    return;
  begin_short(Kind::kRounds, seen.time, watched_);
}

// No message has come for a while.
void Recurrence::watch_packets() {
  const bool is_of_packets = !short_.is_over() && short_.kind == Kind::kPackets;
  // Rounds that are so long wait, where packets recur.
  if (!short_.is_over() && !is_of_packets && failures(Kind::kPackets) > 0) return;
  if (is_of_packets && rhythm_.is_over()) short_ = {};
  if (short_.is_over() && !can_afford(Kind::kPackets)) return;
  const PeriodFinder::Period seen = rhythm_.look(times(Kind::kPackets));
  if (seen.lag == 0) return;
  // Packets between two acknowledgements are equally far apart too: the longer period is that of all.
  if (is_of_packets && !short_.is_over() &&
      (seen.time <= short_.seen_period || are_alike(seen.time, short_.seen_period)))
    return;
  begin_short(Kind::kPackets, seen.time, rhythm_.rank());
}

void Recurrence::begin_short(Kind kind, TimePs period, std::int32_t rank) {
  assert(period > 0);
  const Known& known = known_[static_cast<std::size_t>(kind)];
  const bool is_known = period == known.seen_period;
  // A state that recurred after many periods may recur after fewer of them this time.
  const std::uint32_t parts = is_known ? parts_of(known.whole_period / period) : 1;
  assert(!is_known || known.whole_period % period == 0);
  const TimePs every = is_known ? known.whole_period / parts : period;
  short_ = {.kind = kind,
            .seen_period = period,
            .period = every,
            .next_look = std::max(simulator_.now() + 1, simulator_.next()),
            .group = {.rank = rank, .count = is_known ? 0u : 1u},
            .events = simulator_.events(),
            .first_period = every,
            .looks_max = parts};
}

bool Recurrence::can_afford(Kind kind) const {
  const std::uint32_t failures =
      std::min(failures_[static_cast<std::size_t>(kind)], kind == Kind::kPackets ? 2u : 4u);
  const bool looks_at_all = kind == Kind::kLoops;
  const std::uint64_t one = std::max(state_words_ * 2, looks_at_all ? 0 : rank_cost_ * 16);
  // Loops skip more than rounds: their search is not starved.
  const std::uint64_t for_loops = kind == Kind::kRounds && loop_.receives > 0 ? state_words_ * 2 : 0;
  const std::uint64_t least = (one << failures) + for_loops;
  return report_.snapshots < kFreeLooks ? credit_ >= rank_cost_ << failures : credit_ >= least;
}

// A period must show so many times in a row: twice as often after each search that has found nothing.
std::uint32_t Recurrence::times(Kind kind) const {
  constexpr std::uint32_t kDoublingsMost = 6, kPackets = 40;  // beside acknowledgements of 16 packets
  const std::uint32_t failures = failures_[static_cast<std::size_t>(kind)];
  return (kind == Kind::kPackets ? kPackets : PeriodFinder::kLeast) << std::min(failures, kDoublingsMost);
}

void Recurrence::end(Search& search, bool is_found) {
  failures(search.kind) = is_found ? 0 : failures(search.kind) + 1;
  if (is_found) looks_in_vain_ = 0;
  if (search.kind == Kind::kPackets) rhythm_.stop();
  search = {};
}

// The rhythm has changed. That it has taken a while to show is a failure of the search.
void Recurrence::leave(Search& search) {
  constexpr std::uint32_t kLooksFew = 8;
  if (search.all_looks >= kLooksFew) ++failures(search.kind);
  search = {};
}

Recurrence::SharedState Recurrence::observe(TimePs now, TimePs period) {
  State state;
  state.scope = ahead_.rest();
  if (sets_ahead_) state.others = simulator_.leave_out_sleepers(state.scope, now - period);
  awake_ranks_ = count_of(state.scope);
  state.seen = finder_.count();
  Observe found(now, sets_ahead_);
  simulator_.fold(found, sets_ahead_ ? state.scope : simulator_.whole());
  state.snapshot = found.take();
  const std::vector<Walker>& walkers = simulator_.walkers();
  for (std::size_t rank = 0; rank < walkers.size(); ++rank) {
    if (state.scope.ranks[rank] == 0) continue;
    for (const Walker::Progress& progress : walkers[rank].in_progress())
      state.places.push_back({static_cast<std::int32_t>(rank), progress});
  }
  state_words_ = state.snapshot.words.size() + state.snapshot.counters.size();
  ++report_.snapshots;
  report_.words += state_words_;
  credit_ -= std::min(credit_, state_words_);
  return std::make_shared<const State>(std::move(state));
}

// To a later multiple of the period, at which a look is paid for.
void Recurrence::postpone(Search& search, std::uint64_t cost) {
  const std::uint64_t played = std::max<std::uint64_t>(simulator_.events() - search.events, 1);
  const std::uint64_t periods = 1 + (cost - std::min(cost, credit_)) * kEventsPerWord / played;
  search.next_look += search.period * static_cast<TimePs>(std::min(periods, kPostponedMost));
  search.events = simulator_.events();
  if (const TimePs gap = simulator_.next() - search.next_look; gap > 0 && simulator_.next() != kNever)
    search.next_look += (gap + search.period - 1) / search.period * search.period;
}

// All have come to `now`.
void Recurrence::look(TimePs now, TimePs until) {
  bool looks_long = long_.next_look == now, looks_short = short_.next_look == now;
  if (looks_long && long_.group.count > 0) looks_long = compare_group(long_, now);
  if (looks_short && short_.group.count > 0) looks_short = compare_group(short_, now);
  if (!looks_long && !looks_short) return;
  if (!simulator_.can_fold()) {
    if (looks_long) end(long_, false);
    if (looks_short) end(short_, false);
    return;
  }
  if (report_.snapshots >= kFreeLooks && credit_ < state_words_) {
    if (looks_long) postpone(long_, state_words_);
    if (looks_short) postpone(short_, state_words_);
    return;
  }
  const SharedState state = observe(now, looks_long ? long_.period : short_.period);
  if (looks_long && compare(long_, state, until)) {
    short_ = {};
    return;
  }
  if (looks_short) compare(short_, state, std::min(until, long_.next_look));
}

// Of the latest group.
std::uint32_t Recurrence::looks_most(const Search& search) const {
  if (search.group.from > 0) return kMoreLooksMax;
  const std::uint32_t failures = failures_[static_cast<std::size_t>(search.kind)];
  return search.narrows ? std::min(kNarrowLooksFirst << std::min(failures, 4u), kMoreLooksMax)
                        : kRankLooksMax;
}

// True where all are to be compared now.
bool Recurrence::compare_group(Search& search, TimePs now) {
  if (credit_ < rank_cost_) {
    postpone(search, rank_cost_);
    return false;
  }
  const std::uint32_t ranks = static_cast<std::uint32_t>(simulator_.walkers().size());
  Group& group = search.group;
  Observe seen(now);
  std::vector<std::int32_t> members = group.of(ranks);
  std::erase_if(members, [&](std::int32_t rank) { return !is_behind(rank); });
  simulator_.fold_ranks(seen, members);
  const std::uint64_t words = seen.found().words.size();
  report_.words += words;
  rank_cost_ = words * kRankWordCost + awake_ranks_ * kStopWordsPerRank;
  credit_ -= std::min(credit_, rank_cost_);
  search.events = simulator_.events();
  if (search.of_group && search.of_group->recurs_in(seen.found())) {
    const std::uint32_t looked_at = group.from + group.count;
    const std::uint32_t more = search.narrows ? std::min(looked_at, ranks - looked_at) : 0;
    search.turn_to({group.rank, looked_at, more}, now - search.of_group->now, now);
    return more == 0 || compare_group(search, now);
  }
  ++search.looks;
  ++looks_in_vain_;
  if (++search.all_looks > looks_most(search)) {
    end(search, false);
    return false;
  }
  if (!search.of_group || search.looks >= search.looks_max) {
    if (search.of_group) search.replace();
    search.of_group = seen.take();
  }
  search.next_look = now + search.period;
  return false;
}

// All do not recur with the watched rank.
void Recurrence::narrow(Search& search, TimePs now) {
  const auto ranks = static_cast<std::uint32_t>(simulator_.walkers().size());
  if (std::exchange(search.narrows, true) || ranks < 2) return end(search, false);
  const TimePs every = search.first_period;
  const bool is_known = search.group.from > 0;  // that the first rank recurs with it
  search.turn_to({search.group.rank, is_known ? 1u : 0u, 1}, every, now + every);
}

// True where the simulation has jumped.
bool Recurrence::compare(Search& search, const SharedState& state, TimePs until) {
  const TimePs now = state->snapshot.now;
  search.next_look = now + search.period;
  if (!search.reference) {
    search.reference = state;
    return false;
  }
  search.events = simulator_.events();
  ++search.looks;
  if (++search.all_looks >= (search.narrows ? kLooksMax : kLooksFirst)) {
    narrow(search, now);
    return false;
  }
  // Once something else is over, most recur after one period.
  const bool recurs_at_once = search.latest != search.reference && recurs(search.latest, *state);
  if (!recurs_at_once && !recurs(search.reference, *state)) {
    if (set_watched_ahead(search, *state)) {
      leave_watched(search);
      return true;
    }
    search.latest = state;
    if (search.looks >= search.looks_max) {
      search.reference = state;
      search.replace();
      search.next_look = now + search.period;
    }
    return false;
  }
  const SharedState before = recurs_at_once ? search.latest : search.reference;
  const State& earlier = *before;
  search.period = now - earlier.snapshot.now;
  const std::int64_t count = periods(earlier, *state, until);
  if (set_ahead(search, earlier, *state, count)) {
    leave_watched(search);
    return true;
  }
  if (count > 0) {
    found(search, earlier, state);
    jump(earlier, *state, count);
  } else if (search.kind != Kind::kPackets && !state->places.empty() && ++search.waits <= kWaitsMost) {
    wait(search, earlier, state);
    return false;
  }
  end(search, count > 0);
  return count > 0;
}

}  // namespace genie::twin
