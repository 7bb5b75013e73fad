// One thread's part of a run: the windows of the simulation, one after another, each as a row of phases.
#pragma once
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

// Threads play and send mail between a window's two meetings, and read each other's standings. Between
// windows they take the mail and write their own standing.
class Simulator::WindowLoop {
 public:
  // Plays until all threads together have handled `events_end` events since the beginning, or all have come
  // to `until`. `events_max`: of one process in a window.
  WindowLoop(Simulator& simulator, std::uint32_t thread, std::uint64_t events_max, std::uint64_t events_end,
             TimePs until);

  void run();

 private:
  struct Round {  // read by all threads before a window
    std::uint64_t window = Calendar::kNone, events = 0;
    bool failed = false;
    bool is_late = false;  // after the last time that the twin can count
  };

  bool is_first() const { return thread_ == 0; }
  void receive_mail();
  Round exchange_standings();
  void record_outcome(const Round& round);
  bool is_last(const Round& round) const;
  bool apply_changes(std::uint64_t window, TimePs stop);
  bool come_to(std::uint64_t window, TimePs time);
  bool play(std::uint64_t window);
  bool play_until(std::uint64_t window, TimePs time);
  bool play_two(std::uint64_t window);
  bool play_part(std::uint64_t window, std::uint32_t first, std::uint32_t end, TimePs time);
  void record_arrival();

  Simulator& simulator_;
  Standings& standings_;
  Standings::Standing& own_;
  Calendar& calendar_;
  std::uint32_t thread_;
  std::uint64_t events_max_, events_end_;
  TimePs until_;
  TimePs played_until_ = 0;    // the end of the latest window
  std::uint64_t last_window_;  // that begins before `until`
  std::uint64_t events_;       // that this thread has handled since the beginning
  bool failed_;                // a process of this thread
};

}  // namespace genie::twin
