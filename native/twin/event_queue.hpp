// The twin's event queue: a 4-ary heap of 16-byte events, ordered by (time, source, data).
//
// A source is whatever has events: a link, a NIC port, a timer. Ties are broken by it, never by insertion, so
// that the order is the same however events came in.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

struct Event {
  TimePs time;
  std::uint32_t source;
  std::uint32_t data;

  friend bool operator<(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.source != b.source) return a.source < b.source;
    return a.data < b.data;
  }
};

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }

  void push(const Event& event) {
    heap_.push_back(event);
    std::size_t at = heap_.size() - 1;
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!(event < heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }

  void pop() {
    const Event last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    std::size_t at = 0;
    while (true) {
      const std::size_t first = at * 4 + 1;
      if (first >= heap_.size()) break;
      std::size_t least = first;
      const std::size_t end = first + 4 < heap_.size() ? first + 4 : heap_.size();
      for (std::size_t child = first + 1; child < end; ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (!(heap_[least] < last)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = last;
  }

 private:
  std::vector<Event> heap_;
};

}  // namespace genie::twin
