// Time in both worlds: integer picoseconds from the run's origin.
#pragma once
#include <cstdint>
#include <limits>

namespace genie {

using TimePs = std::int64_t;

inline constexpr TimePs kNever = std::numeric_limits<TimePs>::max();
inline constexpr TimePs kPsPerNs = 1000;
inline constexpr TimePs kPsPerUs = 1000 * kPsPerNs;
inline constexpr TimePs kPsPerSecond = 1'000'000 * kPsPerUs;

// Time to serialise `size_bytes` at `rate_bps`, rounded to the nearest picosecond; 0 when the rate is
// unlimited (0). Exact up to 1 MiB in one call.
constexpr TimePs serialisation_ps(std::int64_t size_bytes, std::int64_t rate_bps) {
  if (rate_bps == 0) return 0;
  return (size_bytes * 8 * kPsPerSecond + rate_bps / 2) / rate_bps;
}

}  // namespace genie
