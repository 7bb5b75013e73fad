// Opcodes of the reliable connection and what each says about its packet.
// InfiniBand Architecture Specification, volume 1, section 9.2.1, table 38; CNP: annex A17.9.3.
#pragma once
#include <cstdint>

namespace genie::roce {

enum class Opcode : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0A,
  kWriteOnlyImm = 0x0B,
  kReadRequest = 0x0C,
  kReadResponseFirst = 0x0D,
  kReadResponseMiddle = 0x0E,
  kReadResponseLast = 0x0F,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kCnp = 0x81,
  // WRITEs of a sprayed queue pair: a RETH in every packet. Opcodes from 0xC0 on are the manufacturer's.
  kSprayedWriteFirst = 0xC6,
  kSprayedWriteMiddle = 0xC7,
  kSprayedWriteLast = 0xC8,
  kSprayedWriteLastImm = 0xC9,
  kSprayedWriteOnly = 0xCA,
  kSprayedWriteOnlyImm = 0xCB,
};

// Each packet of the message says by itself where its payload belongs.
constexpr bool is_sprayed(Opcode code) {
  return code >= Opcode::kSprayedWriteFirst && code <= Opcode::kSprayedWriteOnlyImm;
}
constexpr Opcode sprayed(Opcode write) {
  return static_cast<Opcode>(0xC0u | static_cast<std::uint8_t>(write));
}
// The reliable connection's opcode of the same place in a message.
constexpr Opcode plain(Opcode code) {
  return is_sprayed(code) ? static_cast<Opcode>(static_cast<std::uint8_t>(code) & 0x1Fu) : code;
}

constexpr bool is_send(Opcode code) { return code <= Opcode::kSendOnlyImm; }
constexpr bool is_write(Opcode code) {
  return plain(code) >= Opcode::kWriteFirst && plain(code) <= Opcode::kWriteOnlyImm;
}

// True for packets of a requester: all but acknowledgements, responses to READs and atomics, and CNPs.
constexpr bool is_request(Opcode code) {
  return code <= Opcode::kReadRequest || (code >= Opcode::kCompareSwap && code < Opcode::kCnp) ||
         is_sprayed(code);
}

// First packet of a message (of one packet or more).
constexpr bool is_first(Opcode code) {
  code = plain(code);
  return code == Opcode::kSendFirst || code == Opcode::kSendOnly || code == Opcode::kSendOnlyImm ||
         code == Opcode::kWriteFirst || code == Opcode::kWriteOnly || code == Opcode::kWriteOnlyImm;
}

// Last packet of a message (of one packet or more).
constexpr bool is_last(Opcode code) {
  switch (plain(code)) {
    case Opcode::kSendLast:
    case Opcode::kSendLastImm:
    case Opcode::kSendOnly:
    case Opcode::kSendOnlyImm:
    case Opcode::kWriteLast:
    case Opcode::kWriteLastImm:
    case Opcode::kWriteOnly:
    case Opcode::kWriteOnlyImm:
      return true;
    default:
      return false;
  }
}

constexpr bool is_read_response(Opcode code) {
  return code >= Opcode::kReadResponseFirst && code <= Opcode::kReadResponseOnly;
}

constexpr bool has_immediate(Opcode code) {
  code = plain(code);
  return code == Opcode::kSendLastImm || code == Opcode::kSendOnlyImm || code == Opcode::kWriteLastImm ||
         code == Opcode::kWriteOnlyImm;
}

constexpr bool has_reth(Opcode code) {
  return code == Opcode::kWriteFirst || code == Opcode::kWriteOnly || code == Opcode::kWriteOnlyImm ||
         code == Opcode::kReadRequest || is_sprayed(code);
}

constexpr bool has_aeth(Opcode code) {
  return code == Opcode::kReadResponseFirst || code == Opcode::kReadResponseLast ||
         code == Opcode::kReadResponseOnly || code == Opcode::kAcknowledge ||
         code == Opcode::kAtomicAcknowledge;
}

// Name of a packet's kind in messages to users.
constexpr const char* describe(Opcode code) {
  if (code == Opcode::kReadRequest) return "a READ request";
  if (code == Opcode::kCompareSwap || code == Opcode::kFetchAdd) return "an atomic request";
  if (is_send(code)) return is_first(code) ? "a SEND" : "a part of a SEND";
  if (is_write(code)) return is_first(code) ? "a WRITE" : "a part of a WRITE";
  return is_request(code) ? "a request of an unknown kind" : "an answer";
}

inline constexpr std::uint32_t kBthBytes = 12, kRethBytes = 16, kAethBytes = 4, kImmediateBytes = 4,
                               kIcrcBytes = 4;

// BTH and extended headers of a reliable-connection packet, READ and ATOMIC requests' own headers included.
constexpr std::uint32_t header_bytes(Opcode code) {
  std::uint32_t bytes = kBthBytes;
  if (has_reth(code)) bytes += kRethBytes;
  if (has_aeth(code)) bytes += kAethBytes;
  if (has_immediate(code)) bytes += kImmediateBytes;
  if (code == Opcode::kAtomicAcknowledge) bytes += 8;
  if (code == Opcode::kCompareSwap || code == Opcode::kFetchAdd) bytes += 28;
  if (code == Opcode::kCnp) bytes += 16;
  return bytes;
}

// Bytes of a packet on the link: IPv4 and UDP headers, padding and ICRC included. `frame_overhead_bytes`:
// added by the link layer (Ethernet header and FCS 18, preamble and gap 20), and 20 more where the header is
// IPv6's.
constexpr std::uint32_t wire_bytes(Opcode code, std::uint32_t payload_bytes,
                                   std::uint32_t frame_overhead_bytes) {
  return frame_overhead_bytes + 20 + 8 + header_bytes(code) + ((payload_bytes + 3) & ~3u) + kIcrcBytes;
}

// AETH syndromes, section 9.7.5.2, tables 44 to 46: two bits of kind and five of value; the top bit is
// reserved.
inline constexpr std::uint8_t kSyndromeKind = 0x60, kSyndromeValue = 0x1F, kSyndromeValid = 0x7F;
inline constexpr std::uint8_t kSyndromePositive = 0x00;
inline constexpr std::uint8_t kSyndromeAck = 0x1F;  // ACK, no end-to-end credits
inline constexpr std::uint8_t kSyndromeRnrNak = 0x20;
inline constexpr std::uint8_t kSyndromeNak = 0x60;
enum class NakCode : std::uint8_t {
  kSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperation = 3,
};
constexpr std::uint8_t nak(NakCode code) {
  return static_cast<std::uint8_t>(kSyndromeNak | static_cast<std::uint8_t>(code));
}

// Credit count field of an ACK, table 46: receives that are posted, rounded down to what five bits can say.
inline constexpr std::uint32_t kCredits[31] = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
constexpr std::uint8_t ack_with_credits(std::int64_t receives) {
  if (receives < 0) return kSyndromeAck;
  std::uint8_t code = 30;
  while (kCredits[code] > receives) --code;
  return code;
}

// RNR NAK timer field, table 45: 5 bits to a delay, in units of 10 us.
inline constexpr std::uint32_t kRnrDelay10us[32] = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace genie::roce
