// Costs of plays apart: packets that are played, beside those that they replace, and of simulators that begin
// again.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "twin/fabric/planned_packets.hpp"

namespace genie::twin {

class PlayCosts {
 public:
  struct Counts {
    std::uint64_t replayed = 0;   // episodes of the latest simulator
    std::uint64_t replaced = 0;   // data packets of those
    std::uint64_t played = 0;     // data packets that were played apart, one by one
    std::uint64_t continued = 0;  // plays that went on where they had stopped
    std::uint64_t resumed = 0;    // that went on from a checkpoint
    std::uint64_t joined = 0;     // from several parts
  };

  // `free_packets`: data packets that may be played in vain in any job, before a share of the job's counts.
  PlayCosts(PlannedPackets planned, std::uint64_t free_packets)
      : planned_(std::move(planned)), free_packets_(free_packets) {}

  const Counts& counts() const { return counts_; }
  // Another simulator of the job begins, for which nothing has been replayed.
  void begin() { standing_ = counts_.replayed = counts_.replaced = 0; }
  void add_played(std::uint64_t packets) { counts_.played += packets; }
  void add_continued() { ++counts_.continued; }
  void add_past(std::size_t parts) {
    counts_.resumed += parts > 0;
    counts_.joined += parts > 1;
  }
  void add_replayed(std::uint64_t packets) {
    ++counts_.replayed;
    counts_.replaced += packets;
  }
  // Data packets that were played for a component's forecast were `before`, and are `packets`. At its end
  // they are compared with those that they replace.
  void change_standing(std::uint64_t before, std::uint64_t packets) { standing_ += packets - before; }
  // Plays that replace nothing, because something has joined them, cost too much of the job.
  bool are_too_high() {
    const std::uint64_t useful = standing_ + counts_.replaced;
    return counts_.played > free_packets_ + useful && counts_.played - useful > most_in_vain();
  }
  // A simulator begins again, in which so many data packets were neither skipped nor replaced.
  void add_lost(std::uint64_t packets) { lost_ += packets; }
  // These have cost too much of the job.
  bool have_lost_too_much() { return lost_ > free_packets_ && lost_ > most_in_vain(); }

 private:
  std::uint64_t most_in_vain() {
    constexpr std::uint64_t kMostInVain = 4;  // one of so many packets of a job may be played in vain
    if (most_in_vain_ == 0) most_in_vain_ = std::max(free_packets_, planned_.count() / kMostInVain);
    return most_in_vain_;
  }

  PlannedPackets planned_;
  std::uint64_t free_packets_;
  Counts counts_;
  std::uint64_t standing_ = 0;      // data packets that were played for forecasts that stand
  std::uint64_t lost_ = 0;          // data packets of simulators that have begun again
  std::uint64_t most_in_vain_ = 0;  // data packets; 0: not yet known
};

}  // namespace genie::twin
