// A shift that leaves out what it does to one field, so that a test can see whether that shows.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/snapshot.hpp"

namespace genie::test {

// Leaves out what a shift does to one field.
class Incomplete : public Shift {
 public:
  Incomplete(const Snapshot& earlier, const Snapshot& later, std::int64_t periods, std::size_t without)
      : Shift(earlier, later, periods), without_(without), now_(later.now) {}
  std::size_t fields() const { return at_; }
  bool means_nothing() const { return means_nothing_; }

  void moment(TimePs& time) override {
    leave([&] { Shift::moment(time); }, time);
  }
  void not_before(TimePs& time, TimePs slack) override {
    if (at_ == without_ && time <= now_) means_nothing_ = true;
    leave([&] { Shift::not_before(time, slack); }, time);
  }
  void timer(TimePs& time) override {
    if (at_ == without_) means_nothing_ = true;
    leave([&] { Shift::timer(time); }, time);
  }
  Base base(std::uint64_t value, std::uint64_t mask) override {
    const Base found = Shift::base(value, mask);
    if (at_ == without_ && found.after == value) means_nothing_ = true;
    return at_++ == without_ ? Base{value, value} : found;
  }
  std::uint64_t relative(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    const std::uint64_t moved = Shift::relative(to, value, mask);
    if (at_ == without_ && moved == value) means_nothing_ = true;
    return at_++ == without_ ? value : moved;
  }
  void total(std::uint64_t& value) override {
    const std::uint64_t before = value;
    Shift::total(value);
    if (at_ == without_ && value == before) means_nothing_ = true;
    if (at_++ == without_) value = before;
  }
  void total(std::int64_t& value) override {
    const std::int64_t before = value;
    Shift::total(value);
    if (at_ == without_ && value == before) means_nothing_ = true;
    if (at_++ == without_) value = before;
  }
  void after(TimePs& time, TimePs mark) override {
    if (at_ == without_ && time <= mark) means_nothing_ = true;
    leave([&] { Shift::after(time, mark); }, time);
  }
  void handle(std::uint64_t& value) override {
    const std::uint64_t before = value;
    Shift::handle(value);
    if (at_ == without_ && value == before) means_nothing_ = true;
    if (at_++ == without_) value = before;
  }
  void latest(TimePs& time) override {
    leave([&] { Shift::latest(time); }, time);
  }
  using Fold::either;
  std::uint64_t either(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    const std::uint64_t moved = Shift::either(to, value, mask);
    if (at_ == without_ && moved == value) means_nothing_ = true;
    return at_++ == without_ ? value : moved;
  }
  void replayed(Replayed& part) override {
    is_replay_ = is_replay_ || at_ == without_;
    if (at_++ != without_) Shift::replayed(part);
  }
  // A controller that has come to its end is not changed by a replay.
  bool is_replay() const { return is_replay_; }

 private:
  template <class Function>
  void leave(Function move, TimePs& time) {
    const TimePs before = time;
    move();
    if (at_ == without_ && time == before) means_nothing_ = true;
    if (at_++ == without_) time = before;
  }
  std::size_t without_, at_ = 0;
  TimePs now_;
  bool means_nothing_ = false, is_replay_ = false;
};

}  // namespace genie::test
