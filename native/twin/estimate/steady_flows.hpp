// Flows of a simulation, and its movement to a later time by an estimate of their packets; see
// ARCHITECTURE.md, "Estimated skips".
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

// A queue pair with messages that are not over. `unacked_psn`, `end_psn`, `packets` and `left`: of the first.
struct Flow {
  std::uint32_t queue_pair = 0;
  std::int32_t rank = 0, peer = 0;
  std::uint32_t messages = 0, unacked_psn = 0, end_psn = 0;
  std::uint32_t packets = 0, left = 0;  // in the message, and of it to be sent for the first time
  std::int64_t allowed_bps = 0;         // by congestion control; -1: it sets no rate
};

class SteadyFlows {
 public:
  explicit SteadyFlows(Simulator& simulator) : simulator_(simulator) {}

  // The reason why no state of the simulation can be moved; "" where it can.
  std::string unusable() const { return simulator_.unfoldable(); }
  // By queue pair.
  std::vector<Flow> flows(TimePs now) const;
  // A number for each of some queue pairs, equal where paths, and what they share with others, are alike.
  std::vector<std::uint32_t> classes(const std::vector<std::uint32_t>& queue_pairs) const;
  // Takes down all counters. Those from before `since` are forgotten.
  void count(TimePs now, TimePs since);
  void forget_counts() { counted_.clear(); }
  TimePs next_change() const { return simulator_.next_change_time(); }
  // The first event that no estimate is to pass.
  TimePs horizon() const;
  // All have come to `now`. Each of `queue_pairs` sends `packets` of its first message in `by`, and counters
  // grow as they have since the oldest count. False, and nothing has changed: the state cannot be moved now.
  bool advance(TimePs now, TimePs by, const std::vector<std::uint32_t>& queue_pairs,
               const std::vector<std::uint32_t>& packets);

 private:
  struct Counted {
    TimePs at = 0;
    std::vector<std::uint64_t> counters;
  };

  Simulator& simulator_;
  std::deque<Counted> counted_;
};

}  // namespace genie::twin
