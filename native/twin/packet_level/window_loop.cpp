#include "twin/packet_level/window_loop.hpp"

#include <algorithm>
#include <cassert>

namespace genie::twin {

Simulator::WindowLoop::WindowLoop(Simulator& simulator, std::uint32_t thread, std::uint64_t events_max,
                                  std::uint64_t events_end, TimePs until)
    : simulator_(simulator),
      standings_(simulator.standings_),
      own_(simulator.standings_.of(thread)),
      calendar_(simulator.schedule_.calendar(thread)),
      thread_(thread),
      events_max_(events_max),
      events_end_(events_end),
      until_(until),
      last_window_(until == kNever ? Calendar::kNone - 1
                                   : calendar_.window_of(std::max<TimePs>(until, 1) - 1)),
      events_(own_.events),
      failed_(own_.failed) {}

void Simulator::WindowLoop::run() {
  while (true) {
    if (is_first()) simulator_.tell_starts();
    receive_mail();
    const Round round = exchange_standings();
    if (is_first()) record_outcome(round);
    if (is_last(round)) return standings_.meet();  // all have read what they decide by
    calendar_.enter(round.window);
    const TimePs end = calendar_.end_of(round.window), stop = std::min(end, until_);
    const bool in_time = apply_changes(round.window, stop);
    if (is_first()) simulator_.come_to_ = kNever;
    if (in_time && stop == end && play(round.window) && is_first()) simulator_.come_to_ = played_until_;
    if (in_time && stop < end && come_to(round.window, stop)) return record_arrival();
    standings_.meet();
  }
}

// Packets that other threads have sent in the last window are on their wires from now on.
void Simulator::WindowLoop::receive_mail() {
  if (!standings_.is_alone()) simulator_.links_.take_mail(thread_);
}

// Each thread says how it stands, and reads how all stand: all come to the same decisions.
Simulator::WindowLoop::Round Simulator::WindowLoop::exchange_standings() {
  own_ = {.next_window = calendar_.next(), .events = events_, .failed = failed_, .behind = false};
  standings_.meet();
  Round round{
      .window = standings_.next_window(), .events = standings_.events(), .failed = standings_.any_failed()};
  round.is_late = round.window != Calendar::kNone && round.window > calendar_.window_of(kLastTime);
  const TimePs change = simulator_.next_change_time();
  if (change != kNever && !round.failed) round.window = std::min(round.window, calendar_.window_of(change));
  return round;
}

void Simulator::WindowLoop::record_outcome(const Round& round) {
  simulator_.too_long_ = round.is_late;
  simulator_.failed_ = round.failed || round.is_late;
  simulator_.over_ = round.window == Calendar::kNone;
  simulator_.reached_ = round.window > last_window_;
}

// True if the run ends before this window.
bool Simulator::WindowLoop::is_last(const Round& round) const {
  return simulator_.abandoned_ || simulator_.hosts_.is_touched() || round.window > last_window_ ||
         round.failed || round.is_late || round.events >= events_end_;
}

// Changes of the network part a window: all come to their time, then one thread makes them. False where some
// have not come to the time of one.
bool Simulator::WindowLoop::apply_changes(std::uint64_t window, TimePs stop) {
  bool in_time = true;
  while (in_time && simulator_.next_change_time() < stop) {
    const TimePs time = simulator_.next_change_time();
    in_time = come_to(window, time);
    if (is_first() && in_time) simulator_.apply_changes(time);
    standings_.meet();
  }
  return in_time;
}

// All threads play to a time in the middle of a window: false where some have not come to it.
bool Simulator::WindowLoop::come_to(std::uint64_t window, TimePs time) {
  own_.behind = !play_until(window, time);
  standings_.meet();
  own_.failed = failed_;  // not before all have read how others stood before this window
  own_.events = events_;
  const bool in_time = !standings_.any_behind();
  receive_mail();
  standings_.meet();
  return in_time;
}

// The rest of a window, and of the one after it where one thread may play both at once. A listener hears of
// starts before their first packets reach a switch, which is in the next window at the earliest.
bool Simulator::WindowLoop::play(std::uint64_t window) {
  const TimePs both = calendar_.end_of(window + 1);
  const bool may_play_two =
      standings_.is_alone() && simulator_.listener_ == nullptr && !simulator_.hosts_.has_guards();
  if (may_play_two && simulator_.turns_.size() > 2 && both <= until_ &&
      simulator_.next_change_time() >= both) {
    played_until_ = both;
    return play_two(window);
  }
  played_until_ = calendar_.end_of(window);
  return play_until(window, played_until_);
}

// False where the limit of events has kept some from coming to that time.
bool Simulator::WindowLoop::play_until(std::uint64_t window, TimePs time) {
  const bool in_time = play_part(window, 0, simulator_.schedule_.processes(), time);
  calendar_.leave(window);
  return in_time;
}

// An effect of a region reaches others in the second window after it at the earliest: switches are between
// them. So each region plays both windows while its state is near, when those switches have played the first,
// and they play the second after it.
bool Simulator::WindowLoop::play_two(std::uint64_t window) {
  bool in_time = true;
  for (const Turn& turn : simulator_.turns_) {
    assert(turn.window < 2);
    if (turn.window == 0) {
      in_time &= play_part(window, turn.first, turn.end, calendar_.end_of(window));
    } else if (in_time) {
      in_time &= play_part(window + 1, turn.first, turn.end, calendar_.end_of(window + 1));
    }
  }
  calendar_.leave(window);
  calendar_.leave(window + 1);
  return in_time;
}

bool Simulator::WindowLoop::play_part(std::uint64_t window, std::uint32_t first, std::uint32_t end,
                                      TimePs time) {
  bool in_time = true;
  calendar_.each(window, first, end, [&](std::uint32_t process) {
    assert(simulator_.schedule_.thread_of(process) == thread_);
    // Where a message may end the run, all come to the end of its window.
    const std::uint64_t most = simulator_.hosts_.has_guards() ? Calendar::kNone : events_max_;
    events_ += simulator_.play(process, time, most);
    failed_ |= !simulator_.processes_[process].errors.empty();
    in_time &= simulator_.schedule_.tree(process).next_time() >= time;
  });
  return in_time;
}

// All have come to the time until which they were to run, in the middle of a window.
void Simulator::WindowLoop::record_arrival() {
  if (!is_first()) return;
  simulator_.reached_ = true;
  simulator_.come_to_ = until_;
  simulator_.tell_starts();
  simulator_.failed_ |= standings_.any_failed();
}

}  // namespace genie::twin
