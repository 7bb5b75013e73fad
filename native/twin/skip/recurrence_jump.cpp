// A state that recurs: by how many periods the simulation may move, and the move.
#include <algorithm>
#include <cassert>

#include "core/index.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::twin {

// The number of times that what lies between two states can be played again.
std::int64_t Recurrence::periods(const State& earlier, const State& later, TimePs until) const {
  const TimePs now = later.snapshot.now;
  const TimePs end = std::min({later.snapshot.horizon, simulator_.next_change_time(), until, kLastTime});
  const std::int64_t left = earlier.snapshot.periods_left(later.snapshot);
  std::int64_t count = std::min(left, std::max<TimePs>(end - now, 0) / (now - earlier.snapshot.now));
  bool moves = left != Snapshot::kUnbounded;
  for (std::size_t at = 0; at < later.places.size() && count > 0; ++at) {
    const Place &before = earlier.places[at], &after = later.places[at];
    if (before.rank != after.rank || before.progress.instance != after.progress.instance) return 0;
    const std::int32_t stride = after.progress.base - before.progress.base;
    if (stride < 0) return 0;
    if (stride == 0) continue;
    moves = true;
    count = simulator_.walkers()[index(after.rank)].repeats(after.progress.instance, stride,
                                                            after.progress.lowest - stride, count);
  }
  return moves && count > 0 ? earlier.snapshot.periods_replayed(later.snapshot, count) : 0;
}

std::int64_t Recurrence::periods_until_alike(const State& earlier, const State& later) const {
  std::int64_t periods = 1;
  for (std::size_t at = 0; at < later.places.size(); ++at) {
    const Place &before = earlier.places[at], &after = later.places[at];
    const std::int32_t stride = after.progress.base - before.progress.base;
    if (stride <= 0 || before.progress.instance != after.progress.instance) continue;
    periods = std::max(periods, simulator_.walkers()[index(after.rank)].periods_until_alike(
                                    after.progress.instance, stride, after.progress.lowest - stride));
  }
  return periods;
}

void Recurrence::jump(const State& earlier, const State& later, std::int64_t periods) {
  const std::uint64_t packets = simulator_.data_packets(), count = static_cast<std::uint64_t>(periods);
  Shift shift(earlier.snapshot, later.snapshot, periods);
  simulator_.fold(shift);
  assert(shift.is_over());
  simulator_.move(shift.by(), later.snapshot.now + shift.by());
  finder_.skip((later.seen - earlier.seen) * count);
  ++report_.jumps;
  report_.periods += count;
  report_.packets += simulator_.data_packets() - packets;
  report_.time += shift.by();
}

}  // namespace genie::twin
