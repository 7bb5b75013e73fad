// RoCEv2 packet headers of the reliable connection: IBTA specification volume 1, chapter 9 (transport) and
// annex A17 (RoCEv2). Pure: no exception, no allocation, no read or write outside the spans given.
//
// A UDP payload is  BTH · extension headers · payload · pad (0..3 bytes) · ICRC (4 bytes, see icrc.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/opcode.hpp"

namespace genie::roce {

inline constexpr std::uint16_t kUdpPort = 4791;      // A17.9.1
inline constexpr std::size_t kMaxHeaderBytes = 40;   // BTH and AtomicETH
inline constexpr std::uint32_t kMask24 = 0xFF'FFFF;  // PSN, MSN and queue pair numbers
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;

// Understood on the wire, never sent by a queue pair of ours (table 38).
inline constexpr Opcode kSendLastInvalidate{0x16};
inline constexpr Opcode kSendOnlyInvalidate{0x17};

// 9.3.3.1: RDMA extended transport header.
struct Reth {
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length_bytes = 0;
  friend bool operator==(const Reth&, const Reth&) = default;
};

// 9.3.5: ACK extended transport header; the syndrome's meaning is in 9.7.5.2.1.
struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;
  friend bool operator==(const Aeth&, const Aeth&) = default;
};

// AtomicETH (its address and key are in `reth`) and AtomicAckETH.
struct Atomic {
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  std::uint64_t original = 0;
  friend bool operator==(const Atomic&, const Atomic&) = default;
};

// The headers of one packet. The opcode says which extension headers are on the wire, and `payload_bytes` the
// pad count. After decode(), fields of headers that the opcode does not have are zero.
struct PacketHeader {
  Opcode opcode = Opcode::kSendOnly;
  bool solicited = false;
  bool migreq = false;
  std::uint8_t transport_version = 0;
  bool fecn = false;
  bool becn = false;
  bool ack_request = false;
  std::uint8_t reserved6 = 0;  // after BECN; like the one below kept, so that a capture encodes to itself
  std::uint8_t reserved7 = 0;  // after AckReq
  std::uint16_t pkey = kDefaultPkey;
  std::uint32_t dest_qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t payload_bytes = 0;  // without pad
  Reth reth{};
  Aeth aeth{};
  std::uint32_t imm = 0;              // ImmDt, as a host integer
  std::uint32_t invalidate_rkey = 0;  // IETH
  Atomic atomic{};
  friend bool operator==(const PacketHeader&, const PacketHeader&) = default;
};

constexpr std::uint32_t pad_bytes(std::uint32_t payload_bytes) { return (0U - payload_bytes) & 3U; }

// Bytes of the UDP payload that carries this packet, ICRC included.
std::size_t packet_bytes(const PacketHeader& header);

// Writes BTH and extension headers to the front of `out`; the 16 reserved bytes of a CNP count as header and
// are zero. Returns how many bytes, or 0 when the opcode is unknown or `out` is too short. Fields wider than
// their place on the wire are cut to it.
std::size_t encode_headers(const PacketHeader& header, std::span<std::byte> out);

enum class DecodeError : std::uint8_t { kNone, kShort, kUnknownOpcode, kBadVersion, kBadPad, kBadLength };
const char* describe(DecodeError error);

// Reads a UDP payload, ICRC included. On success `payload` is the part between headers and pad. On failure
// `header` and `payload` are unspecified. decode() refuses what no path MTU makes right (9.6.1). It refuses a
// transport version other than 0, a payload where the opcode has none, and a length that is no multiple of 4.
// It refuses a first or middle packet with pad, and a first, middle or last packet without payload. It does
// not check the ICRC.
[[nodiscard]] DecodeError decode(std::span<const std::byte> udp_payload, PacketHeader& header,
                                 std::span<const std::byte>& payload);

}  // namespace genie::roce
