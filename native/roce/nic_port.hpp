// A NIC port: which queue pair sends next, and when its packet leaves at the line rate. Pure.
//
// Acknowledgements go before data; queue pairs with data take turns. A packet's departure is the end of its
// serialisation. The live driver may call late: packets that the port would have sent meanwhile are booked at
// the time when they would have left. Lateness is therefore caught up, by `debt_limit` at most, and never
// added up. No packet is booked before it was there: a queue pair that came late takes no part in catching
// up. Data that congestion control holds back waits aside until its time.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie::roce {

class NicPort {
 public:
  explicit NicPort(TimePs debt_limit) : debt_limit_(debt_limit) {}

  // When something can be picked; kNever while nothing that is allowed waits.
  TimePs next_pick(bool control_allowed = true, bool data_allowed = true) const {
    if ((control_allowed && !control_.empty()) || (data_allowed && !data_.empty())) return 0;
    return held_.empty() || !data_allowed ? kNever : held_.front().since;
  }

  // Queue pair `id` has an acknowledgement, or data, to send; data not before `from`. False when that was
  // known.
  bool mark_control(std::uint32_t id, TimePs now) {
    if (!set_mark(id, kControlMark)) return false;
    control_.push({id, now});
    return true;
  }
  bool mark_data(std::uint32_t id, TimePs now, TimePs from = 0) {
    if (!set_mark(id, kDataMark)) {
      if ((marks_[id] & kHeldMark) == 0 || from == held_until_[id]) return false;
      hold({id, from});  // it may leave at another time
    } else if (from > now) {
      hold({id, from});
    } else {
      data_.push({id, now});
    }
    return true;
  }
  // The queue pair just picked has more data, which may begin to leave at `from`. It goes to the end of the
  // line, or keeps its turn. The port was never idle meanwhile.
  void mark_more(std::uint32_t id, bool keep_turn = false, TimePs from = 0) {
    assert(id < marks_.size() && (marks_[id] & kDataMark) == 0);
    marks_[id] |= kDataMark;
    if (from > picked_since_) {
      hold({id, from});
    } else if (keep_turn) {
      data_.push_front({id, picked_since_});
    } else {
      data_.push({id, picked_since_});
    }
  }

  // The queue pair whose data is first in line; none: nullptr.
  const std::uint32_t* next_data() const { return data_.empty() ? nullptr : &data_.front().id; }

  struct Pick {
    std::uint32_t id = 0;
    bool control = false;
  };

  // The next queue pair to ask for a packet; it is off the list and marks itself again if it has more.
  // Only of what is allowed: flow control may have paused either.
  bool pick(TimePs now, Pick& out, bool control_allowed = true, bool data_allowed = true) {
    while (!held_.empty() && held_.front().since <= now) release();
    const bool control = control_allowed && !control_.empty(), data = data_allowed && !data_.empty();
    if (!control && !data) return false;
    // Control goes first unless data would have left before it was there.
    const TimePs earliest = now - debt_limit_;
    out.control = control;
    if (control && data)
      out.control = std::max(start(control_), earliest) <= std::max(start(data_), earliest);
    const Waiting next = out.control ? control_.pop(free_) : data_.pop(free_);
    out.id = next.id;
    picked_since_ = next.since;
    marks_[out.id] &= static_cast<std::uint8_t>(out.control ? ~kControlMark : ~kDataMark);
    return true;
  }

  // Books a packet of the queue pair just picked and returns when its serialisation ends.
  TimePs depart(TimePs now, TimePs serialisation) {
    // On a line without a limit nothing is ever late.
    const TimePs earliest = serialisation == 0 ? now : now - debt_limit_;
    free_ = std::max({free_, picked_since_, earliest}) + serialisation;
    return free_;
  }
  // The packet that has just been booked keeps the port until then, or longer; returns until when.
  TimePs keep(TimePs until) { return free_ = std::max(free_, until); }

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // The same state with other numbers of queue pairs: number(id), ascending as they were. kNone: it is left
  // out, and has nothing to send.
  template <class Function>
  NicPort renumbered(Function number) const {
    NicPort own(debt_limit_);
    own.free_ = free_;
    own.picked_since_ = picked_since_;
    for (std::uint32_t id = 0; id < marks_.size(); ++id) {
      if (number(id) != kNone) own.set_mark(number(id), marks_[id]);
    }
    own.held_until_.resize(held_until_.empty() ? 0 : own.marks_.size());
    for (std::uint32_t id = 0; id < held_until_.size(); ++id) {
      if (number(id) != kNone) own.held_until_[number(id)] = held_until_[id];
    }
    own.control_ = control_.renumbered(number);
    own.data_ = data_.renumbered(number);
    for (const Waiting& waiting : held_) own.held_.push_back({number(waiting.id), waiting.since});
    return own;
  }

  void fold(Fold& fold) {
    static_assert(has_size<Waiting>(16));
    static_assert(has_size<NicPort>(144));
    static_assert(has_size<Ring>(24));
    for (const std::uint8_t mark : marks_) fold.exact(mark);
    control_.fold(fold, free_);
    data_.fold(fold, free_);
    fold.exact(held_.size());
    for (Waiting& waiting : held_) {
      fold.exact(waiting.id);
      fold.moment(waiting.since);
    }
    for (std::size_t id = 0; id < held_until_.size(); ++id) {
      if ((marks_[id] & kHeldMark) != 0) fold.moment(held_until_[id]);
    }
    if (control_.empty() && data_.empty()) return fold.not_before(free_);
    fold.moment(free_);  // those that wait since then or before come first
  }

 private:
  static constexpr std::uint8_t kControlMark = 1, kDataMark = 2, kHeldMark = 4;

  struct Waiting {
    std::uint32_t id;
    TimePs since;
  };

  // Of two that become free at one instant the lower number goes first.
  struct Later {
    bool operator()(const Waiting& a, const Waiting& b) const {
      return a.since != b.since ? a.since > b.since : a.id > b.id;
    }
  };

  // A first-in first-out ring that grows to the number of queue pairs and then allocates no more.
  class Ring {
   public:
    Ring() = default;
    Ring(Ring&&) = default;
    Ring& operator=(Ring&&) = default;
    Ring(const Ring& other) : Ring(other.renumbered([](std::uint32_t id) { return id; })) {}

    bool empty() const { return count_ == 0; }
    void push(Waiting value) {
      if (count_ == capacity_) grow();
      at(count_++) = value;
    }
    void push_front(Waiting value) {
      if (count_ == capacity_) grow();
      head_ = (head_ - 1) & (capacity_ - 1);
      slots_[head_] = value;
      ++count_;
    }
    // Place of the first that waited at `free`, when the port became free; if none did, of the earliest.
    std::uint32_t first(TimePs free) const {
      std::uint32_t best = 0;
      if (count_ == 1) return best;
      for (std::uint32_t place = 0; place < count_ && at(best).since > free; ++place) {
        if (at(place).since < at(best).since) best = place;
      }
      return best;
    }
    const Waiting& front() const { return slots_[head_]; }
    TimePs since(std::uint32_t place) const { return at(place).since; }
    template <class Function>
    Ring renumbered(Function number) const {
      Ring own;
      for (std::uint32_t place = 0; place < count_; ++place)
        own.push({number(at(place).id), at(place).since});
      return own;
    }
    // Those that have waited since the port became free, or longer, keep their order.
    void fold(Fold& fold, TimePs free) {
      fold.exact(count_);
      for (std::uint32_t place = 0; place < count_; ++place) {
        fold.exact(at(place).id);
        fold.after(at(place).since, free);
      }
    }
    Waiting pop(TimePs free) {
      assert(count_ > 0);
      std::uint32_t place = first(free);
      const Waiting value = at(place);
      for (; place > 0; --place) at(place) = at(place - 1);
      head_ = (head_ + 1) & (capacity_ - 1);
      --count_;
      return value;
    }

   private:
    Waiting& at(std::uint32_t place) { return slots_[(head_ + place) & (capacity_ - 1)]; }
    const Waiting& at(std::uint32_t place) const { return slots_[(head_ + place) & (capacity_ - 1)]; }
    void grow() {
      const std::uint32_t capacity = capacity_ == 0 ? 8 : 2 * capacity_;
      auto larger = std::make_unique<Waiting[]>(capacity);
      for (std::uint32_t place = 0; place < count_; ++place) larger[place] = at(place);
      slots_ = std::move(larger);
      capacity_ = capacity;
      head_ = 0;
    }
    std::unique_ptr<Waiting[]> slots_;
    std::uint32_t capacity_ = 0, head_ = 0, count_ = 0;
  };

  // When the next of a ring's packets could begin to leave.
  TimePs start(const Ring& ring) const { return std::max(free_, ring.since(ring.first(free_))); }

  void hold(Waiting value) {
    if (value.id >= held_until_.size()) held_until_.resize(marks_.size());
    held_until_[value.id] = value.since;
    marks_[value.id] |= kHeldMark;
    held_.push_back(value);
    std::push_heap(held_.begin(), held_.end(), Later());
  }

  // The first that is held waits for its turn, unless its time has been changed meanwhile.
  void release() {
    const Waiting first = held_.front();
    std::pop_heap(held_.begin(), held_.end(), Later());
    held_.pop_back();
    if ((marks_[first.id] & kHeldMark) == 0 || held_until_[first.id] != first.since) return;
    marks_[first.id] &= static_cast<std::uint8_t>(~kHeldMark);
    data_.push(first);
  }

  // False when it was set already.
  bool set_mark(std::uint32_t id, std::uint8_t bit) {
    if (id >= marks_.size()) marks_.resize(std::size_t{id} + 1, 0);
    const bool news = (marks_[id] & bit) == 0;
    marks_[id] |= bit;
    return news;
  }

  TimePs debt_limit_;
  TimePs free_ = 0, picked_since_ = 0;
  std::vector<std::uint8_t> marks_;
  Ring control_, data_;
  std::vector<Waiting> held_;  // a heap by Later: data that may not leave yet, and what it waited for before
  std::vector<TimePs> held_until_;  // by queue pair that is held
};

}  // namespace genie::roce
