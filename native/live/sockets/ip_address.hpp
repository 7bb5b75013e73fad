// An address of the data network, of either family.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "roce/icrc.hpp"

namespace genie::live {

struct IpAddress {
  bool v6 = false;
  std::array<std::byte, 16> bytes{};  // network order; IPv4 uses the first four

  // "10.0.0.1", "fd00::1", "::ffff:10.0.0.1" (which is IPv4). False when it is none.
  static bool parse(const std::string& text, IpAddress& out);
  static IpAddress of(const sockaddr_storage& address);
  std::string text() const;
  friend bool operator==(const IpAddress&, const IpAddress&) = default;

  int family() const { return v6 ? AF_INET6 : AF_INET; }
  // Fills in an address to bind or to send to; returns its length.
  socklen_t fill(sockaddr_storage& out, std::uint16_t port) const;
};

std::uint16_t port_of(const sockaddr_storage& address);

// ICRC state that all packets from one address and port to another share.
roce::IcrcFlow icrc_flow(const IpAddress& from, std::uint16_t from_port, const IpAddress& to,
                         std::uint16_t to_port, bool dont_fragment = true);

}  // namespace genie::live
