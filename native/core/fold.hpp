// One list of fields for each class with state, shared by everything that compares, counts or shifts states.
//
// A class names each of its fields once, in `void fold(Fold&)`, with the field's kind. Equal signatures of
// two moments mean that a simulation goes on alike after both. A shift moves a state by whole periods.
// Each fold asserts the sizes of the classes that it visits, so that a new field is not forgotten.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/time.hpp"

namespace genie {

struct Snapshot;

// For the assertion of a class's size beside its fold. With another library than libstdc++ on 64 bits,
// containers have other sizes, and nothing is asserted.
template <class Type>
consteval bool has_size([[maybe_unused]] std::size_t bytes) {
#ifdef __GLIBCXX__
  return sizeof(void*) != 8 || sizeof(Type) == bytes;
#else
  return true;
#endif
}

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
  virtual void odometer(std::uint32_t /*port*/, std::uint64_t& value, std::uint64_t& /*skipped*/) {
    total(value);
  }
  // A reading of an odometer.
  virtual void reading(std::uint64_t& value) { total(value); }
  // A counter of events that forbid a shift: random draws, losses, notifications.
  virtual void rare(std::uint64_t& value) = 0;
  // The time between two equal states.
  class Period {
   public:
    Period(const Snapshot& earlier, const Snapshot& later) : earlier_(earlier), later_(later) {}
    TimePs from() const;
    TimePs to() const;
    std::uint64_t odometer_growth(std::uint32_t port) const;

   private:
    const Snapshot &earlier_, &later_;
  };
  // A part that is not compared: what comes to it in a period comes to it again in the next.
  class Replayed {
   public:
    virtual ~Replayed() = default;
    // A state is observed: what comes from now on is kept.
    virtual void observed(TimePs now) = 0;
    virtual void fold(Fold& fold) = 0;
    // The number of periods, at most `most`, in which what came in `period` may come again with the same
    // effect on others.
    virtual std::int64_t repeats(const Period& period, std::int64_t most) const = 0;
    virtual void replay(const Period& period, std::int64_t periods) = 0;
    // Readings of odometers come to it.
    virtual bool reads_odometers() const { return false; }
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

}  // namespace genie
