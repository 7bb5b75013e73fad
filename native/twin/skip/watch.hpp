// A watched rank of a simulation, and the searches for a period that its messages give reason for.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/snapshot.hpp"
#include "twin/kernel/scope.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/period_finder.hpp"

namespace genie::twin {

// A period is of packets, within messages that last longer, of rounds of messages, or of loops of rounds.
enum class PeriodKind : std::uint8_t { kPackets, kRounds, kLoops };

constexpr std::uint32_t kLooksFew = 8;         // of a search, in vain
constexpr std::uint32_t kOftenMost = 16;       // looks at one state
constexpr std::uint64_t kIdleFirst = 1 << 19;  // events

// Of a simulation, or of one group of its ranks.
struct SimulationState {
  struct Place {  // of a rank's collective in progress
    std::int32_t rank = 0;
    Walker::Progress progress;
  };

  Snapshot snapshot;
  std::vector<Place> places;
  std::uint64_t seen = 0;  // by the watched rank
  Scope scope;             // that it is of; others sleep
  Simulator::Sleep others;
  bool is_of_group = false;
  std::uint64_t digest = 0;  // of a group: equal in states that recur
  // Equal while nothing reaches the scope from outside; nullopt: something may be on its way.
  std::optional<std::uint64_t> foreign = 0;
};
using SharedState = std::shared_ptr<const SimulationState>;
// Some ranks, counted from one of them on. `count` 0: all that there is.
struct RankGroup {
  std::int32_t rank = -1;
  std::uint32_t from = 0, count = 0;

  std::vector<std::int32_t> of(std::uint32_t ranks) const {
    std::vector<std::int32_t> members;
    for (std::uint32_t at = from; at < from + count; ++at)
      members.push_back(static_cast<std::int32_t>((static_cast<std::uint32_t>(rank) + at) % ranks));
    return members;
  }
};
// Looks once in each period, and compares with a state that it replaces after 1, 2, 4, ... looks. A period
// that is known is looked at in parts, and its first state stays as long. It looks first at one rank alone,
// then at all. That of all is compared with the latest, too.
// From kOftenMost looks at one state on, it looks half as often. Where all do not recur soon, it narrows:
// it finds the multiple after which one more rank recurs, then two more, then four. States of one group are
// all kept: a packet that others have delayed goes round in a ring.
struct Search {
  PeriodKind kind = PeriodKind::kRounds;
  TimePs seen_period = 0;                 // that gave reason for it
  std::uint32_t lag = 0;                  // messages in it
  TimePs period = 0, next_look = kNever;  // kNever: it is over
  RankGroup group;                        // that it looks at alone
  std::uint64_t events = 0;               // of the simulation, at the latest look or before the first
  TimePs looked_at = 0;                   // the time of that
  TimePs first_period = 0;                // of its looks at all
  bool narrows = false;
  std::optional<Snapshot> of_group = {};
  SharedState reference = {}, latest = {};  // of all
  std::vector<SharedState> kept = {};       // of one group
  // A message of the watched rank, which looks at one group keep their distance to, and the number of
  // messages when its rhythm showed last.
  struct Beat {
    std::uint64_t seen = 0;
    TimePs time = 0;
    std::uint64_t shown = 0;
  } beat = {};
  std::uint32_t looks = 0, looks_max = 1, all_looks = 0, waits = 0;

  bool is_over() const { return next_look == kNever; }
  // Begins to look at others, or at all.
  void turn_to(const RankGroup& ranks, TimePs every, TimePs at) {
    group = ranks;
    period = first_period = every;
    next_look = at;
    of_group.reset();
    reference.reset();
    latest.reset();
    kept.clear();
    looks = all_looks = 0;
    looks_max = 1;
  }
  // Another state is compared with from now on.
  void replace() {
    looks = 0;
    if (looks_max < kOftenMost) {
      looks_max *= 2;
    } else {
      period *= 2;
    }
  }
};

struct KnownPeriod {
  TimePs seen = 0, whole = 0;  // that was seen and has led to a recurrence; after which all recurs
};

// Of one rank.
struct Watch {
  explicit Watch(std::uint32_t lag_max) : finder(lag_max) {}

  std::int32_t rank = -1;
  PeriodFinder finder;  // of what it sees
  Search inner, outer;  // of packets or rounds; of loops
  // Of the rank's group, once it has been ahead: by rank, whether it is in it; empty: it is not known.
  std::vector<std::uint8_t> members = {};
  // The same with links, while only the group is looked at, and the queue pairs of others that may reach it.
  std::shared_ptr<const Scope> scope = {};
  std::vector<std::uint32_t> towards = {};
  std::uint64_t words = 0;  // of the group's latest state
  bool is_ahead = false;
  std::uint64_t seen_each = 0;  // messages in each period that the group is ahead
  // Events in which it has seen nothing, and after how many another rank is watched.
  std::uint64_t idle_events = 0, idle_max = kIdleFirst;
  std::uint64_t rounds_from = 0;               // no search of rounds before it has seen so many messages
  std::array<std::uint32_t, 3> failures = {};  // of searches in a row, by kind
  // The loop of the collective that the rank is in, and the state before a skip of its rounds.
  std::int32_t loop_instance = -1;
  Walker::Loop loop = {};
  std::uint64_t loop_from = 0;  // messages that the rank had seen before
  SharedState loop_reference = {};

  TimePs next_look() const { return std::min(inner.next_look, outer.next_look); }
  bool searches() const { return !inner.is_over() || !outer.is_over(); }
  void leave_loop() {
    loop_instance = -1;
    loop = {};
    loop_reference.reset();
  }
  // The group has come back after so many periods.
  void go_on(std::uint64_t periods) {
    is_ahead = false;
    idle_events = 0;
    finder.skip(seen_each * periods);
  }
  // The simulation is at another time.
  void forget() {
    inner = outer = {};
    loop_reference.reset();
    finder.clear();
    rounds_from = loop_from = 0;
  }
};

}  // namespace genie::twin
