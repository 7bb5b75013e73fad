#include "twin/skip/recurrence.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {
namespace {

// Cost of bringing all hosts to one instant, in words for each rank, and of a word of one rank's state.
constexpr std::uint64_t kStopWordsPerRank = 256, kRankWordCost = 2;
constexpr std::uint32_t kLooksFirst = 16;  // at all, before others are looked at alone
constexpr std::uint32_t kLooksMax = 64, kGroupLooksFew = 48, kRankLooksMax = 64, kNarrowLooksFirst = 16,
                        kMoreLooksMax = 200;
constexpr std::uint64_t kKeptWordsMost = 1 << 24;  // of states of a group, in one search
constexpr std::uint64_t kPostponedMost = 1 << 16;  // periods
constexpr std::uint32_t kWaitsMost = 8;            // for steps that are alike, in one search

// Rings take as many rounds as they have ranks, with a few messages in each.
std::uint32_t lag_max(std::size_t ranks) {
  constexpr std::size_t kEach = 16, kLeast = 1024, kMost = 8192;
  return static_cast<std::uint32_t>(std::clamp(ranks * kEach, kLeast, kMost));
}

// Events in which each rank takes some packets. Several threads wait for each other at the end of each.
std::uint64_t slice_of(std::size_t ranks, bool has_threads) {
  constexpr std::uint64_t kEach = 64, kLeast = 500, kMost = 8000;
  return std::clamp(ranks * kEach, has_threads ? 4 * kLeast : kLeast, kMost);
}

// Of the parts that a scope has for itself.
std::uint64_t digest_of(const Snapshot& state) {
  using Part = Fold::Part;
  std::uint64_t digest = 0;
  for (std::size_t at = 0; at < state.starts.size(); ++at) {
    const Snapshot::Start own = state.starts[at], end = state.end_of(at);
    if (own.kind != Part::kRank && own.kind != Part::kQueuePair && own.kind != Part::kNic &&
        own.kind != Part::kPort)
      continue;
    for (std::uint32_t word = own.words; word < end.words; ++word)
      digest = (digest ^ state.words[word]) * 0x9E3779B97F4A7C15 + (digest >> 29);
  }
  return digest;
}

}  // namespace

Recurrence::Recurrence(Simulator& simulator, bool sets_ahead)
    : simulator_(simulator),
      sets_ahead_(sets_ahead),
      lag_max_(lag_max(simulator.walkers().size())),
      ahead_(simulator),
      rhythm_(simulator, ahead_),
      active_ranks_(simulator.walkers().size()),
      next_change_(simulator.next_change_time()),
      slice_(slice_of(simulator.walkers().size(), simulator.threads() > 1)) {
  watches_.push_back(std::make_unique<Watch>(lag_max_));
}

std::size_t Recurrence::Kept::memory_bytes() const {
  std::size_t bytes = ahead.memory_bytes();
  for (const Watch& own : watches)
    bytes += own.finder.memory_bytes() + own.members.size() + own.towards.size() * sizeof(std::uint32_t);
  return bytes;
}

Recurrence::Kept Recurrence::kept() const {
  Kept kept{.ahead = ahead_.state(), .watches = {}, .known = known_, .budget = budget_};
  if (!ahead_.any()) return kept;
  for (const auto& own : watches_) {
    Watch& copy = kept.watches.emplace_back(*own);
    copy.inner = copy.outer = {};
    copy.loop_reference.reset();
  }
  return kept;
}

void Recurrence::restore(const Kept& kept) {
  ahead_.restore(kept.ahead);
  if (!kept.watches.empty()) watches_.clear();
  for (const Watch& own : kept.watches) {
    watches_.push_back(std::make_unique<Watch>(own));
    simulator_.hosts().ranks().see(own.rank, true);
  }
  known_ = kept.known;
  budget_ = kept.budget;
  budget_.forget_vain();
  next_change_ = simulator_.next_change_time();
}

bool Recurrence::run(std::uint64_t events, TimePs until) {
  if (!std::exchange(is_checked_, true)) is_foldable_ = simulator_.unfoldable().empty();
  if (!is_foldable_) return simulator_.run(events, until);
  const std::uint64_t begin = simulator_.events();
  while (true) {
    const std::uint64_t played = simulator_.events() - begin;
    if (played >= events) return true;
    const TimePs next_look = this->next_look(), wake = ahead_.next_wake();
    const TimePs stop = std::min({next_look, wake, until});
    const bool more = simulator_.run(std::min(next_slice(), events - played), stop);
    take_seen();
    if (simulator_.hosts().is_touched() && !simulator_.over()) {
      fetch_back(simulator_.come_to(), false);
      continue;
    }
    if (more) {
      watch();
      const bool any_search = std::ranges::any_of(watches_, [](const auto& it) { return it->searches(); });
      slices_alone_ = any_search ? 0 : slices_alone_ + 1;
      continue;
    }
    if (simulator_.over() || stop < std::min(next_look, wake)) return false;
    if (stop == wake) {
      fetch_back(stop, false);
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

TimePs Recurrence::next_look() const {
  TimePs next = kNever;
  for (const auto& own : watches_) {
    if (!own->is_ahead) next = std::min(next, own->next_look());
  }
  return next;
}

void Recurrence::forget() {
  for (const auto& own : watches_) own->forget();
  rhythm_.stop();
}

SharedState Recurrence::observe(Watch& own, TimePs now, TimePs period) {
  State state;
  state.is_of_group = own.scope && ahead_.is_awake(*own.scope);
  state.scope = state.is_of_group ? *own.scope : ahead_.rest();
  if (sets_ahead_) {
    state.others = simulator_.leave_out_sleepers(state.scope, now - period);
    if (state.is_of_group) {
      state.foreign = ahead_.foreign_packets(*own.scope, own.towards, now);
    } else {
      active_ranks_ = state.others.active;
      state.foreign = ahead_.foreign_packets(state.scope, ahead_.towards(state.scope), now);
    }
  }
  state.seen = own.finder.count();
  Observe found(now, sets_ahead_);
  simulator_.fold(found, sets_ahead_ ? state.scope : simulator_.whole());
  state.snapshot = found.take();
  if (state.is_of_group) state.digest = digest_of(state.snapshot);
  const std::vector<Walker>& walkers = simulator_.walkers();
  for (std::size_t rank = 0; rank < walkers.size(); ++rank) {
    if (state.scope.ranks[rank] == 0) continue;
    for (const Walker::Progress& progress : walkers[rank].in_progress())
      state.places.push_back({static_cast<std::int32_t>(rank), progress});
  }
  const std::uint64_t words = state.snapshot.words.size() + state.snapshot.counters.size();
  if (state.is_of_group) {
    own.words = words;
  } else {
    budget_.set_state_words(words);
  }
  ++report_.snapshots;
  report_.words += words;
  budget_.pay(words);
  return std::make_shared<const State>(std::move(state));
}

// To a later multiple of the period, at which a look is paid for. Before a period is over, its events are not
// known.
void Recurrence::postpone(Search& search, std::uint64_t cost) {
  std::uint64_t periods = 1;
  if (search.next_look - search.looked_at >= search.period) {
    const std::uint64_t played = std::max<std::uint64_t>(simulator_.events() - search.events, 1);
    periods += budget_.periods_until(cost, played);
    search.events = simulator_.events();
    search.looked_at = search.next_look;
  }
  search.next_look += search.period * static_cast<TimePs>(std::min(periods, kPostponedMost));
  if (const TimePs gap = simulator_.next() - search.next_look; gap > 0 && simulator_.next() != kNever)
    search.next_look += (gap + search.period - 1) / search.period * search.period;
}

// All have come to `now`.
void Recurrence::look(TimePs now, TimePs until) {
  for (std::size_t at = 0; at < watches_.size(); ++at) {
    Watch* const own = watches_[at].get();  // its place may change
    if (own->is_ahead || own->next_look() != now) continue;
    const std::uint64_t jumps = report_.jumps;
    look(*own, now, std::min(until, ahead_.next_wake()));
    if (report_.jumps == jumps) continue;
    for (const auto& other : watches_) {
      if (other.get() != own && !other->is_ahead) other->forget();
    }
    return;
  }
}

void Recurrence::look(Watch& own, TimePs now, TimePs until) {
  bool looks_long = own.outer.next_look == now, looks_short = own.inner.next_look == now;
  if (looks_long && own.outer.group.count > 0) looks_long = compare_group(own, own.outer, now);
  if (looks_short && own.inner.group.count > 0) looks_short = compare_group(own, own.inner, now);
  if (!looks_long && !looks_short) return;
  const bool is_of_group = own.scope && ahead_.is_awake(*own.scope);
  if (!simulator_.can_fold(is_of_group ? *own.scope : simulator_.whole())) {
    if (looks_long) end(own, own.outer, false);
    if (looks_short) end(own, own.inner, false);
    return;
  }
  // After some looks at rounds in vain others are left out, so that a search for loops can begin.
  const bool keeps_for_loops = !looks_long && own.scope && own.outer.is_over() && own.loop.receives > 0 &&
                               own.inner.all_looks >= kLooksFew;
  const std::uint64_t words = words_of(own) * (keeps_for_loops ? 3 : 1);
  if (report_.snapshots >= kFreeLooks && !budget_.has(words)) {
    if (looks_long) postpone(own.outer, words);
    if (looks_short) postpone(own.inner, words);
    return;
  }
  const SharedState state = observe(own, now, looks_long ? own.outer.period : own.inner.period);
  if (looks_long && compare(own, own.outer, state, until)) {
    own.inner = {};
    return;
  }
  if (looks_short) compare(own, own.inner, state, std::min(until, own.outer.next_look));
}

// Of the latest group.
std::uint32_t Recurrence::looks_most(const Watch& own, const Search& search) {
  if (search.group.from > 0) return kMoreLooksMax;
  const std::uint32_t failures = own.failures[static_cast<std::size_t>(search.kind)];
  return search.narrows ? std::min(kNarrowLooksFirst << std::min(failures, 4u), kMoreLooksMax)
                        : kRankLooksMax;
}

// A delay goes round a ring in as many rounds as there are ranks, at the most.
std::uint32_t Recurrence::group_looks_most(const Watch& own, const Search& search) {
  const auto ranks = static_cast<TimePs>(std::ranges::count(own.members, 1));
  if (search.kind != Kind::kRounds) return kGroupLooksFew;
  const TimePs rounds = std::max<TimePs>(search.period / search.seen_period, 1);
  return std::max(kGroupLooksFew, static_cast<std::uint32_t>(2 * ranks / rounds));
}

// True where all are to be compared now.
bool Recurrence::compare_group(Watch& own, Search& search, TimePs now) {
  if (!budget_.has(budget_.rank_cost())) {
    postpone(search, budget_.rank_cost());
    return false;
  }
  const std::uint32_t ranks = static_cast<std::uint32_t>(simulator_.walkers().size());
  RankGroup& group = search.group;
  Observe seen(now);
  std::vector<std::int32_t> members = group.of(ranks);
  std::erase_if(members, [&](std::int32_t rank) {
    return !is_awake(rank) || (!own.members.empty() && own.members[index(rank)] == 0);
  });
  simulator_.fold_ranks(seen, members);
  const std::uint64_t words = seen.found().words.size();
  report_.words += words;
  budget_.pay_for_ranks(words * kRankWordCost + active_ranks_ * kStopWordsPerRank);
  search.events = simulator_.events();
  search.looked_at = now;
  if (search.of_group && search.of_group->recurs_in(seen.found())) {
    const std::uint32_t looked_at = group.from + group.count;
    const std::uint32_t more = search.narrows ? std::min(looked_at, ranks - looked_at) : 0;
    search.turn_to({group.rank, looked_at, more}, now - search.of_group->now, now);
    return more == 0 || compare_group(own, search, now);
  }
  ++search.looks;
  budget_.note_vain();
  if (++search.all_looks > looks_most(own, search)) {
    end(own, search, false);
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
void Recurrence::narrow(Watch& own, Search& search, TimePs now) {
  const auto ranks = static_cast<std::uint32_t>(simulator_.walkers().size());
  if (std::exchange(search.narrows, true) || ranks < 2) return end(own, search, false);
  const TimePs every = search.first_period;
  const bool is_known = search.group.from > 0;  // that the first rank recurs with it
  search.turn_to({search.group.rank, is_known ? 1u : 0u, 1}, every, now + every);
}

// True where the simulation has jumped, or groups are ahead.
bool Recurrence::compare(Watch& own, Search& search, const SharedState& state, TimePs until) {
  const TimePs now = state->snapshot.now;
  search.next_look = now + search.period;
  if (!search.reference) {
    search.reference = state;
    return false;
  }
  search.events = simulator_.events();
  search.looked_at = now;
  ++search.looks;
  ++search.all_looks;
  if (state->is_of_group && search.all_looks >= group_looks_most(own, search)) {
    end(own, search, false);
    return false;
  }
  if (!state->is_of_group && search.all_looks >= (search.narrows ? kLooksMax : kLooksFirst)) {
    narrow(own, search, now);
    return false;
  }
  // Once something else is over, most recur after one period.
  const bool recurs_at_once = search.latest != search.reference && recurs(search.latest, *state);
  if (!recurs_at_once && !recurs(search.reference, *state)) {
    if (set_own_ahead(own, search, state)) return true;
    search.latest = state;
    if (state->is_of_group) {
      if ((search.kept.size() + 1) * own.words < kKeptWordsMost) search.kept.push_back(state);
      return false;
    }
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
  if (set_ahead(own, search, before, state, count)) return true;
  if (count > 0) {
    found(own, search, earlier, state);
    jump(own, earlier, *state, count);
  } else if (search.kind != Kind::kPackets && !state->places.empty() && ++search.waits <= kWaitsMost) {
    wait(search, earlier, state);
    return false;
  }
  end(own, search, count > 0);
  return count > 0;
}

}  // namespace genie::twin
