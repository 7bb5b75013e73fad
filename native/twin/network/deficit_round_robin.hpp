// Turns of weighted classes on a port: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), whose
// quantum is proportional to the weight.
#pragma once
#include <array>
#include <cstdint>

#include "twin/fabric/network.hpp"

namespace genie::twin {

struct DeficitRoundRobin {
  std::array<std::int64_t, kClasses> deficit_bytes{};
  std::uint32_t turn = 0;

  // The class that sends next of those with a bit in `ready`, some of which have weights. size_of(class): of
  // its next packet, in bytes.
  template <class SizeOf>
  std::uint32_t next(unsigned ready, const std::array<std::int64_t, kClasses>& weight_bytes, SizeOf size_of) {
    while (true) {
      const std::uint32_t own = turn;
      if ((ready >> own & 1) != 0) {
        const std::int64_t size = size_of(own);
        if (deficit_bytes[own] >= size) {
          deficit_bytes[own] -= size;
          return own;
        }
      } else {
        deficit_bytes[own] = 0;
      }
      turn = (own + 1) % kClasses;
      deficit_bytes[turn] += weight_bytes[turn];
    }
  }
};

}  // namespace genie::twin
