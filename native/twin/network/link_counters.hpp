// Counters of links that results have.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie::twin {

struct LinkCounters {
  std::uint64_t packets = 0, bytes = 0, dropped = 0, dropped_bytes = 0, marked = 0, trimmed = 0, pauses = 0;
  std::uint64_t replays = 0;
  TimePs paused_ps = 0;
  std::int64_t longest_queue_bytes = 0, queue_bytes = 0;
};

// Rare happenings on links; ports count what they send themselves. The thread of a link's source counts all
// but what is lost at its end, which its target's thread counts.
class RareCounters {
 public:
  explicit RareCounters(std::uint32_t links) : at_source_(links), at_end_(links) {}

  // A port has no room for a packet, or its link has lost it.
  void drop(std::uint32_t link, std::uint32_t wire_bytes) {
    ++at_source_[link].dropped;
    at_source_[link].dropped_bytes += wire_bytes;
  }
  // No way leads on from a link's end.
  void lose_at_end(std::uint32_t link, std::uint32_t wire_bytes) {
    ++at_end_[link].packets;
    at_end_[link].bytes += wire_bytes;
  }
  void trim(std::uint32_t link) { ++at_source_[link].trimmed; }
  // The target of a link sends a pause frame to its source.
  void pause(std::uint32_t link) { ++at_source_[link].pauses; }
  // The longest queue until now, before its port forgets it.
  void keep_longest(std::uint32_t link, std::int64_t bytes) {
    std::int64_t& longest = at_source_[link].longest_queue_bytes;
    longest = std::max(longest, bytes);
  }
  void fold(Fold& fold, std::uint32_t link) {
    static_assert(has_size<LinkCounters>(88));
    static_assert(has_size<Lost>(16));
    LinkCounters& counters = at_source_[link];
    for (std::uint64_t* lost : {&counters.dropped, &counters.dropped_bytes, &counters.trimmed,
                                &at_end_[link].packets, &at_end_[link].bytes})
      fold.rare(*lost);
    fold.total(counters.pauses);
    fold.exact(counters.longest_queue_bytes);
  }
  // The counts that are kept here; others are 0.
  LinkCounters of(std::uint32_t link) const {
    LinkCounters counters = at_source_[link];
    counters.dropped += at_end_[link].packets;
    counters.dropped_bytes += at_end_[link].bytes;
    return counters;
  }

 private:
  struct Lost {
    std::uint64_t packets = 0, bytes = 0;
  };
  std::vector<LinkCounters> at_source_;  // by link
  std::vector<Lost> at_end_;             // by link
};

}  // namespace genie::twin
