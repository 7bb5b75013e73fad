// Standings of the threads of a simulation between windows, and the barrier at which they meet. A thread
// writes its own standing alone; all read those of all between two meetings.
#pragma once
#include <algorithm>
#include <barrier>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "twin/kernel/schedule.hpp"

namespace genie::twin {

class Standings {
 public:
  struct alignas(64) Standing {
    std::uint64_t next_window = Calendar::kNone;
    std::uint64_t events = 0;  // that it has handled since the beginning
    bool failed = false;
    bool behind = false;  // it has events left before a time to which all were to come
  };

  void resize(std::uint32_t threads) {
    assert(threads > 0);
    standings_.resize(threads);
    barrier_ = std::make_unique<std::barrier<>>(threads);
  }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(standings_.size()); }
  bool is_alone() const { return standings_.size() == 1; }
  Standing& of(std::uint32_t thread) { return standings_[thread]; }

  // Returns when all threads have called it.
  void meet() {
    if (!is_alone()) barrier_->arrive_and_wait();
  }

  // Of all threads: the first window in which one has something to do, and their events together.
  std::uint64_t next_window() const {
    std::uint64_t window = Calendar::kNone;
    for (const Standing& standing : standings_) window = std::min(window, standing.next_window);
    return window;
  }
  std::uint64_t events() const {
    std::uint64_t sum = 0;
    for (const Standing& standing : standings_) sum += standing.events;
    return sum;
  }
  bool any_failed() const {
    return std::any_of(standings_.begin(), standings_.end(), [](const Standing& it) { return it.failed; });
  }
  bool any_behind() const {
    return std::any_of(standings_.begin(), standings_.end(), [](const Standing& it) { return it.behind; });
  }

 private:
  std::vector<Standing> standings_;  // by thread
  std::unique_ptr<std::barrier<>> barrier_;
};

}  // namespace genie::twin
