// Options of the live world's sockets.
#pragma once
#include <sys/socket.h>

namespace genie::live {

// The ECN bits of a packet's traffic class (RFC 3168).
inline constexpr int kEct0 = 0b10;  // routers may mark instead of drop
inline constexpr int kCongestionExperienced = 0b11;
constexpr bool is_marked(int traffic_class) {
  return (traffic_class & kCongestionExperienced) == kCongestionExperienced;
}

inline bool set_option(int descriptor, int level, int name, int value) {
  return setsockopt(descriptor, level, name, &value, sizeof value) == 0;
}

// As large as allowed: above the system's limit only with CAP_NET_ADMIN, by the option that forces it.
inline void set_buffer(int descriptor, int force, int plain, int size_bytes) {
  if (!set_option(descriptor, SOL_SOCKET, force, size_bytes))
    set_option(descriptor, SOL_SOCKET, plain, size_bytes);
}

}  // namespace genie::live
