// Clear-to-sends of receivers: their tags, and where they are written.
#pragma once
#include <cstdint>

namespace genie {

// A message's tag is what a 32-bit immediate can carry. This bit marks a receiver's clear-to-send.
inline constexpr std::uint32_t kCreditTag = 1u << 31;
// A clear-to-send is, as NCCL's, a WRITE of one entry into a FIFO at the sender; here the entry's place is
// the tag.
inline constexpr std::int64_t kCreditBytes = 64;
inline constexpr std::uint64_t kCreditHandle = ~std::uint64_t{0};  // of every one: none is waited for

inline constexpr bool is_credit(std::uint32_t tag) { return (tag & kCreditTag) != 0; }
inline constexpr std::uint64_t fifo_address(std::uint32_t tag) {
  return std::uint64_t{tag} * static_cast<std::uint64_t>(kCreditBytes);
}
inline constexpr std::uint32_t fifo_tag(std::uint64_t address) {
  return static_cast<std::uint32_t>(address / static_cast<std::uint64_t>(kCreditBytes));
}

}  // namespace genie
