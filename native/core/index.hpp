// Places in arrays from signed numbers, such as ranks and nodes.
#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace genie {

constexpr std::size_t index(std::int32_t number) {
  assert(number >= 0);
  return static_cast<std::size_t>(number);
}

}  // namespace genie
