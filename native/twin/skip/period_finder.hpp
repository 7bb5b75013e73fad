// Periods of a row of times, of which some may be missing: the time so many places earlier is always equally
// long ago. Pure.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

class PeriodFinder {
 public:
  struct Period {
    std::uint32_t lag = 0;  // times in a period; 0: there is none
    TimePs time = 0;
  };
  static constexpr std::uint32_t kLeast = 3;

  // `lag_max`: of a period.
  explicit PeriodFinder(std::uint32_t lag_max)
      : lag_max_(lag_max),
        first_(lag_max),
        times_(2 * std::size_t{lag_max}),
        apart_(lag_max),
        same_(lag_max) {}

  // The next time.
  void add(TimePs time) {
    const auto lags = static_cast<std::uint32_t>(std::min<std::uint64_t>(next_, lag_max_));
    const TimePs* const times = times_.data() + first_;
    for (std::uint32_t at = 0; at < lags; ++at) {
      if (times[at] == kUnknown) continue;
      const TimePs apart = time - times[at];
      same_[at] = apart == apart_[at] ? same_[at] + 1 : 1;
      apart_[at] = apart;
    }
    push(time);
  }
  // So many times are not known.
  void skip(std::uint64_t count) {
    for (std::uint64_t at = 0; at < std::min<std::uint64_t>(count, lag_max_); ++at) push(kUnknown);
    next_ += count - std::min<std::uint64_t>(count, lag_max_);
  }
  // The shortest period that the latest times show twice, and at least so many times in a row.
  Period shortest(std::uint32_t times = kLeast) const { return shortest_of(1, 0, times); }
  // The shortest period of `lag` times, or of a multiple of them. At least so many times in a row show it,
  // and of a multiple all but the first `lag`.
  Period multiple_of(std::uint32_t lag, std::uint32_t times = kLeast) const {
    return lag == 0 ? Period{} : shortest_of(lag, lag, times);
  }
  // The latest time does not tell against it.
  bool shows(const Period& period) const {
    return period.lag > 0 && period.lag <= lag_max_ && apart_[period.lag - 1] == period.time;
  }
  std::uint64_t count() const { return next_; }
  std::size_t memory_bytes() const {
    return (times_.size() + apart_.size()) * sizeof(TimePs) + same_.size() * sizeof(std::uint32_t);
  }
  // The time so many places before the latest; negative: it is not known.
  TimePs time(std::uint64_t before) const { return before < lag_max_ ? times_[first_ + before] : kUnknown; }
  void clear() { *this = PeriodFinder(lag_max_); }

 private:
  static constexpr TimePs kUnknown = -1;

  // Among the multiples of `step`, which all but `first` of their times must show.
  Period shortest_of(std::uint32_t step, std::uint32_t first, std::uint32_t times) const {
    for (std::uint32_t lag = step; lag <= lag_max_; lag += step) {
      if (apart_[lag - 1] > 0 && same_[lag - 1] >= std::max(lag - first, times))
        return {lag, apart_[lag - 1]};
    }
    return {};
  }

  // The latest come first, in the second half of the memory or before it.
  void push(TimePs time) {
    if (first_ == 0) {
      std::copy_backward(times_.begin(), times_.begin() + lag_max_, times_.end());
      first_ = lag_max_;
    }
    times_[--first_] = time;
    ++next_;
  }

  std::uint32_t lag_max_, first_;
  std::uint64_t next_ = 0;           // times ever
  std::vector<TimePs> times_;        // the latest from first_ on
  std::vector<TimePs> apart_;        // by lag - 1
  std::vector<std::uint32_t> same_;  // by lag - 1: times in a row that are so far apart
};

}  // namespace genie::twin
