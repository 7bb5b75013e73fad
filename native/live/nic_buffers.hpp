// How much the soft NIC takes from its socket at once.
#pragma once
#include <cstddef>

namespace genie::live {

inline constexpr std::size_t kReceiveMessages = 16, kReceiveBytes = 65536;  // of one call
inline constexpr int kReceiveCalls = 8;  // before timers and departures have their turn

}  // namespace genie::live
