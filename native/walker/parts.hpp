// Common parts of the walker's own source files: handles, keys of matches, lists in pools.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/index.hpp"
#include "core/time.hpp"

namespace genie::walker_parts {

// A receive step whose message has arrived before its dependencies were done has this added to its counter.
inline constexpr std::int32_t kArrivedEarly = 1 << 30;
// True for the counter of a step that waits for no other: it is under way or over.
inline bool is_ready(std::int32_t counter) { return counter == 0 || counter == kArrivedEarly; }
inline constexpr std::uint32_t kFirstStep = 0xFFFFFFFEu;  // of a timer: a collective's steps begin
inline constexpr std::uint32_t kWholeNode = 0xFFFFFFFFu;  // the step half of a handle that is a node's own

inline std::uint64_t key_of(std::int32_t peer, std::uint32_t tag) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(peer)) << 32) | tag;
}

inline std::uint64_t handle_of(std::int32_t node, std::uint32_t step) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32) | step;
}

template <class T>
std::int32_t take(std::vector<T>& pool, std::vector<std::int32_t>& free, const T& value) {
  if (free.empty()) {
    pool.push_back(value);
    return static_cast<std::int32_t>(pool.size()) - 1;
  }
  const std::int32_t at = free.back();
  free.pop_back();
  pool[static_cast<std::size_t>(at)] = value;
  return at;
}

// Appends pool entry `at` to the list (head, tail).
template <class T>
void append(std::vector<T>& pool, std::int32_t& head, std::int32_t& tail, std::int32_t at) {
  if (head < 0) {
    head = at;
  } else {
    pool[static_cast<std::size_t>(tail)].next = at;
  }
  tail = at;
}

}  // namespace genie::walker_parts
