// A port that saves up what it does not send. Pure.
#pragma once
#include <algorithm>
#include <cmath>

#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie::twin {

// Token bucket: packets leave at once while it has tokens, and at the rate on average, as Linux's tbf has it.
// It is the generic cell rate algorithm (ITU-T I.371), in time. `due` is when the bucket is full again.
struct TokenBucket {
  TimePs burst = 0, due = 0;
  // When a packet that takes `time` at the rate may leave, not before `at`.
  TimePs start(TimePs at, TimePs time) const { return std::max(at, due + time - burst); }
  // A packet leaves at `at`; a pause frame does without waiting for its tokens.
  void take(TimePs at, TimePs time) { due = std::max(due, at) + time; }
  // `most`: the time of the longest packet at the rate.
  void fold(Fold& fold, TimePs most) {
    static_assert(has_size<TokenBucket>(16));
    fold.exact(burst);
    fold.not_before(due, std::max<TimePs>(most - burst, 0));
  }
  // The rate is `slower` times lower from `now` on, and the burst takes `burst_ps` at it: the bucket lacks as
  // many tokens as before.
  void change_rate(TimePs burst_ps, double slower, TimePs now) {
    burst = burst_ps;
    if (due > now) due = now + std::llround(static_cast<double>(due - now) * slower);
  }
};

}  // namespace genie::twin
