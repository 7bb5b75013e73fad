#include "live/sockets/ip_address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace genie::live {
namespace {

constexpr std::size_t kMappedPrefix = 12;  // of ::ffff:a.b.c.d

bool is_mapped(const in6_addr& address) { return IN6_IS_ADDR_V4MAPPED(&address); }

IpAddress of_ipv6(const in6_addr& address) {
  IpAddress out;
  out.v6 = !is_mapped(address);
  if (out.v6) {
    std::memcpy(out.bytes.data(), address.s6_addr, 16);
  } else {
    std::memcpy(out.bytes.data(), address.s6_addr + kMappedPrefix, 4);
  }
  return out;
}

}  // namespace

bool IpAddress::parse(const std::string& text, IpAddress& out) {
  out = IpAddress();
  in_addr ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
    std::memcpy(out.bytes.data(), &ipv4.s_addr, 4);
    return true;
  }
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, text.c_str(), &ipv6) != 1) return false;
  out = of_ipv6(ipv6);
  return true;
}

IpAddress IpAddress::of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return of_ipv6(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  IpAddress out;
  std::memcpy(out.bytes.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr, 4);
  return out;
}

std::string IpAddress::text() const {
  char out[INET6_ADDRSTRLEN] = "";
  inet_ntop(family(), bytes.data(), out, sizeof out);
  return out;
}

socklen_t IpAddress::fill(sockaddr_storage& out, std::uint16_t port) const {
  out = {};
  if (v6) {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(out);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(ipv6.sin6_addr.s6_addr, bytes.data(), 16);
    return sizeof ipv6;
  }
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(out);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  std::memcpy(&ipv4.sin_addr.s_addr, bytes.data(), 4);
  return sizeof ipv4;
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

roce::IcrcFlow icrc_flow(const IpAddress& from, std::uint16_t from_port, const IpAddress& to,
                         std::uint16_t to_port, bool dont_fragment) {
  if (from.v6)
    return roce::IcrcFlow(
        roce::Ipv6Flow{.src = from.bytes, .dst = to.bytes, .src_port = from_port, .dst_port = to_port});
  roce::Ipv4Flow flow{
      .src = {}, .dst = {}, .src_port = from_port, .dst_port = to_port, .dont_fragment = dont_fragment};
  std::copy_n(from.bytes.begin(), 4, flow.src.begin());
  std::copy_n(to.bytes.begin(), 4, flow.dst.begin());
  return roce::IcrcFlow(flow);
}

}  // namespace genie::live
