// Numbers that look drawn and follow from others, alike in every run and in both worlds.
#pragma once
#include <cstdint>

namespace genie {

// Output function of SplitMix64 (Steele, Lea and Flood, 2014); callers count the state up.
constexpr std::uint64_t mixed(std::uint64_t state) {
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
  return state ^ (state >> 31);
}

inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15ull;  // SplitMix64's step of the state

// Two numbers, such as ranks, in their order, as one.
constexpr std::uint64_t pair_key(std::uint32_t first, std::uint32_t second) {
  return std::uint64_t{first} << 32 | second;
}

}  // namespace genie
