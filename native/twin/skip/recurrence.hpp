// Recurrence: a simulation that has come to the same state twice is moved by whole periods. Results are those
// of playing all packets, to the bit; see ARCHITECTURE.md, "Recurrence".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/fold.hpp"
#include "twin/packet_level/simulator.hpp"
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

  explicit Recurrence(Simulator& simulator);

  // As Simulator::run; skipped events do not count.
  bool run(std::uint64_t events, TimePs until = kNever);
  const Report& report() const { return report_; }
  // The reason why nothing can be skipped; "" where something can.
  std::string unfoldable() const { return simulator_.unfoldable(); }

 private:
  static constexpr std::uint64_t kIdleFirst = 1 << 19;

  struct Place {  // of a rank's collective in progress
    std::int32_t rank = 0;
    Walker::Progress progress;
  };
  struct State {
    Snapshot snapshot;
    std::vector<Place> places;
    std::uint64_t seen = 0;  // by the watched rank
  };
  // Looks once in each period, and compares with a state that it replaces after 1, 2, 4, ... looks: first
  // that of the watched rank alone, then that of all.
  struct Search {
    TimePs period = 0, next_look = kNever;  // kNever: it is over
    bool is_of_rank = false;
    std::optional<Snapshot> of_rank;
    std::optional<State> reference;
    std::uint32_t looks = 0, looks_max = 1, all_looks = 0;

    bool is_over() const { return next_look == kNever; }
    void begin(TimePs its_period, TimePs at, bool begins_with_rank) {
      *this = {};
      is_of_rank = begins_with_rank;
      period = its_period;
      next_look = at;
    }
  };

  void choose_watched();
  void take_seen();
  void watch();
  void watch_packets();
  void begin_short(PeriodFinder::Period found, std::int32_t rank);
  void end_searches(bool found);
  bool can_afford(std::uint32_t failures) const;
  State observe(TimePs now);
  void look(TimePs now, TimePs until);
  bool compare_rank(TimePs now);
  bool compare(Search& search, const State& state, TimePs until);
  std::int64_t periods(const State& earlier, const State& later, TimePs until) const;
  std::int64_t periods_until_alike(const State& earlier, const State& later) const;
  Walker::Loop loop_of(const State& earlier, const State& later, std::int32_t& stride);
  std::int64_t periods_in_loop(const State& earlier, const State& later);
  void jump(const State& earlier, const State& later, std::int64_t periods);

  Simulator& simulator_;
  bool is_foldable_ = false, is_checked_ = false;
  Report report_;
  std::int32_t watched_ = -1;
  PeriodFinder finder_;  // of what the watched rank sees
  std::uint64_t slice_;  // events between two looks at what it has seen
  // Events in which it has seen nothing, and after how many another rank is watched.
  std::uint64_t idle_events_ = 0, idle_max_ = kIdleFirst;
  std::uint64_t seen_until_ = 0;   // no short search before it has seen so much
  std::uint64_t events_ = 0;       // that credit has been given for
  std::uint64_t credit_ = 0;       // words that may be taken down
  std::uint64_t state_words_ = 0;  // of the latest state
  // Of searches in a row: of rounds and loops; of packets.
  std::uint32_t failures_ = 0, packet_failures_ = 0;
  Search short_, long_;     // of rounds or of packets; of loops of rounds
  bool of_packets_ = false; // the short search is
  PacketRhythm rhythm_;
  // Of the present short search: the rank that it begins with, and the period that was seen.
  std::int32_t search_rank_ = -1;
  TimePs seen_period_ = 0;
  // The latest period that was seen and has led to a recurrence, and after how long all recurs.
  struct Known {
    TimePs seen = 0, whole = 0;
  };
  Known known_, known_of_packets_;
  // The loop that the watched rank is in, what it sees of it, and the state before a skip of its rounds.
  struct LoopKey {
    std::int32_t instance = -1, stride = 0;
    friend bool operator==(const LoopKey&, const LoopKey&) = default;
  };
  LoopKey loop_key_;
  Walker::Loop loop_;
  std::uint32_t loop_lag_ = 0;
  std::optional<State> loop_reference_;
};

}  // namespace genie::twin
