// Order of the classes of a port. Strict classes go first, from the highest. Weighted classes then take turns
// by deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), whose quantum is proportional to the weight.
// Pure.
#pragma once
#include <array>
#include <bit>
#include <cassert>
#include <cstdint>

#include "core/fold.hpp"
#include "twin/fabric/network.hpp"

namespace genie::twin {

// Of the classes with a bit in `ready`, of which there is one.
inline std::uint32_t highest_class(unsigned ready) {
  assert(ready != 0 && ready < 1u << kClasses);
  return static_cast<std::uint32_t>(std::bit_width(ready)) - 1;
}

class DeficitRoundRobin {
 public:
  // The class that sends next of those with a bit in `ready`, some of which have weights. size_of(class): of
  // its next packet, in bytes.
  template <class SizeOf>
  std::uint32_t next(unsigned ready, const std::array<std::int64_t, kClasses>& weight_bytes, SizeOf size_of) {
    assert(ready != 0 && ready < 1u << kClasses);
    while (true) {
      const std::uint32_t own = turn_;
      if ((ready >> own & 1) != 0) {
        const std::int64_t size = size_of(own);
        if (deficit_bytes_[own] >= size) {
          deficit_bytes_[own] -= size;
          return own;
        }
      } else {
        deficit_bytes_[own] = 0;
      }
      turn_ = (own + 1) % kClasses;
      deficit_bytes_[turn_] += weight_bytes[turn_];
    }
  }

  void fold(Fold& fold) const {
    static_assert(has_size<DeficitRoundRobin>(40));
    for (const std::int64_t deficit : deficit_bytes_) fold.exact(deficit);
    fold.exact(turn_);
  }

 private:
  std::array<std::int64_t, kClasses> deficit_bytes_{};
  std::uint32_t turn_ = 0;
};

}  // namespace genie::twin
