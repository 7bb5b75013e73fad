#include "roce/icrc.hpp"

#include <cassert>
#include <cstring>

#include "roce/opcode.hpp"

namespace genie::roce {
namespace {

constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kLinkBytes = 8;      // masked
constexpr std::size_t kBthMaskedByte = 4;  // FECN, BECN, six reserved bits
constexpr std::size_t kMaxPrefixBytes = kLinkBytes + kIpv6Bytes + kUdpBytes;
constexpr std::byte kOnes{0xFF};
constexpr std::byte kProtocolUdp{17};

void put16(std::byte* at, std::size_t value) {
  at[0] = static_cast<std::byte>(value >> 8 & 0xFF);
  at[1] = static_cast<std::byte>(value & 0xFF);
}

std::size_t get16(const std::byte* at) {
  return static_cast<std::size_t>(at[0]) << 8 | static_cast<std::size_t>(at[1]);
}

// Contribution of a big-endian 16-bit field to the register, with `kAfter` bytes after it up to the end of
// UDP's header.
template <std::size_t kAfter>
std::uint32_t field16(std::size_t value) {
  using Table = std::array<std::uint32_t, 256>;
  static constexpr std::array<Table, 2> kTables = [] {
    std::array<Table, 2> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      tables[0][byte] = crc_of_byte(byte, kAfter);
      tables[1][byte] = crc_of_byte(byte, kAfter + 1);
    }
    return tables;
  }();
  return kTables[1][value >> 8 & 0xFF] ^ kTables[0][value & 0xFF];
}

// A17.3.3: the fields that count as ones.
void mask_ipv4(std::byte* ip) {
  ip[1] = kOnes;            // TOS
  ip[8] = kOnes;            // TTL
  ip[10] = ip[11] = kOnes;  // checksum
}

void mask_ipv6(std::byte* ip) {
  ip[0] |= std::byte{0x0F};       // traffic class
  ip[1] = ip[2] = ip[3] = kOnes;  // traffic class, flow label
  ip[7] = kOnes;                  // hop limit
}

void mask_udp(std::byte* udp) { udp[6] = udp[7] = kOnes; }

// Register after the link header's ones and `ip`, in which the fields that differ by packet are zero.
template <std::size_t kIpBytes>
std::uint32_t hash_prefix(const std::array<std::byte, kIpBytes>& ip, std::uint16_t src_port,
                          std::uint16_t dst_port) {
  std::array<std::byte, kLinkBytes + kIpBytes + kUdpBytes> prefix{};
  std::memset(prefix.data(), 0xFF, kLinkBytes);
  std::memcpy(prefix.data() + kLinkBytes, ip.data(), kIpBytes);
  std::byte* udp = prefix.data() + kLinkBytes + kIpBytes;
  put16(udp, src_port);
  put16(udp + 2, dst_port);
  mask_udp(udp);
  return crc_update(kCrcInit, prefix.data(), prefix.size());
}

}  // namespace

IcrcFlow::IcrcFlow(const Ipv4Flow& flow) {
  std::array<std::byte, kIpv4Bytes> ip{};
  ip[0] = std::byte{0x45};
  ip[6] = flow.dont_fragment ? std::byte{0x40} : std::byte{0};
  ip[9] = kProtocolUdp;
  std::memcpy(&ip[12], flow.src.data(), flow.src.size());
  std::memcpy(&ip[16], flow.dst.data(), flow.dst.size());
  mask_ipv4(ip.data());
  base_ = hash_prefix(ip, flow.src_port, flow.dst_port);
}

IcrcFlow::IcrcFlow(const Ipv6Flow& flow) : ipv6_(true) {
  std::array<std::byte, kIpv6Bytes> ip{};
  ip[0] = std::byte{0x60};
  ip[6] = kProtocolUdp;
  std::memcpy(&ip[8], flow.src.data(), flow.src.size());
  std::memcpy(&ip[24], flow.dst.data(), flow.dst.size());
  mask_ipv6(ip.data());
  base_ = hash_prefix(ip, flow.src_port, flow.dst_port);
}

std::uint32_t IcrcFlow::begin(std::size_t udp_payload_bytes, std::uint16_t identification) const {
  assert(udp_payload_bytes <= 65535 - kIpv4Bytes - kUdpBytes);
  const std::size_t udp_bytes = kUdpBytes + udp_payload_bytes;
  const std::uint32_t crc = base_ ^ field16<2>(udp_bytes);
  if (ipv6_) return crc ^ field16<kUdpBytes + kIpv6Bytes - 6>(udp_bytes);
  return crc ^ field16<kUdpBytes + kIpv4Bytes - 4>(kIpv4Bytes + udp_bytes) ^
         field16<kUdpBytes + kIpv4Bytes - 6>(identification);
}

std::uint32_t crc_update_headers(std::uint32_t crc, std::span<const std::byte> headers) {
  assert(headers.size() >= kBthBytes);
  std::array<std::byte, kBthBytes> bth;
  std::memcpy(bth.data(), headers.data(), kBthBytes);
  bth[kBthMaskedByte] = kOnes;
  crc = crc_update(crc, bth.data(), kBthBytes);
  return crc_update(crc, headers.data() + kBthBytes, headers.size() - kBthBytes);
}

std::uint32_t IcrcFlow::icrc(std::span<const std::byte> headers, std::span<const std::byte> payload,
                             std::uint16_t identification) const {
  static constexpr std::byte kPad[3]{};
  const std::size_t pad = (0 - payload.size()) & 3U;
  std::uint32_t crc = begin(headers.size() + payload.size() + pad + kIcrcBytes, identification);
  crc = crc_update_headers(crc, headers);
  crc = crc_update(crc, payload.data(), payload.size());
  return ~crc_update(crc, kPad, pad);
}

std::uint32_t IcrcFlow::icrc_of(std::span<const std::byte> udp_payload, std::uint16_t identification) const {
  return ~crc_update_headers(begin(udp_payload.size() + kIcrcBytes, identification), udp_payload);
}

namespace {

constexpr std::size_t kAfterIdentification = kUdpBytes + kIpv4Bytes - 6;

// A part of the identification and what it adds to the register, which is linear in it. The parts are reduced
// so that each has a bit of the register to itself, the pivot.
struct Share {
  std::uint32_t crc = 0, pivot = 0;
  std::uint16_t identification = 0;
};

constexpr std::array<Share, 16> kShares = [] {
  std::array<Share, 16> shares{};
  for (std::size_t bit = 0; bit < 16; ++bit) {
    const std::uint32_t byte = 1U << bit % 8;
    shares[bit] = {crc_of_byte(byte, kAfterIdentification + bit / 8), 0,
                   static_cast<std::uint16_t>(1U << bit)};
  }
  for (std::size_t at = 0; at < 16; ++at) {
    shares[at].pivot = shares[at].crc & (0 - shares[at].crc);
    for (std::size_t other = 0; other < 16; ++other) {
      if (other == at || (shares[other].crc & shares[at].pivot) == 0) continue;
      shares[other].crc ^= shares[at].crc;
      shares[other].identification =
          static_cast<std::uint16_t>(shares[other].identification ^ shares[at].identification);
    }
  }
  return shares;
}();

}  // namespace

std::optional<std::uint16_t> IcrcFlow::identification_of(std::span<const std::byte> udp_payload,
                                                         std::uint32_t icrc) const {
  // The CRC is linear: without the effect of the bytes after UDP's header, the identification's contribution
  // is left.
  std::uint32_t difference = crc_before_zeros(icrc_of(udp_payload, 0) ^ icrc, udp_payload.size());
  std::uint16_t identification = 0;
  if (!ipv6_) {
    for (const Share& share : kShares) {
      if ((difference & share.pivot) == 0) continue;
      difference ^= share.crc;
      identification = static_cast<std::uint16_t>(identification ^ share.identification);
    }
  }
  if (difference != 0) return std::nullopt;
  return identification;
}

void store_icrc(std::uint32_t icrc, std::byte* at) {
  for (int byte = 0; byte < 4; ++byte) at[byte] = static_cast<std::byte>(icrc >> 8 * byte & 0xFF);
}

std::uint32_t load_icrc(const std::byte* at) {
  std::uint32_t icrc = 0;
  for (int byte = 0; byte < 4; ++byte) icrc |= static_cast<std::uint32_t>(at[byte]) << 8 * byte;
  return icrc;
}

namespace {

// Bytes of the IP header of a packet that icrc_of_ip_packet() takes, 0 for any other.
std::size_t plain_ip_bytes(std::span<const std::byte> packet) {
  if (packet.size() < kIpv4Bytes) return 0;
  if (packet[0] == std::byte{0x45}) {
    const bool fragment = (get16(&packet[6]) & 0x3FFF) != 0;
    return packet[9] == kProtocolUdp && !fragment ? kIpv4Bytes : 0;
  }
  const bool ipv6 = (packet[0] & std::byte{0xF0}) == std::byte{0x60};
  return ipv6 && packet.size() >= kIpv6Bytes && packet[6] == kProtocolUdp ? kIpv6Bytes : 0;
}

// Bytes of the IP packet by its own length field.
std::size_t stated_bytes(std::span<const std::byte> packet, std::size_t ip_bytes) {
  return ip_bytes == kIpv4Bytes ? get16(&packet[2]) : kIpv6Bytes + get16(&packet[4]);
}

}  // namespace

std::optional<std::uint32_t> icrc_of_ip_packet(std::span<const std::byte> packet, CrcPath path) {
  const std::size_t ip_bytes = plain_ip_bytes(packet);
  if (ip_bytes == 0) return std::nullopt;
  const std::size_t size_bytes = stated_bytes(packet, ip_bytes);
  const std::size_t head_bytes = ip_bytes + kUdpBytes + kBthBytes;
  if (size_bytes > packet.size() || size_bytes < head_bytes + kIcrcBytes) return std::nullopt;
  std::array<std::byte, kMaxPrefixBytes + kBthBytes> head;
  std::memset(head.data(), 0xFF, kLinkBytes);
  std::byte* ip = head.data() + kLinkBytes;
  std::memcpy(ip, packet.data(), head_bytes);
  ip_bytes == kIpv4Bytes ? mask_ipv4(ip) : mask_ipv6(ip);
  mask_udp(ip + ip_bytes);
  ip[ip_bytes + kUdpBytes + kBthMaskedByte] = kOnes;
  const std::uint32_t crc = crc_update_by(path, kCrcInit, head.data(), kLinkBytes + head_bytes);
  const auto rest = packet.subspan(head_bytes, size_bytes - head_bytes - kIcrcBytes);
  return ~crc_update_by(path, crc, rest.data(), rest.size());
}

}  // namespace genie::roce
