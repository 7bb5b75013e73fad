// Events by time. Those of one time are together, in the order in which they came. Where many happen at once,
// as in collectives, each costs little more than its place in a list.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/flat_map.hpp"
#include "core/time.hpp"

namespace genie::twin {

template <class Event>
class TimeBuckets {
 public:
  bool empty() const { return heap_.empty(); }
  TimePs next_time() const { return heap_.empty() ? kNever : heap_.front().first; }

  void push(TimePs time, const Event& event) {
    time = std::min(time, kNever - 1);
    if (time != last_time_ || heap_.empty()) {
      const auto key = static_cast<std::uint64_t>(time);
      if (const std::uint32_t* known = place_of_.find(key)) {
        last_ = *known;
      } else {
        last_ = take();
        place_of_[key] = last_;
        heap_.emplace_back(time, last_);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      }
      last_time_ = time;
    }
    buckets_[last_].push_back(event);
  }

  // All of the first time, into `events`.
  void pop(std::vector<Event>& events) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto [time, place] = heap_.back();
    heap_.pop_back();
    place_of_.erase(static_cast<std::uint64_t>(time));
    if (time == last_time_) last_time_ = kNone;
    events.clear();
    std::swap(events, buckets_[place]);
    free_.push_back(place);
  }

 private:
  static constexpr TimePs kNone = -1;

  std::uint32_t take() {
    if (free_.empty()) {
      buckets_.emplace_back();
      return static_cast<std::uint32_t>(buckets_.size()) - 1;
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }

  std::vector<std::pair<TimePs, std::uint32_t>> heap_;  // time, bucket
  FlatMap<std::uint32_t> place_of_;
  std::vector<std::vector<Event>> buckets_;
  std::vector<std::uint32_t> free_;
  TimePs last_time_ = kNone;
  std::uint32_t last_ = 0;  // the bucket of last_time_
};

}  // namespace genie::twin
