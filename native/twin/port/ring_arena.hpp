// Memory for rings of packets: powers of two of them, given back and taken again, in huge pages. Of one
// thread.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "twin/kernel/huge_pages.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

class alignas(64) RingArena {
 public:
  static constexpr std::uint32_t kLeast = 8;  // packets

  // Room for `count` packets, a power of two from kLeast on; it lives until it is given back, at most as long
  // as the arena.
  Packet* take(std::uint32_t count) {
    assert(count >= kLeast && std::has_single_bit(count));
    std::vector<Packet*>& unused = unused_[static_cast<std::size_t>(std::countr_zero(count))];
    if (!unused.empty()) {
      Packet* const ring = unused.back();
      unused.pop_back();
      return ring;
    }
    if (count > left_) {
      // The first chunk is small: most simulations need no more.
      const std::size_t size = chunks_.empty() ? kFirstChunk : kChunk;
      left_ = std::max<std::size_t>(count, size);
      chunks_.emplace_back(static_cast<Packet*>(take_memory(left_ * sizeof(Packet))));
      next_ = chunks_.back().get();
    }
    Packet* const ring = next_;
    std::uninitialized_value_construct_n(ring, count);
    next_ += count;
    left_ -= count;
    return ring;
  }
  void give(Packet* ring, std::uint32_t count) {
    unused_[static_cast<std::size_t>(std::countr_zero(count))].push_back(ring);
  }

 private:
  struct Free {
    void operator()(Packet* memory) const { give_memory(memory); }
  };
  static constexpr std::size_t kFirstChunk = (64 << 10) / sizeof(Packet),
                               kChunk = kHugePageBytes / sizeof(Packet);

  std::vector<std::unique_ptr<Packet, Free>> chunks_;
  Packet* next_ = nullptr;                       // in the last of them
  std::size_t left_ = 0;                         // packets, there
  std::array<std::vector<Packet*>, 32> unused_;  // by the logarithm of their size
};

}  // namespace genie::twin
