// Events of one rank: a node has slept, or a latency of its host has passed. Pure.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

class RankEvents {
 public:
  // Of equal times sleeps come first, by node; then the others by kind, each in the order in which they came.
  enum class Kind : std::uint8_t { kPlayed, kSleep, kCompletion, kPost, kNotification, kSend, kWake };
  struct Event {
    TimePs time = 0;
    Kind kind = Kind::kSleep;
    std::uint64_t order = 0;  // of those at one time: a sleep's node, or how many came before
    std::uint32_t place = 0;  // of a completion or an operation; queue pair of a notification or a send

    friend bool operator<(const Event& a, const Event& b) {  // for a heap with the first on top
      return std::tie(a.time, a.kind, a.order) > std::tie(b.time, b.kind, b.order);
    }
  };

  bool empty() const { return heap_.empty(); }
  TimePs next_time() const { return heap_.empty() ? kNever : heap_.front().time; }

  void add_sleep(TimePs time, std::uint64_t node) {
    add({.time = time, .kind = Kind::kSleep, .order = node});
  }
  void add_completion(TimePs time, const Completion& completion) {
    add_later(time, Kind::kCompletion, keep({.completion = completion, .operation = {}}));
  }
  // A part of an episode that has been played apart is over.
  void add_wake(TimePs time) { add_later(time, Kind::kWake, 0); }
  struct Played {
    Completion completion;
    std::uint32_t forecast = 0, link = 0;
  };
  void add_played(TimePs time, const Completion& completion, std::uint32_t forecast, std::uint32_t link) {
    add({.time = time,
         .kind = Kind::kPlayed,
         .order = std::uint64_t{link} << 32 | (++order_ & 0xFFFFFFFFu),
         .place = keep({.completion = completion, .operation = {.tag = forecast}})});
  }
  void add_post(TimePs time, const Operation& operation) {
    add_later(time, Kind::kPost, keep({.completion = {}, .operation = operation}));
  }
  void add_notification(TimePs time, std::uint32_t queue_pair) {
    add_later(time, Kind::kNotification, queue_pair);
  }
  void add_send(TimePs time, std::uint32_t queue_pair) { add_later(time, Kind::kSend, queue_pair); }

  // Takes the first event off.
  Event pop() {
    assert(!heap_.empty());
    const Event first = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    return first;
  }
  // Takes the completion or operation that a popped event delayed, once.
  Played take_played(const Event& event) {
    assert(event.kind == Kind::kPlayed);
    unused_.push_back(event.place);
    return {delayed_[event.place].completion, delayed_[event.place].operation.tag,
            static_cast<std::uint32_t>(event.order >> 32)};
  }
  Completion take_completion(const Event& event) {
    assert(event.kind == Kind::kCompletion);
    unused_.push_back(event.place);
    return delayed_[event.place].completion;
  }
  Operation take_operation(const Event& event) {
    assert(event.kind == Kind::kPost);
    unused_.push_back(event.place);
    return delayed_[event.place].operation;
  }
  // All of them are starts of nodes.
  bool are_starts() const {
    return std::ranges::all_of(
        heap_, [](const Event& it) { return it.kind == Kind::kSleep && Walker::is_of_node(it.order); });
  }
  // Those of another rank's nodes that have begun; see Walker::take_over. None but sleeps are left there.
  void take_over(const RankEvents& earlier, std::span<const std::int32_t> rows) {
    order_ = std::max(order_, earlier.order_);
    for (const Event& event : earlier.heap_) {
      assert(event.kind == Kind::kSleep);
      if (rows[static_cast<std::size_t>(event.order >> 32)] >= 0)
        add_sleep(event.time, Walker::renumbered(event.order, rows));
    }
  }
  // Their walker's handles are set. Timers of nodes do not recur.
  void fold(Fold& fold);

 private:
  struct Delayed {  // either
    Completion completion;
    Operation operation;
  };

  void add_later(TimePs time, Kind kind, std::uint32_t place) {
    add({.time = time, .kind = kind, .order = ++order_, .place = place});
  }
  void add(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }
  std::uint32_t keep(const Delayed& delayed) {
    if (unused_.empty()) {
      delayed_.push_back(delayed);
      return static_cast<std::uint32_t>(delayed_.size()) - 1;
    }
    const std::uint32_t place = unused_.back();
    unused_.pop_back();
    delayed_[place] = delayed;
    return place;
  }

  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
  std::vector<Delayed> delayed_;
  std::vector<std::uint32_t> unused_;  // places of it
};

}  // namespace genie::twin
