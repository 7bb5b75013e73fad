// States of a fold, and the visitors that take and move them.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie {

// A state as words, without absolute times and numbers, and its counters beside them.
struct Snapshot {
  TimePs now = 0, horizon = kNever;
  std::vector<std::uint64_t> words, counters, rare;
  std::vector<TimePs> latest;
  struct Either {
    std::uint64_t base = 0, value = 0, mask = 0;
    friend bool operator==(const Either&, const Either&) = default;
  };
  std::vector<Either> either;
  struct Left {
    std::uint64_t steps = 0, least = 0;
    friend bool operator==(const Left&, const Left&) = default;
  };
  std::vector<Left> left;
  struct Odometer {
    std::uint32_t port = 0, counter = 0;  // its place among the counters
  };
  std::vector<Odometer> odometers;  // in ascending order; of a state with parts that read them
  std::vector<Fold::Replayed*> replayed;
  std::vector<std::uint64_t> replayed_words;  // of their states, which may differ where a state recurs
  struct Start {                              // of a part of the state, among the values of each kind
    Fold::Part kind = Fold::Part::kShared;
    std::uint32_t number = 0, words = 0, counters = 0, rare = 0, latest = 0, either = 0, left = 0;

    std::uint64_t key() const { return std::uint64_t{static_cast<std::uint8_t>(kind)} << 32 | number; }
  };
  std::vector<Start> starts;
  // Where the values of a part end.
  Start end_of(std::size_t part) const {
    if (part + 1 < starts.size()) return starts[part + 1];
    const auto count = [](const auto& values) { return static_cast<std::uint32_t>(values.size()); };
    return {Fold::Part::kShared, 0,          count(words), count(counters), count(rare), count(latest),
            count(either),       count(left)};
  }

  std::size_t memory_bytes() const {
    return (words.size() + counters.size() + rare.size() + latest.size()) * sizeof(std::uint64_t) +
           either.size() * sizeof(Either) + left.size() * sizeof(Left) + starts.size() * sizeof(Start);
  }
  // The state of some parts. is_in(kind, number): whether a part is one of them.
  template <class IsIn>
  Snapshot of_parts(IsIn is_in) const {
    assert(replayed.empty() && odometers.empty());
    Snapshot some;
    some.now = now;
    const auto take = [](auto& to, const auto& from, std::uint32_t first, std::uint32_t end) {
      to.insert(to.end(), from.begin() + first, from.begin() + end);
    };
    for (std::size_t at = 0; at < starts.size(); ++at) {
      const Start &own = starts[at], end = end_of(at);
      if (!is_in(own.kind, own.number)) continue;
      take(some.words, words, own.words, end.words);
      take(some.counters, counters, own.counters, end.counters);
      take(some.rare, rare, own.rare, end.rare);
      take(some.latest, latest, own.latest, end.latest);
      take(some.either, either, own.either, end.either);
      take(some.left, left, own.left, end.left);
    }
    return some;
  }

  // True if a simulation goes on from the later state as from this one, and nothing rare lies between.
  bool recurs_in(const Snapshot& later) const {
    if (words != later.words || rare != later.rare || counters.size() != later.counters.size() ||
        latest.size() != later.latest.size() || either.size() != later.either.size() ||
        left.size() != later.left.size())
      return false;
    for (std::size_t at = 0; at < latest.size(); ++at) {
      const TimePs apart = later.latest[at] - latest[at];
      if (apart != 0 && apart != later.now - now) return false;
    }
    for (std::size_t at = 0; at < either.size(); ++at) {
      const std::uint64_t mask = either[at].mask, apart = (later.either[at].value - either[at].value) & mask;
      if (apart != 0 && apart != ((later.either[at].base - either[at].base) & mask)) return false;
    }
    for (std::size_t at = 0; at < left.size(); ++at) {
      if (later.left[at].steps > left[at].steps) return false;
    }
    return true;
  }
  // The number of periods that countdowns leave room for after a state that recurs in a later one;
  // kUnbounded: none counts down.
  static constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
  std::int64_t periods_left(const Snapshot& later) const {
    std::int64_t periods = kUnbounded;
    for (std::size_t at = 0; at < left.size(); ++at) {
      assert(left[at].steps >= later.left[at].steps);
      const std::uint64_t step = left[at].steps - later.left[at].steps, least = left[at].least;
      if (step == 0) continue;
      const std::uint64_t room = later.left[at].steps > least ? later.left[at].steps - least : 0;
      periods = std::min(periods, static_cast<std::int64_t>(room / step));
    }
    return periods;
  }
  // The number of periods, at most `most`, that parts which are replayed take.
  std::int64_t periods_replayed(const Snapshot& later, std::int64_t most) const {
    for (const Fold::Replayed* part : later.replayed)
      most = std::min(most, part->repeats({*this, later}, most));
    return most;
  }

  friend bool operator==(const Snapshot& a, const Snapshot& b) {
    return a.now == b.now && a.horizon == b.horizon && a.words == b.words && a.counters == b.counters &&
           a.rare == b.rare && a.latest == b.latest && a.either == b.either && a.left == b.left &&
           a.replayed_words == b.replayed_words;
  }
};

inline TimePs Fold::Period::from() const { return earlier_.now; }
inline TimePs Fold::Period::to() const { return later_.now; }
inline std::uint64_t Fold::Period::odometer_growth(std::uint32_t port) const {
  const auto own = std::ranges::lower_bound(later_.odometers, port, {}, &Snapshot::Odometer::port);
  assert(own != later_.odometers.end() && own->port == port);
  return later_.counters[own->counter] - earlier_.counters[own->counter];
}

// Takes a snapshot.
class Observe : public Fold {
 public:
  // `keeps_starts`: of parts.
  explicit Observe(TimePs now, bool keeps_starts = false) : keeps_starts_(keeps_starts) { found_.now = now; }

  const Snapshot& found() const { return found_; }
  Snapshot take() { return std::move(found_); }

  void moment(TimePs& time) override { word(as_relative(time)); }
  void not_before(TimePs& time, TimePs slack) override {
    word(time != kNever && time + slack <= found_.now ? kPast : as_relative(time));
  }
  void after(TimePs& time, TimePs mark) override { word(time <= mark ? kPast : as_relative(time)); }
  void timer(TimePs& time) override { word(time == kNever ? 1 : 0); }
  void own_time(TimePs&) override {}
  void latest(TimePs& time) override { found_.latest.push_back(time); }
  void horizon(TimePs time) override { found_.horizon = std::min(found_.horizon, time); }
  Base base(std::uint64_t value, std::uint64_t) override {
    found_.counters.push_back(value);
    return {value, value};
  }
  std::uint64_t relative(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    word((value - to.before) & mask);
    return value;
  }
  using Fold::either;
  std::uint64_t either(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    found_.either.push_back({to.before, value, mask});
    return value;
  }
  void left(std::uint64_t steps, std::uint64_t least) override { found_.left.push_back({steps, least}); }
  void replayed(Replayed& part) override {
    found_.replayed.push_back(&part);
    part.observed(found_.now);
    reads_odometers_ = reads_odometers_ || part.reads_odometers();
    is_replayed_ = true;
    std::swap(found_.words, found_.replayed_words);
    part.fold(*this);
    std::swap(found_.words, found_.replayed_words);
    is_replayed_ = false;
  }
  void odometer(std::uint32_t port, std::uint64_t& value, std::uint64_t& skipped) override {
    if (reads_odometers_)
      found_.odometers.push_back({port, static_cast<std::uint32_t>(found_.counters.size())});
    Fold::odometer(port, value, skipped);
  }
  void reading(std::uint64_t& value) override { is_replayed_ ? word(value) : total(value); }
  void total(std::uint64_t& value) override { found_.counters.push_back(value); }
  void total(std::int64_t& value) override { found_.counters.push_back(static_cast<std::uint64_t>(value)); }
  void rare(std::uint64_t& value) override { found_.rare.push_back(value); }
  void handle(std::uint64_t& value) override {
    word(handles_ == nullptr ? value : handles_->relative(value));
  }
  void part(Part kind, std::uint32_t number) override {
    const auto count = [](const auto& values) { return static_cast<std::uint32_t>(values.size()); };
    if (keeps_starts_)
      found_.starts.push_back({kind, number, count(found_.words), count(found_.counters), count(found_.rare),
                               count(found_.latest), count(found_.either), count(found_.left)});
  }

 protected:
  void word(std::uint64_t value) override { found_.words.push_back(value); }

 private:
  static constexpr std::uint64_t kPast = std::uint64_t{1} << 62;
  std::uint64_t as_relative(TimePs time) const {
    return static_cast<std::uint64_t>(time == kNever ? kNever : time - found_.now);
  }

  Snapshot found_;
  bool keeps_starts_;
  bool reads_odometers_ = false, is_replayed_ = false;
};

// Moves a state by `periods` times what lies between two equal snapshots of it; the state is that of the
// later one.
class Shift : public Fold {
 public:
  Shift(const Snapshot& earlier, const Snapshot& later, std::int64_t periods)
      : earlier_(earlier), later_(later), periods_(periods), by_((later.now - earlier.now) * periods) {
    assert(earlier.now <= later.now && periods >= 0);
    assert(earlier.counters.size() == later.counters.size() && earlier.latest.size() == later.latest.size() &&
           earlier.either.size() == later.either.size());
  }

  TimePs by() const { return by_; }
  // All counters of the snapshots have had their turn.
  bool is_over() const {
    return at_ == later_.counters.size() && latest_at_ == later_.latest.size() &&
           either_at_ == later_.either.size();
  }

  void moment(TimePs& time) override { move(time); }
  void not_before(TimePs& time, TimePs slack) override {
    if (time == kNever || time + slack > later_.now) move(time);
  }
  void after(TimePs& time, TimePs) override { move(time); }
  void timer(TimePs& time) override { move(time); }
  void own_time(TimePs&) override {}
  void latest(TimePs& time) override {
    if (later_.latest[latest_at_] != earlier_.latest[latest_at_]) move(time);
    ++latest_at_;
  }
  void horizon(TimePs) override {}
  Base base(std::uint64_t value, std::uint64_t mask) override {
    return {value, (value + step() * static_cast<std::uint64_t>(periods_)) & mask};
  }
  std::uint64_t relative(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    return (value + to.after - to.before) & mask;
  }
  using Fold::either;
  std::uint64_t either(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    const bool moves = later_.either[either_at_].value != earlier_.either[either_at_].value;
    ++either_at_;
    return moves ? (value + to.after - to.before) & mask : value;
  }
  void left(std::uint64_t, std::uint64_t) override {}
  void replayed(Replayed& part) override { part.replay({earlier_, later_}, periods_); }
  void total(std::uint64_t& value) override { value += step() * static_cast<std::uint64_t>(periods_); }
  void total(std::int64_t& value) override { value += static_cast<std::int64_t>(step()) * periods_; }
  void rare(std::uint64_t&) override {}
  void handle(std::uint64_t& value) override {
    if (handles_ != nullptr) value = handles_->moved(value);
  }

 protected:
  void word(std::uint64_t) override {}
  void move(TimePs& time) const {
    if (time != kNever) time += by_;
  }

 private:
  // Growth of the next counter in a period.
  std::uint64_t step() {
    assert(at_ < later_.counters.size());
    const std::uint64_t grown = later_.counters[at_] - earlier_.counters[at_];
    ++at_;
    return grown;
  }

  const Snapshot &earlier_, &later_;
  std::int64_t periods_;
  TimePs by_;
  std::size_t at_ = 0, latest_at_ = 0, either_at_ = 0;
};

// Moves the times of a state's events, and nothing else. The state is that of `now`; a move back takes back
// one of the same length.
class Displacement : public Fold {
 public:
  Displacement(TimePs now, TimePs by) : now_(now), by_(by) {}

  void moment(TimePs& time) override { move(time); }
  void not_before(TimePs& time, TimePs slack) override {
    const TimePs before = by_ < 0 ? time + by_ : time;
    if (time != kNever && before + slack > now_) move(time);
  }
  void after(TimePs& time, TimePs) override { move(time); }
  void timer(TimePs& time) override { move(time); }
  void own_time(TimePs&) override {}
  void latest(TimePs&) override {}
  void horizon(TimePs) override {}
  Base base(std::uint64_t value, std::uint64_t) override { return {value, value}; }
  std::uint64_t relative(const Base&, std::uint64_t value, std::uint64_t) override { return value; }
  using Fold::either;
  std::uint64_t either(const Base&, std::uint64_t value, std::uint64_t) override { return value; }
  void left(std::uint64_t, std::uint64_t) override {}
  void replayed(Replayed&) override {}
  void total(std::uint64_t&) override {}
  void total(std::int64_t&) override {}
  void rare(std::uint64_t&) override {}
  void handle(std::uint64_t&) override {}

 protected:
  void word(std::uint64_t) override {}

 private:
  void move(TimePs& time) const {
    if (time != kNever) time += by_;
  }

  TimePs now_, by_;
};

}  // namespace genie
