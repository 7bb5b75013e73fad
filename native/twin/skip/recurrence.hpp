// Recurrence: a simulation that has come to the same state twice is moved by whole periods. Results are those
// of playing all packets, to the bit; see ARCHITECTURE.md, "Recurrence".
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fold.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/groups_ahead.hpp"
#include "twin/skip/packet_rhythm.hpp"
#include "twin/skip/period_finder.hpp"

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

  // As Simulator::run; skipped events do not count.
  bool run(std::uint64_t events, TimePs until = kNever);
  // The simulation has been moved by other means: what has been seen of it is of another time.
  void forget();
  const Report& report() const { return report_; }
  // The reason why nothing can be skipped; "" where something can.
  std::string unfoldable() const { return simulator_.unfoldable(); }

 private:
  // A period is of packets, within messages that last longer, of rounds of messages, or of loops of rounds.
  enum class Kind : std::uint8_t { kPackets, kRounds, kLoops };

  static constexpr std::uint32_t kOftenMost = 16;
  static constexpr std::uint64_t kIdleFirst = 1 << 19;  // events

  struct Place {  // of a rank's collective in progress
    std::int32_t rank = 0;
    Walker::Progress progress;
  };
  struct State {
    Snapshot snapshot;
    std::vector<Place> places;
    std::uint64_t seen = 0;  // by the watched rank
    Scope scope;             // that it is of; others sleep
    Simulator::Sleep others;
  };
  using SharedState = std::shared_ptr<const State>;
  // Some ranks, counted from one of them on. `count` 0: all that there is.
  struct Group {
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
  // it finds the multiple after which one more rank recurs, then two more, then four.
  struct Search {
    Kind kind = Kind::kRounds;
    TimePs seen_period = 0;                 // that gave reason for it
    std::uint32_t lag = 0;                  // messages in it; of loops
    TimePs period = 0, next_look = kNever;  // kNever: it is over
    Group group;                            // that it looks at alone
    std::uint64_t events = 0;               // of the simulation, at the latest look
    TimePs first_period = 0;                // of its looks at all
    bool narrows = false;
    std::optional<Snapshot> of_group = {};
    SharedState reference = {}, latest = {};  // of all
    std::uint32_t looks = 0, looks_max = 1, all_looks = 0, waits = 0;

    bool is_over() const { return next_look == kNever; }
    // Begins to look at others, or at all.
    void turn_to(const Group& ranks, TimePs every, TimePs at) {
      group = ranks;
      period = first_period = every;
      next_look = at;
      of_group.reset();
      reference.reset();
      latest.reset();
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
  struct Known {
    TimePs seen_period = 0, whole_period = 0;
  };

  std::uint64_t next_slice() const;
  void choose_watched();
  void take_seen();
  void find_loop();
  void watch();
  void watch_loops();
  void watch_rounds();
  void watch_packets();
  void begin_short(Kind kind, TimePs period, std::int32_t rank);
  void end(Search& search, bool is_found);
  void leave(Search& search);
  bool can_afford(Kind kind) const;
  std::uint32_t times(Kind kind) const;
  std::uint32_t& failures(Kind kind) { return failures_[static_cast<std::size_t>(kind)]; }
  SharedState observe(TimePs now, TimePs period);
  bool recurs(const SharedState& earlier, const State& later) const;
  void postpone(Search& search, std::uint64_t cost);
  void look(TimePs now, TimePs until);
  std::uint32_t looks_most(const Search& search) const;
  bool compare_group(Search& search, TimePs now);
  void narrow(Search& search, TimePs now);
  bool compare(Search& search, const SharedState& state, TimePs until);
  void found(const Search& search, const State& earlier, const SharedState& later);
  void wait(Search& search, const State& earlier, const SharedState& later) const;
  bool is_behind(std::int32_t rank) const { return ahead_.rest().ranks[static_cast<std::size_t>(rank)] != 0; }
  bool set_ahead(const Search& search, const State& earlier, const State& later, std::int64_t periods);
  bool set_watched_ahead(const Search& search, const State& later);
  void leave_watched(Search& search);
  void watch_another();
  void fetch_back(TimePs now);
  std::int64_t periods(const State& earlier, const State& later, TimePs until) const;
  std::int64_t periods(const State& earlier, const State& later, TimePs until, const Scope& scope,
                       std::int64_t left) const;
  std::int64_t periods_until_alike(const State& earlier, const State& later) const;
  void jump(const State& earlier, const State& later, std::int64_t periods);

  Simulator& simulator_;
  bool sets_ahead_, is_foldable_ = false, is_checked_ = false;
  GroupsAhead ahead_;
  Report report_;
  std::int32_t watched_ = -1;
  PeriodFinder finder_;  // of what the watched rank sees
  PacketRhythm rhythm_;
  std::uint64_t awake_ranks_;       // at the latest look at all
  std::uint64_t slice_;             // events between two looks at what it has seen
  std::uint64_t slices_alone_ = 0;  // in a row, without a search
  // Events in which it has seen nothing, and after how many another rank is watched.
  std::uint64_t idle_events_ = 0, idle_max_;
  std::uint64_t rounds_from_ = 0;               // no search of rounds before it has seen so many messages
  std::uint64_t events_ = 0;                    // that credit has been given for
  std::uint64_t credit_;                        // words that may be taken down
  std::uint64_t rank_cost_ = 0;                 // of the latest look at some ranks, in words
  std::uint64_t state_words_ = 0;               // of the latest state
  std::array<std::uint32_t, 3> failures_ = {};  // of searches in a row, by kind
  std::uint32_t looks_in_vain_ = 0;             // at some ranks, since something was found
  Search short_, long_;                         // of packets or rounds; of loops
  // By kind: the latest period that was seen and has led to a recurrence, and after how long all recurs.
  std::array<Known, 3> known_;
  // The loop of the collective that the watched rank is in, and the state before a skip of its rounds.
  std::int32_t loop_instance_ = -1;
  Walker::Loop loop_;
  std::uint64_t loop_from_ = 0;  // messages that the rank had seen before
  SharedState loop_reference_;
};

}  // namespace genie::twin
