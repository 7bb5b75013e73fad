#include "twin/skip/recurrence.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {
namespace {

constexpr std::uint64_t kEventsPerWord = 2;  // a word costs a fiftieth of an event or less
constexpr std::uint64_t kFreeLooks = 8;
constexpr std::uint32_t kLooksMax = 64;    // of one search
constexpr std::uint64_t kPatience = 2;     // slices without a message before packets are watched
constexpr std::uint64_t kIdleMost = 1 << 25;

// Events in which each rank takes some packets.
std::uint64_t slice_of(std::size_t ranks) {
  constexpr std::uint64_t kEach = 64, kLeast = 500, kMost = 8000;
  return std::clamp(ranks * kEach, kLeast, kMost);
}

// Rings take as many rounds as they have ranks, with a few messages in each.
std::uint32_t lag_max(std::size_t ranks) {
  constexpr std::size_t kEach = 16, kLeast = 128, kMost = 4096;
  return static_cast<std::uint32_t>(std::clamp(ranks * kEach, kLeast, kMost));
}

}  // namespace

Recurrence::Recurrence(Simulator& simulator)
    : simulator_(simulator),
      finder_(lag_max(simulator.walkers().size())),
      slice_(slice_of(simulator.walkers().size())),
      rhythm_(simulator) {}

bool Recurrence::run(std::uint64_t events, TimePs until) {
  if (!std::exchange(is_checked_, true)) is_foldable_ = simulator_.unfoldable().empty();
  if (!is_foldable_) return simulator_.run(events, until);
  const std::uint64_t begin = simulator_.events();
  while (true) {
    const std::uint64_t played = simulator_.events() - begin;
    if (played >= events) return true;
    const TimePs next_look = std::min(short_.next_look, long_.next_look), stop = std::min(next_look, until);
    const bool more = simulator_.run(std::min(slice_, events - played), stop);
    take_seen();
    if (more) {
      watch();
      continue;
    }
    if (simulator_.over() || stop < next_look) return false;
    look(stop, until);
    if (stop == until) return false;
  }
}

// The rank with most left to do.
void Recurrence::choose_watched() {
  std::int64_t most = 0;
  std::int32_t best = -1;
  const std::vector<Walker>& walkers = simulator_.walkers();
  for (std::size_t rank = 0; rank < walkers.size(); ++rank) {
    const std::int64_t left = walkers[rank].steps_left();
    if (left <= most || static_cast<std::int32_t>(rank) == watched_) continue;
    most = left;
    best = static_cast<std::int32_t>(rank);
  }
  if (watched_ >= 0) idle_max_ = std::min(2 * idle_max_, kIdleMost);
  watched_ = best;
  if (best >= 0) idle_events_ = 0;
  seen_until_ = 0;
  loop_key_ = {};
  loop_lag_ = 0;
  loop_reference_.reset();
  finder_.clear();
  simulator_.hosts().ranks().watch(best);
}

void Recurrence::take_seen() {
  const std::uint64_t events = simulator_.events(), played = events - std::exchange(events_, events);
  const std::vector<TimePs> seen = simulator_.hosts().ranks().take_seen();
  idle_events_ = seen.empty() ? idle_events_ + played : 0;
  for (const TimePs time : seen) finder_.add(time);
  credit_ += played / kEventsPerWord;
}

// Begins the searches that what has been seen gives reason for.
void Recurrence::watch() {
  if (watched_ < 0 || idle_events_ > idle_max_) choose_watched();
  if (idle_events_ > 0) return watch_packets();
  rhythm_.stop();
  const PeriodFinder::Period found = finder_.shortest();
  if (!short_.is_over() && (of_packets_ || found.time != seen_period_)) short_ = {};  // the rhythm has changed
  if (!can_afford(failures_)) return;
  if (const TimePs loop = finder_.period_of(loop_lag_); loop > 0 && long_.is_over() && loop_reference_) {
    const TimePs next_look = loop_reference_->snapshot.now + loop;
    if (next_look > std::max(simulator_.now(), simulator_.next())) {
      long_.begin(loop, next_look, false);
      long_.reference = std::move(loop_reference_);
    }
    loop_reference_.reset();
  }
  if (found.lag == 0 || !short_.is_over() || finder_.count() < seen_until_) return;
  of_packets_ = false;
  begin_short(found, watched_);
}

// No message has come for a while.
void Recurrence::watch_packets() {
  if (idle_events_ < kPatience * slice_ || !short_.is_over() || !can_afford(packet_failures_)) return;
  const PeriodFinder::Period found = rhythm_.look();
  if (found.lag == 0) return;
  of_packets_ = true;
  begin_short(found, rhythm_.rank());
}

void Recurrence::begin_short(PeriodFinder::Period found, std::int32_t rank) {
  const Known& known = of_packets_ ? known_of_packets_ : known_;
  seen_period_ = found.time;
  search_rank_ = rank;
  const bool is_known = found.time == known.seen;
  const TimePs at = std::max(simulator_.now() + 1, simulator_.next());
  short_.begin(is_known ? known.whole : found.time, at, !is_known);
}

bool Recurrence::can_afford(std::uint32_t failures) const {
  return report_.snapshots < kFreeLooks || credit_ >= state_words_ * 3 << std::min(failures, 6u);
}

void Recurrence::end_searches(bool found) {
  short_ = long_ = {};
  failures_ = found ? 0 : failures_ + 1;
}

Recurrence::State Recurrence::observe(TimePs now) {
  State state;
  state.seen = finder_.count();
  Observe found(now);
  simulator_.fold(found);
  state.snapshot = found.take();
  const std::vector<Walker>& walkers = simulator_.walkers();
  for (std::size_t rank = 0; rank < walkers.size(); ++rank) {
    for (const Walker::Progress& progress : walkers[rank].in_progress())
      state.places.push_back({static_cast<std::int32_t>(rank), progress});
  }
  state_words_ = state.snapshot.words.size() + state.snapshot.counters.size();
  ++report_.snapshots;
  report_.words += state_words_;
  credit_ -= std::min(credit_, state_words_);
  return state;
}

// All have come to `now`.
void Recurrence::look(TimePs now, TimePs until) {
  if (short_.next_look == now && short_.is_of_rank && compare_rank(now) && long_.next_look != now) return;
  if (!simulator_.can_fold()) return end_searches(false);
  const State state = observe(now);
  if (long_.next_look == now && compare(long_, state, until)) return end_searches(true);
  if (short_.next_look == now && !short_.is_of_rank) compare(short_, state, std::min(until, long_.next_look));
}

// False where the rank's state recurs, so that all are to be compared.
bool Recurrence::compare_rank(TimePs now) {
  Observe found(now);
  simulator_.fold_rank(found, search_rank_);
  report_.words += found.found().words.size();
  Search& search = short_;
  if (search.of_rank && search.of_rank->recurs_in(found.found())) {
    search.begin(now - search.of_rank->now, now, false);
    return false;
  }
  search.next_look = now + search.period;
  ++search.looks;
  if (++search.all_looks > kLooksMax) {
    search = {};
  } else if (!search.of_rank || search.looks >= search.looks_max) {
    if (search.of_rank) search.looks_max *= 2;
    search.of_rank = found.take();
    search.looks = 0;
  }
  return true;
}

// True where the simulation has jumped.
bool Recurrence::compare(Search& search, const State& state, TimePs until) {
  const TimePs now = state.snapshot.now;
  search.next_look = now + search.period;
  if (!search.reference) {
    search.reference = state;
    return false;
  }
  ++search.looks;
  if (++search.all_looks >= kLooksMax || (credit_ == 0 && report_.snapshots >= kFreeLooks)) {
    search = {};
    ++(of_packets_ && &search == &short_ ? packet_failures_ : failures_);
    return false;
  }
  State& earlier = *search.reference;
  if (earlier.snapshot.recurs_in(state.snapshot)) {
    search.period = now - earlier.snapshot.now;
    const std::int64_t count = periods(earlier, state, until);
    if (&search == &short_ && of_packets_) {
      rhythm_.stop();
      if (count > 0) {
        known_of_packets_ = {seen_period_, search.period};
        jump(earlier, state, count);
      }
      packet_failures_ = count > 0 ? 0 : packet_failures_ + 1;
      search = {};
      return count > 0;
    }
    if (count > 0) {
      if (&search == &short_) {
        known_ = {seen_period_, search.period};
        std::int32_t stride = 0;
        loop_lag_ = static_cast<std::uint32_t>(loop_of(earlier, state, stride).receives);
        if (loop_lag_ > 0) loop_reference_ = state;
      }
      jump(earlier, state, count);
      seen_until_ = finder_.count() + 2 * (state.seen - earlier.seen);
      failures_ = 0;
      search = {};
      return true;
    }
    if (state.places.empty()) {  // nothing moves
      search = {};
      return false;
    }
    // The steps are not alike though the states are: looks again after the loop that they belong to, or when
    // the steps that are unlike are over.
    const std::int64_t loop = periods_in_loop(earlier, state);
    const std::int64_t wait = loop > 1 ? 1 : periods_until_alike(earlier, state);
    search.period *= std::max<std::int64_t>(loop, 1);
    search.next_look = now + wait * search.period;
    search.reference.reset();
    if (wait == 1) search.reference = state;
  } else if (search.looks >= search.looks_max) {
    earlier = state;
    search.looks = 0;
    search.looks_max *= 2;
  }
  return false;
}

// The number of times that what lies between two states can be played again.
std::int64_t Recurrence::periods(const State& earlier, const State& later, TimePs until) const {
  const TimePs now = later.snapshot.now;
  const TimePs end = std::min({later.snapshot.horizon, simulator_.next_change_time(), until, kLastTime});
  std::int64_t count = std::max<TimePs>(end - now, 0) / (now - earlier.snapshot.now);
  const std::int64_t left = earlier.snapshot.periods_left(later.snapshot);
  count = std::min(count, left);
  bool moves = left != Snapshot::kUnbounded;
  for (std::size_t at = 0; at < later.places.size() && count > 0; ++at) {
    const Place &before = earlier.places[at], &after = later.places[at];
    if (before.rank != after.rank || before.progress.instance != after.progress.instance) return 0;
    const std::int32_t stride = after.progress.base - before.progress.base;
    if (stride == 0) continue;
    moves = true;
    count = std::min(count, simulator_.walkers()[index(after.rank)].repeats(after.progress.instance, stride,
                                                                            after.progress.lowest - stride));
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

// The loop that the watched rank's rounds are in, and how many steps lie between two states.
Walker::Loop Recurrence::loop_of(const State& earlier, const State& later, std::int32_t& stride) {
  for (std::size_t at = 0; at < later.places.size(); ++at) {
    const Place &before = earlier.places[at], &after = later.places[at];
    stride = after.progress.base - before.progress.base;
    if (after.rank != watched_ || stride <= 0) continue;
    const LoopKey key{after.progress.instance, stride};
    if (key != loop_key_)
      loop_ =
          simulator_.walkers()[index(watched_)].loop(after.progress.instance, stride, after.progress.base);
    if (loop_.steps > 0) loop_key_ = key;
    return loop_;
  }
  return {};
}

std::int64_t Recurrence::periods_in_loop(const State& earlier, const State& later) {
  std::int32_t stride = 0;
  const Walker::Loop loop = loop_of(earlier, later, stride);
  return loop.steps > 0 && loop.steps % stride == 0 ? loop.steps / stride : 0;
}

void Recurrence::jump(const State& earlier, const State& later, std::int64_t periods) {
  const std::uint64_t packets = simulator_.data_packets(), count = static_cast<std::uint64_t>(periods);
  Shift shift(earlier.snapshot, later.snapshot, periods);
  simulator_.fold(shift);
  assert(shift.is_over());
  simulator_.move(shift.by(), later.snapshot.now + shift.by());
  finder_.skip((later.seen - earlier.seen) * count);
  ++report_.jumps;
  report_.periods += count;
  report_.packets += simulator_.data_packets() - packets;
  report_.time += shift.by();
}

}  // namespace genie::twin
