// Time in both worlds: integer picoseconds from the run's origin.
#pragma once
#include <cassert>
#include <cstdint>
#include <limits>

namespace genie {

using TimePs = std::int64_t;

inline constexpr TimePs kNever = std::numeric_limits<TimePs>::max();
// Latest time of a simulation, 53 days. The sum of two such times, or of one and the time of any node, is
// still a valid TimePs.
inline constexpr TimePs kLastTime = kNever / 2 - 1'000'000'000'000;
inline constexpr const char* kPastLastTime =
    "its simulated time passes 53 days, which is all that 64 bits of picoseconds can count: give shorter "
    "computations, less to send, or faster links";
inline constexpr TimePs kPsPerNs = 1000;
inline constexpr TimePs kPsPerUs = 1000 * kPsPerNs;
inline constexpr TimePs kPsPerSecond = 1'000'000 * kPsPerUs;

// Time to serialise `size_bytes` at `rate_bps`, rounded to the nearest picosecond. It is 0 when the rate is
// unlimited (0), and kNever when it is longer than TimePs can say.
constexpr TimePs serialisation_ps(std::int64_t size_bytes, std::int64_t rate_bps) {
  assert(size_bytes >= 0 && rate_bps >= 0);
  if (rate_bps == 0) return 0;
  if (size_bytes <= 1 << 20) return (size_bytes * 8 * kPsPerSecond + rate_bps / 2) / rate_bps;
  // A buffer's size overflows 64 bits on the way.
  __extension__ using Wide = unsigned __int128;
  const auto rate = static_cast<Wide>(rate_bps);
  const Wide time = (static_cast<Wide>(size_bytes) * 8 * static_cast<Wide>(kPsPerSecond) + rate / 2) / rate;
  return time < static_cast<Wide>(kNever) ? static_cast<TimePs>(time) : kNever;
}

// The same to the nearest whole `unit`.
constexpr TimePs serialisation_ps(std::int64_t size_bytes, std::int64_t rate_bps, TimePs unit) {
  if (unit == 1 || rate_bps == 0) return serialisation_ps(size_bytes, rate_bps);
  __extension__ using Wide = __int128;
  const Wide per_unit = Wide{rate_bps} * unit;
  const Wide time = (Wide{size_bytes} * 8 * kPsPerSecond + per_unit / 2) / per_unit * unit;
  return time < kNever ? static_cast<TimePs>(time) : kNever;
}

}  // namespace genie
