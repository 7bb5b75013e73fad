// All events of the twin. A logical process is a part of the network, a host or a switch as a rule. Its
// events happen in the order of (time, source). Processes hear of each other only by packets, which take
// `lookahead` at least. So each process may go through a window of that length on its own, in any order or at
// once. The packets that it sends arrive after the window's end (Chandy and Misra, 1979). The windows are
// those of Lubachevsky, 1989.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "twin/kernel/tournament_tree.hpp"

namespace genie::twin {

// Calendar of a thread's processes: the windows in which each has something to do. Each of the next windows
// has a bit for each process. Bits may be stale (false positives) but never missing. Processes with later
// events wait in a tournament of times.
class Calendar {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  Calendar(std::uint32_t processes, TimePs window)
      : window_ps_(static_cast<std::uint64_t>(window)),
        words_((processes + 63) / 64),
        bits_(std::size_t{words_} * kWindows),
        far_(processes) {}

  // A process has something to do at `time`.
  void wake(std::uint32_t process, TimePs time) {
    const std::uint64_t window = window_of(time);
    if (window - window_ < kWindows) {
      mark(process, window);
    } else if (time < far_.time_of(process)) {
      far_.set(process, time);
    }
  }

  // All have come to `now`, and forget what they had to do.
  void restart(TimePs now) {
    std::fill(bits_.begin(), bits_.end(), 0);
    occupied_ = 0;
    window_ = window_of(now);
    while (far_.next_time() != kNever) far_.set(far_.next_source(), kNever);
  }

  // The next window in which something may happen, this one included; kNone: there is none.
  std::uint64_t next() const {
    const std::uint64_t far = far_.next_time() == kNever ? kNone : window_of(far_.next_time());
    if (occupied_ == 0) return far;
    const auto turned = std::rotr(occupied_, static_cast<int>(window_ % kWindows));
    return std::min(far, window_ + static_cast<std::uint64_t>(std::countr_zero(turned)));
  }
  // On to a window, not after the next.
  void enter(std::uint64_t window) {
    assert(window >= window_);
    window_ = window;
    while (far_.next_time() != kNever && window_of(far_.next_time()) - window_ < kWindows) {
      const std::uint32_t process = far_.next_source();
      mark(process, window_of(far_.next_time()));
      far_.set(process, kNever);
    }
  }
  // Of a window: before it nothing more happens.
  TimePs end_of(std::uint64_t window) const {
    const std::uint64_t most = static_cast<std::uint64_t>(kNever) / window_ps_;
    return window >= most ? kNever : static_cast<TimePs>((window + 1) * window_ps_);
  }
  TimePs window_ps() const { return static_cast<TimePs>(window_ps_); }
  std::uint64_t window_of(TimePs time) const { return static_cast<std::uint64_t>(time) / window_ps_; }

  // fn(process) for each from `first` to the one before `last` that may have something to do in a window,
  // once. The window is this one or the next.
  template <class Function>
  void each(std::uint64_t window, std::uint32_t first, std::uint32_t last, Function fn) {
    std::uint64_t* const row = bits_.data() + (window % kWindows) * words_;
    for (std::uint32_t at = first; at < last;) {
      const std::uint32_t word = at / 64, end = std::min(last, (word + 1) * 64);
      const std::uint64_t own = ~std::uint64_t{0} >> (64 - (end - at)) << (at % 64);
      std::uint64_t now = row[word] & own;
      row[word] &= ~own;
      for (; now != 0; now &= now - 1) fn(word * 64 + static_cast<std::uint32_t>(std::countr_zero(now)));
      at = end;
    }
  }
  // A window has been played, but by those that were stopped before its end.
  void leave(std::uint64_t window) {
    const auto row = bits_.begin() + static_cast<std::ptrdiff_t>((window % kWindows) * words_);
    if (std::all_of(row, row + words_, [](std::uint64_t bits) { return bits == 0; }))
      occupied_ &= ~(std::uint64_t{1} << (window % kWindows));
  }

 private:
  static constexpr std::uint64_t kWindows = 64;

  void mark(std::uint32_t process, std::uint64_t window) {
    bits_[(window % kWindows) * words_ + process / 64] |= std::uint64_t{1} << (process % 64);
    occupied_ |= std::uint64_t{1} << (window % kWindows);
  }

  std::uint64_t window_ps_, window_ = 0;
  std::uint32_t words_;
  std::vector<std::uint64_t> bits_;  // by window: a bit for each process
  std::uint64_t occupied_ = 0;       // a bit for each window
  TournamentTree far_;               // of processes: what is beyond the next windows
};

class Schedule {
 public:
  // Sources of each process, in the order in which they win ties, and the thread that plays it. Those before
  // `rare` have events all the time. `lookahead` is above 0.
  void plan(const std::vector<std::vector<std::uint32_t>>& sources_of_process, std::uint32_t sources,
            std::uint32_t rare, std::vector<std::uint32_t> thread_of_process, std::uint32_t threads,
            TimePs lookahead) {
    places_.assign(sources, Place{});
    trees_.clear();
    sources_.clear();
    first_.clear();
    for (const std::vector<std::uint32_t>& own : sources_of_process) {
      const auto process = static_cast<std::uint32_t>(trees_.size()),
                 count = static_cast<std::uint32_t>(own.size());
      for (std::uint32_t at = 0; at < count; ++at) places_[own[at]] = {process, at};
      const auto often =
          std::partition_point(own.begin(), own.end(), [&](auto source) { return source < rare; });
      trees_.emplace_back(count, static_cast<std::uint32_t>(often - own.begin()));
      first_.push_back(sources_.size());
      sources_.insert(sources_.end(), own.begin(), own.end());
    }
    thread_of_process_ = std::move(thread_of_process);
    calendars_.assign(threads, Calendar(processes(), lookahead));
  }

  std::uint32_t processes() const { return static_cast<std::uint32_t>(trees_.size()); }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(calendars_.size()); }
  std::uint32_t thread_of(std::uint32_t process) const { return thread_of_process_[process]; }
  TimePs window_ps() const { return calendars_.front().window_ps(); }
  Calendar& calendar(std::uint32_t thread) { return calendars_[thread]; }
  TournamentTree& tree(std::uint32_t process) { return trees_[process]; }
  const std::uint32_t* sources(std::uint32_t process) const { return sources_.data() + first_[process]; }
  TimePs time_of(std::uint32_t source) const {
    return trees_[places_[source].process].time_of(places_[source].at);
  }

  // The source's event is at `time`; kNever: it has none. Its process need not be told.
  void set(std::uint32_t source, TimePs time) {
    assert(source < places_.size());
    trees_[places_[source].process].set(places_[source].at, time);
  }
  // The same, from another process of the same thread.
  void set_afar(std::uint32_t source, TimePs time) {
    set(source, time);
    wake(places_[source].process, time);
  }
  // A process has something to do at `time`.
  void wake(std::uint32_t process, TimePs time) {
    assert(process < trees_.size());
    calendars_[thread_of_process_[process]].wake(process, time);
  }
  // A process has done what there was in this window; next it has something to do at its next event or at
  // `other`.
  void rest(std::uint32_t process, TimePs other) {
    const TimePs next = std::min(trees_[process].next_time(), other);
    if (next != kNever) wake(process, next);
  }
  // All events come later by what has been skipped until `now`, to which all have come.
  void move(TimePs by, TimePs now) {
    for (TournamentTree& tree : trees_) tree.move(by);
    for (Calendar& own : calendars_) own.restart(now);
    for (std::uint32_t process = 0; process < processes(); ++process) wake(process, now);
  }

 private:
  struct Place {
    std::uint32_t process = 0, at = 0;
  };

  std::vector<std::uint32_t> sources_;  // of all processes, one after another
  std::vector<std::size_t> first_;      // by process: its first
  std::vector<Place> places_;           // by source
  std::vector<TournamentTree> trees_;   // by process
  std::vector<std::uint32_t> thread_of_process_;
  std::vector<Calendar> calendars_;  // by thread
};

}  // namespace genie::twin
