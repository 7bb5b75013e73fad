// Payload of messages where receivers check it, the same on any transport.
//
// The source memory repeats a pattern. The start of a message in it follows from the source, the target, the
// queue pair and the message's number.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace genie::live {

inline constexpr std::uint64_t kPatternBytes = 1 << 16;  // after which the source memory repeats itself
inline constexpr std::uint64_t kPhaseBytes = 64;         // messages begin at multiples of it

// The source memory from its start on.
void fill_pattern(std::span<std::byte> source);

// Where in the pattern the `message`-th message of a connection's queue pair begins, each counted from 0.
std::uint64_t pattern_phase(std::uint32_t source, std::uint32_t target, std::uint32_t queue_pair,
                            std::uint32_t message);

}  // namespace genie::live
