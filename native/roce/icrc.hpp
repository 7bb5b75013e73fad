// Invariant CRC of RoCEv2 packets: IBTA specification volume 1, 7.8.1, and annex A17.3.3. Pure.
//
// CRC-32 over 8 bytes of ones (the place of InfiniBand's link header), the IP and UDP headers, BTH, extension
// headers, payload and pad. Fields that a router may change count as ones. Of IPv4 these are TOS, TTL and
// checksum. Of IPv6 they are traffic class, flow label and hop limit. The UDP checksum and the byte of BTH
// with FECN and BECN count as ones too. The ICRC is sent with its least significant byte first.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "roce/crc32.hpp"

namespace genie::roce {

// Addresses are bytes in network order, ports host integers. The IPv4 header has no options and no fragment
// offset, the IPv6 header no extension headers.
struct Ipv4Flow {
  std::array<std::byte, 4> src{};
  std::array<std::byte, 4> dst{};
  std::uint16_t src_port = 0;
  std::uint16_t dst_port = 4791;
  bool dont_fragment = true;
};

struct Ipv6Flow {
  std::array<std::byte, 16> src{};
  std::array<std::byte, 16> dst{};
  std::uint16_t src_port = 0;
  std::uint16_t dst_port = 4791;
};

// Fields that all packets of a flow share, hashed once. The CRC is linear, so tables add the lengths and the
// identification, which differ by packet. begin() costs a few look-ups instead of 36 or 56 bytes.
class IcrcFlow {
 public:
  IcrcFlow() = default;
  explicit IcrcFlow(const Ipv4Flow& flow);
  explicit IcrcFlow(const Ipv6Flow& flow);

  // Register after IP and UDP headers. `udp_payload_bytes` counts the ICRC and is at most 65,507. The
  // identification is IPv4's (Linux sends 0 from an unconnected socket with IP_PMTUDISC_DO), ignored for
  // IPv6.
  std::uint32_t begin(std::size_t udp_payload_bytes, std::uint16_t identification = 0) const;

  // ICRC of a packet in two pieces: BTH with extension headers (at least 12 bytes), then the payload. The pad
  // is added as zeros.
  std::uint32_t icrc(std::span<const std::byte> headers, std::span<const std::byte> payload,
                     std::uint16_t identification = 0) const;

  // The identification with which a packet in one piece would carry this ICRC, if there is one. A plain
  // socket does not show the identification: to accept any is to check with 16 bits less.
  std::optional<std::uint16_t> identification_of(std::span<const std::byte> udp_payload_without_icrc,
                                                 std::uint32_t icrc) const;

  // ICRC of a packet in one piece: the UDP payload without its ICRC (at least 12 bytes).
  std::uint32_t icrc_of(std::span<const std::byte> udp_payload_without_icrc,
                        std::uint16_t identification = 0) const;

 private:
  std::uint32_t base_ = 0;
  bool ipv6_ = false;
};

// Appends BTH, its masked byte as ones, and what follows it in `headers` (at least 12 bytes in all).
std::uint32_t crc_update_headers(std::uint32_t crc, std::span<const std::byte> headers);

inline std::uint32_t icrc_ipv4(const Ipv4Flow& flow, std::uint16_t identification,
                               std::span<const std::byte> udp_payload_without_icrc) {
  return IcrcFlow(flow).icrc_of(udp_payload_without_icrc, identification);
}

inline std::uint32_t icrc_ipv6(const Ipv6Flow& flow, std::span<const std::byte> udp_payload_without_icrc) {
  return IcrcFlow(flow).icrc_of(udp_payload_without_icrc);
}

// The ICRC as it is sent, the last 4 bytes of a UDP payload.
void store_icrc(std::uint32_t icrc, std::byte* at);
std::uint32_t load_icrc(const std::byte* at);

// ICRC that a whole IP packet (from the version nibble to its ICRC, bytes after it allowed) should carry. It
// is computed from a masked copy of the packet's headers and by `path`. This is slower than IcrcFlow and
// independent of it. Nothing when this is not UDP with BTH and ICRC directly in an IPv4 header without
// options or in an IPv6 header, unfragmented.
std::optional<std::uint32_t> icrc_of_ip_packet(std::span<const std::byte> packet, CrcPath path);

}  // namespace genie::roce
