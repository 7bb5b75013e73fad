// Recurrence: a simulation that has come to the same state twice is moved by whole periods. Results are those
// of playing all packets, to the bit; see ARCHITECTURE.md, "Recurrence".
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/snapshot.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/groups_ahead.hpp"
#include "twin/skip/look_budget.hpp"
#include "twin/skip/packet_rhythm.hpp"
#include "twin/skip/watch.hpp"

namespace genie::twin {

class Recurrence {
 public:
  struct Report {
    std::uint64_t jumps = 0, periods = 0, packets = 0;  // periods and packets that were skipped
    TimePs time = 0;                                    // that was skipped
    std::uint64_t snapshots = 0, words = 0;             // of state
  };

  // `sets_ahead`: groups of ranks may be ahead of others, while the whole has no other listener.
  explicit Recurrence(Simulator& simulator, bool sets_ahead = false);
  Recurrence(const Recurrence&) = delete;
  Recurrence& operator=(const Recurrence&) = delete;

  // As Simulator::run; skipped events do not count.
  bool run(std::uint64_t events, TimePs until = kNever);
  // The earliest time to which all can come.
  TimePs next_instant() { return std::max({simulator_.now() + 1, simulator_.next(), ahead_.latest_start()}); }
  // All come to `now`, and none is ahead. False where that takes too long, or something fails.
  bool bring_all_to(TimePs now);
  // The same, but groups may be ahead.
  bool come_to(TimePs now);
  // Groups that are ahead, and what has been seen of them, for a simulator that goes on in the same state.
  // Searches begin anew.
  struct Kept {
    GroupsAhead::State ahead;
    std::vector<Watch> watches;
    std::array<KnownPeriod, 3> known;
    LookBudget budget = {};

    std::size_t memory_bytes() const;  // about
  };
  Kept kept() const;
  // Before the first event.
  void restore(const Kept& kept);
  // The simulation has been moved by other means: what has been seen of it is of another time.
  void forget();
  const Report& report() const { return report_; }
  // The reason why nothing can be skipped; "" where something can.
  std::string unfoldable() const { return simulator_.unfoldable(); }

 private:
  using Kind = PeriodKind;
  using State = SimulationState;
  using Place = SimulationState::Place;

  static constexpr std::uint64_t kFreeLooks = 8;

  std::uint64_t next_slice() const;
  TimePs next_look() const;
  void choose_watched(Watch& own);
  void take_seen();
  void find_loop(Watch& own);
  void watch();
  void watch(Watch& own);
  bool are_idle(std::uint64_t events) const;
  void watch_loops(Watch& own);
  void watch_rounds(Watch& own);
  bool keeps_step(Watch& own, TimePs seen_period);
  void watch_packets(Watch& own);
  void begin_inner(Watch& own, Kind kind, const PeriodFinder::Period& seen, std::int32_t rank);
  void end(Watch& own, Search& search, bool is_found);
  void leave(Watch& own, Search& search);
  TimePs earliest_look(const Watch& own) const;
  bool can_afford(const Watch& own, Kind kind) const;
  static std::uint32_t times(const Watch& own, Kind kind);
  SharedState observe(Watch& own, TimePs now, TimePs period);
  // Of the next state that it looks at, as far as is known.
  std::uint64_t words_of(const Watch& own) const {
    return own.scope && own.words > 0 ? own.words : budget_.state_words();
  }
  bool recurs(const SharedState& earlier, const State& later) const;
  void postpone(Search& search, std::uint64_t cost);
  void look(TimePs now, TimePs until);
  void look(Watch& own, TimePs now, TimePs until);
  static std::uint32_t looks_most(const Watch& own, const Search& search);
  static std::uint32_t group_looks_most(const Watch& own, const Search& search);
  bool compare_group(Watch& own, Search& search, TimePs now);
  void narrow(Watch& own, Search& search, TimePs now);
  bool compare(Watch& own, Search& search, const SharedState& state, TimePs until);
  void found(Watch& own, const Search& search, const State& earlier, const SharedState& later);
  void wait(Search& search, const State& earlier, const SharedState& later) const;
  bool is_awake(std::int32_t rank) const { return ahead_.rest().ranks[static_cast<std::size_t>(rank)] != 0; }
  bool set_ahead(Watch& own, Search& search, const SharedState& earlier, const SharedState& later,
                 std::int64_t periods);
  bool set_own_ahead(Watch& own, Search& search, const SharedState& later);
  static bool is_closed(const State& earlier, const State& later);
  TimePs horizon_of(const Watch& own, const Search& search, const GroupsAhead::Group& group) const;
  void leave_ahead(Watch& own, Search& search, SharedState earlier, const SharedState& later);
  void fetch_back(TimePs now, bool all);
  std::int64_t periods(const State& earlier, const State& later, TimePs until) const;
  std::int64_t periods(const State& earlier, const State& later, TimePs until, const Scope& scope,
                       std::int64_t left) const;
  std::int64_t periods_until_alike(const State& earlier, const State& later) const;
  void jump(Watch& own, const State& earlier, const State& later, std::int64_t periods);

  Simulator& simulator_;
  bool sets_ahead_, is_foldable_ = false, is_checked_ = false;
  std::uint32_t lag_max_;  // of what is seen
  GroupsAhead ahead_;
  Report report_;
  // The first looks for what is not watched yet. Each of the others has had its group ahead.
  std::vector<std::unique_ptr<Watch>> watches_;
  PacketRhythm rhythm_;             // for the first
  std::uint64_t active_ranks_;      // by the latest look at all, or choice of a rank
  TimePs chosen_at_ = 0;            // the latest choice
  TimePs next_change_;              // of the network
  std::uint64_t slice_;             // events between two looks at what has been seen
  std::uint64_t slices_alone_ = 0;  // in a row, without a search
  LookBudget budget_;
  std::array<KnownPeriod, 3> known_;  // the latest, by kind
};

}  // namespace genie::twin
