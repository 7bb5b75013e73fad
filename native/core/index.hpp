// Places in arrays from signed numbers, such as ranks and nodes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace genie {

constexpr std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

}  // namespace genie
