// Limits of the soft NIC's socket calls.
#pragma once
#include <cstddef>

namespace genie::live {

inline constexpr std::size_t kReceiveMessages = 16, kReceiveBytes = 65536;  // of one call
inline constexpr int kReceiveCalls = 8;  // before timers and departures have their turn

inline constexpr std::size_t kSegmentsMax =
    60;  // of one offloaded send: identifications of softroce are below

}  // namespace genie::live
