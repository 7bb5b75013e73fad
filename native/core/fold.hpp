// One list of fields for each class with state, shared by everything that compares, counts or shifts states.
//
// A class names each of its fields once, in `void fold(Fold&)`, with the field's kind. Equal signatures of
// two moments mean that a simulation goes on alike after both. A shift moves a state by whole periods.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/time.hpp"

namespace genie {

class Fold {
 public:
  // A number that others are relative to, before and after the visit.
  struct Base {
    std::uint64_t before, after;
  };

  Fold(const Fold&) = delete;
  Fold& operator=(const Fold&) = delete;
  virtual ~Fold() = default;

  // Equal in equal states.
  template <class Value>
  void exact(const Value& value) {
    word(as_word(value));
  }
  template <class First, class... More>
    requires(sizeof...(More) > 0)
  void exact(const First& first, const More&... more) {
    exact(first);
    (exact(more), ...);
  }
  // A time; equal states have it equally far from now, or kNever.
  virtual void moment(TimePs& time) = 0;
  // A time that stands for the past once it lies `slack` or more before now.
  virtual void not_before(TimePs& time, TimePs slack = 0) = 0;
  // A time that stands for the past unless it is after `mark`.
  virtual void after(TimePs& time, TimePs mark) = 0;
  // A timer that only sets itself again. Equal states may differ in it.
  virtual void timer(TimePs& time) = 0;
  // A time that its owner alone reads. It is not compared, and stays where the others recur.
  virtual void own_time(TimePs& time) = 0;
  // The time of the latest event of a kind, kept for the record: none or one comes in each period.
  virtual void latest(TimePs& time) = 0;
  // Since when something goes on whose time is counted once it is over.
  virtual void since(TimePs& time) { latest(time); }
  // The time of an event of a message. It may recur, and is `moment` too.
  virtual void pending(TimePs /*time*/) {}
  // The time of an event that does not recur: no shift passes it, or moves it.
  virtual void horizon(TimePs time) = 0;
  // A counter that only others are compared with: it moves equally far in each period. `mask`: of its circle.
  virtual Base base(std::uint64_t value, std::uint64_t mask) = 0;
  template <class Number>
  Base base(Number& value, std::uint64_t mask = ~std::uint64_t{0}) {
    const Base found = base(static_cast<std::uint64_t>(value), mask);
    value = static_cast<Number>(found.after);
    return found;
  }
  // The same, of packets that the queue pair of the latest `at_queue_pair` has sent or received.
  enum class Way : std::uint8_t { kSent, kReceived };
  virtual Base packets(std::uint64_t value, std::uint64_t mask, Way) { return base(value, mask); }
  template <class Number>
  Base packets(Number& value, Way way, std::uint64_t mask = ~std::uint64_t{0}) {
    const Base found = packets(static_cast<std::uint64_t>(value), mask, way);
    value = static_cast<Number>(found.after);
    return found;
  }
  // Another part of the state follows, up to the next call. kShared: of several.
  enum class Part : std::uint8_t {
    kRank,
    kQueuePair,
    kNic,
    kPort,
    kTurn,
    kService,
    kOrder,
    kProcess,
    kShared
  };
  virtual void part(Part /*kind*/, std::uint32_t /*number*/) {}
  // All that follows belongs to a queue pair. `peer`: the queue pair at the other end.
  virtual void at_queue_pair(std::uint32_t /*id*/, std::uint32_t /*peer*/) {}
  // A number on a base's circle.
  virtual std::uint64_t relative(const Base& to, std::uint64_t value, std::uint64_t mask) = 0;
  template <class Number>
  void relative(const Base& to, Number& value, std::uint64_t mask = ~std::uint64_t{0}) {
    value = static_cast<Number>(relative(to, static_cast<std::uint64_t>(value), mask));
  }
  // A number on a base's circle that keeps its distance to the base in each period, or its value.
  virtual std::uint64_t either(const Base& to, std::uint64_t value, std::uint64_t mask) = 0;
  template <class Number>
  void either(const Base& to, Number& value, std::uint64_t mask = ~std::uint64_t{0}) {
    value = static_cast<Number>(either(to, static_cast<std::uint64_t>(value), mask));
  }
  // Countdown to an event that a shift must not pass: at least `least` remain after it.
  virtual void left(std::uint64_t steps, std::uint64_t least) = 0;
  // A counter that no decision reads: it grows equally in each period.
  virtual void total(std::uint64_t& value) = 0;
  virtual void total(std::int64_t& value) = 0;
  // The bytes that a port has sent. `skipped`: those of them that `value` has left out.
  virtual void odometer(std::uint64_t& value, std::uint64_t& /*skipped*/) { total(value); }
  // A reading of an odometer.
  virtual void reading(std::uint64_t& value) { total(value); }
  // A counter of events that forbid a shift: random draws, losses, notifications.
  virtual void rare(std::uint64_t& value) = 0;
  // A part that is not compared: what comes to it in a period comes to it again in the next.
  class Replayed {
   public:
    virtual ~Replayed() = default;
    // A state is observed: what comes from now on is kept.
    virtual void observed(TimePs now) = 0;
    virtual void fold(Fold& fold) = 0;
    // The number of periods, at most `most`, in which what came between two times may come again with the
    // same effect on others.
    virtual std::int64_t repeats(TimePs from, TimePs to, std::int64_t most) const = 0;
    virtual void replay(TimePs from, TimePs to, std::int64_t periods) = 0;
  };
  virtual void replayed(Replayed& part) = 0;
  // False: a part that can be replayed is visited as any other.
  virtual bool replays() const { return true; }
  // The handle of a walker's operation, which `handles` reads.
  virtual void handle(std::uint64_t& value) = 0;

  // A reader of handles, by the progress of what they belong to.
  class Handles {
   public:
    virtual ~Handles() = default;
    virtual std::uint64_t relative(std::uint64_t handle) = 0;
    virtual std::uint64_t moved(std::uint64_t handle) const = 0;
  };
  // For the handles that follow; nullptr: handles are the same in equal states.
  void set_handles(Handles* handles) { handles_ = handles; }

 protected:
  Fold() = default;
  virtual void word(std::uint64_t value) = 0;
  Handles* handles_ = nullptr;

 private:
  template <class Value>
  static std::uint64_t as_word(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      return static_cast<std::uint64_t>(value);
    } else if constexpr (std::is_same_v<Value, double>) {
      return std::bit_cast<std::uint64_t>(value);
    } else {
      static_assert(std::is_integral_v<Value>);
      return static_cast<std::uint64_t>(value);
    }
  }
};

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
  struct Start {  // of a part of the state, among the values of each kind
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
      most = std::min(most, part->repeats(now, later.now, most));
    return most;
  }
  std::vector<Fold::Replayed*> replayed;
  std::vector<std::uint64_t> replayed_words;  // of their states, which may differ where a state recurs

  friend bool operator==(const Snapshot& a, const Snapshot& b) {
    return a.now == b.now && a.horizon == b.horizon && a.words == b.words && a.counters == b.counters &&
           a.rare == b.rare && a.latest == b.latest && a.either == b.either && a.left == b.left &&
           a.replayed_words == b.replayed_words;
  }
};

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
    std::swap(found_.words, found_.replayed_words);
    part.fold(*this);
    std::swap(found_.words, found_.replayed_words);
  }
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
};

// Moves a state by `periods` times what lies between two equal snapshots of it; the state is that of the
// later one.
class Shift : public Fold {
 public:
  Shift(const Snapshot& earlier, const Snapshot& later, std::int64_t periods)
      : earlier_(earlier), later_(later), periods_(periods), by_((later.now - earlier.now) * periods) {}

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
  void replayed(Replayed& part) override { part.replay(earlier_.now, later_.now, periods_); }
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
