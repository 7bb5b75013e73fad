// A port that saves up what it does not send. Pure.
#pragma once
#include <algorithm>

#include "core/time.hpp"

namespace genie::twin {

// Packets leave at once while it has tokens, and at the rate on average, as Linux's tbf has it; by the
// generic cell rate algorithm (ITU-T I.371), in time: `due` is when the bucket is full again.
struct TokenBucket {
  TimePs burst = 0, due = 0;
  // When a packet that takes `time` at the rate may leave, not before `at`.
  TimePs start(TimePs at, TimePs time) const { return std::max(at, due + time - burst); }
  void take(TimePs at, TimePs time) { due = std::max(due, at) + time; }
};

}  // namespace genie::twin
