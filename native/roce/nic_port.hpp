// A NIC port: which connection sends next, and when its packet leaves at the line rate. Pure.
//
// Acknowledgements go before data; connections with data take turns. A packet's departure is the end of its
// serialisation. The live driver may call late: departures are computed from when the port became free or had
// something to send, so that lateness is caught up, by `debt_limit` at most, and never added up.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::roce {

class NicPort {
 public:
  explicit NicPort(TimePs debt_limit) : debt_limit_(debt_limit) {}

  bool idle() const { return control_.empty() && data_.empty(); }
  TimePs free_at() const { return free_; }

  // Queue pair `id` has an acknowledgement, or data, to send.
  void mark_control(std::uint32_t id, TimePs now) { mark(control_, id, kControlMark, now); }
  void mark_data(std::uint32_t id, TimePs now) { mark(data_, id, kDataMark, now); }
  // The queue pair just picked has more data: it goes to the end of the line, or keeps its turn. The port was
  // never idle meanwhile.
  void mark_more(std::uint32_t id, bool keep_turn = false) {
    marks_[id] |= kDataMark;
    if (keep_turn) {
      data_.push_front(id);
    } else {
      data_.push(id);
    }
  }

  struct Pick {
    std::uint32_t id = 0;
    bool control = false;
  };

  // The next queue pair to ask for a packet; it is off the list and marks itself again if it has more.
  bool pick(Pick& out) {
    Ring& ring = control_.empty() ? data_ : control_;
    if (ring.empty()) return false;
    out.control = &ring == &control_;
    out.id = ring.pop();
    marks_[out.id] &= static_cast<std::uint8_t>(out.control ? ~kControlMark : ~kDataMark);
    return true;
  }

  // Books a packet and returns when its serialisation ends.
  TimePs depart(TimePs now, TimePs serialisation) {
    const TimePs start = std::max({free_, ready_since_, now - debt_limit_});
    free_ = start + serialisation;
    return free_;
  }

 private:
  static constexpr std::uint8_t kControlMark = 1, kDataMark = 2;

  // A first-in first-out ring that grows to the number of queue pairs and then allocates no more.
  class Ring {
   public:
    bool empty() const { return count_ == 0; }
    void push(std::uint32_t value) {
      if (count_ == slots_.size()) grow();
      slots_[(head_ + count_++) & (slots_.size() - 1)] = value;
    }
    void push_front(std::uint32_t value) {
      if (count_ == slots_.size()) grow();
      head_ = (head_ - 1) & (slots_.size() - 1);
      slots_[head_] = value;
      ++count_;
    }
    std::uint32_t pop() {
      const std::uint32_t value = slots_[head_];
      head_ = (head_ + 1) & (slots_.size() - 1);
      --count_;
      return value;
    }

   private:
    void grow() {
      std::vector<std::uint32_t> larger(slots_.empty() ? 8 : slots_.size() * 2);
      for (std::size_t at = 0; at < count_; ++at) larger[at] = slots_[(head_ + at) & (slots_.size() - 1)];
      slots_ = std::move(larger);
      head_ = 0;
    }
    std::vector<std::uint32_t> slots_;
    std::size_t head_ = 0, count_ = 0;
  };

  void mark(Ring& ring, std::uint32_t id, std::uint8_t bit, TimePs now) {
    if (id >= marks_.size()) marks_.resize(std::size_t{id} + 1, 0);
    if (marks_[id] & bit) return;
    if (idle()) ready_since_ = now;
    marks_[id] |= bit;
    ring.push(id);
  }

  TimePs debt_limit_;
  TimePs free_ = 0, ready_since_ = 0;
  std::vector<std::uint8_t> marks_;
  Ring control_, data_;
};

}  // namespace genie::roce
