#include "roce/wire.hpp"

#include <array>
#include <cassert>

namespace genie::roce {
namespace {

// Header layout of an opcode.
struct Layout {
  std::uint8_t header_bytes = 0;  // 0: unknown
  bool reth = false, atomic = false, aeth = false, atomic_ack = false, immediate = false, invalidate = false;
  bool carries_payload = false;
  bool may_be_empty = false;  // "only" packets
  bool may_be_padded = false;
};

constexpr bool is_known(std::uint8_t value) {
  return (value <= 0x17 && value != 0x15) || Opcode{value} == Opcode::kCnp || is_sprayed(Opcode{value});
}

constexpr Layout layout_of(std::uint8_t value) {
  const Opcode opcode{value};
  Layout layout;
  if (!is_known(value)) return layout;
  layout.reth = has_reth(opcode);
  layout.atomic = opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
  layout.aeth = has_aeth(opcode);
  layout.atomic_ack = opcode == Opcode::kAtomicAcknowledge;
  layout.immediate = has_immediate(opcode);
  layout.invalidate = opcode == kSendLastInvalidate || opcode == kSendOnlyInvalidate;
  layout.header_bytes = static_cast<std::uint8_t>(layout.invalidate ? kBthBytes + 4 : header_bytes(opcode));
  const bool response = opcode >= Opcode::kReadResponseFirst && opcode <= Opcode::kReadResponseOnly;
  layout.carries_payload = is_send(opcode) || is_write(opcode) || response || layout.invalidate;
  layout.may_be_empty = (is_first(opcode) && is_last(opcode)) || opcode == Opcode::kReadResponseOnly ||
                        opcode == kSendOnlyInvalidate;
  layout.may_be_padded = is_last(opcode) || opcode == Opcode::kReadResponseLast ||
                         opcode == Opcode::kReadResponseOnly || layout.invalidate;
  return layout;
}

constexpr std::array<Layout, 256> kLayouts = [] {
  std::array<Layout, 256> layouts{};
  for (std::size_t value = 0; value < layouts.size(); ++value)
    layouts[value] = layout_of(static_cast<std::uint8_t>(value));
  return layouts;
}();

const Layout& layout(Opcode opcode) { return kLayouts[static_cast<std::uint8_t>(opcode)]; }

// Big-endian words. The callers have checked the length.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  const std::byte* at() const { return at_; }
  void u8(std::uint32_t v) { *at_++ = static_cast<std::byte>(v & 0xFF); }
  void u16(std::uint32_t v) { u8(v >> 8), u8(v); }
  void u24(std::uint32_t v) { u8(v >> 16), u16(v); }
  void u32(std::uint32_t v) { u16(v >> 16), u16(v); }
  void u64(std::uint64_t v) { u32(static_cast<std::uint32_t>(v >> 32)), u32(static_cast<std::uint32_t>(v)); }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(*at_++); }
  std::uint16_t u16() {
    const std::uint32_t high = u8();
    return static_cast<std::uint16_t>(high << 8 | u8());
  }
  std::uint32_t u24() {
    const std::uint32_t high = u8();
    return high << 16 | u16();
  }
  std::uint32_t u32() {
    const std::uint32_t high = u16();
    return high << 16 | u16();
  }
  std::uint64_t u64() {
    const std::uint64_t high = u32();
    return high << 32 | u32();
  }

 private:
  const std::byte* at_;
};

// 9.2: base transport header.
void write_bth(const PacketHeader& h, Writer& out) {
  out.u8(static_cast<std::uint32_t>(h.opcode));
  out.u8((h.solicited ? 0x80U : 0U) | (h.migreq ? 0x40U : 0U) | pad_bytes(h.payload_bytes) << 4 |
         (h.transport_version & 0x0FU));
  out.u16(h.pkey);
  out.u8((h.fecn ? 0x80U : 0U) | (h.becn ? 0x40U : 0U) | (h.reserved6 & 0x3FU));
  out.u24(h.dest_qpn);
  out.u8((h.ack_request ? 0x80U : 0U) | (h.reserved7 & 0x7FU));
  out.u24(h.psn);
}

// Returns the pad count, which the caller checks and does not keep.
std::uint32_t read_bth(Reader& in, PacketHeader& h) {
  h.opcode = static_cast<Opcode>(in.u8());
  const std::uint8_t flags = in.u8();
  h.solicited = (flags & 0x80) != 0;
  h.migreq = (flags & 0x40) != 0;
  h.transport_version = flags & 0x0F;
  h.pkey = in.u16();
  const std::uint8_t congestion = in.u8();
  h.fecn = (congestion & 0x80) != 0;
  h.becn = (congestion & 0x40) != 0;
  h.reserved6 = congestion & 0x3F;
  h.dest_qpn = in.u24();
  const std::uint8_t request = in.u8();
  h.ack_request = (request & 0x80) != 0;
  h.reserved7 = request & 0x7F;
  h.psn = in.u24();
  return (flags >> 4) & 3U;
}

void read_extensions(Reader& in, const Layout& t, PacketHeader& h) {
  if (t.reth) h.reth = {.va = in.u64(), .rkey = in.u32(), .length_bytes = in.u32()};
  if (t.atomic) {
    h.reth = {.va = in.u64(), .rkey = in.u32(), .length_bytes = 0};
    h.atomic.swap_or_add = in.u64();
    h.atomic.compare = in.u64();
  }
  if (t.aeth) h.aeth = {.syndrome = in.u8(), .msn = in.u24()};
  if (t.atomic_ack) h.atomic.original = in.u64();
  if (t.immediate) h.imm = in.u32();
  if (t.invalidate) h.invalidate_rkey = in.u32();
}

// 9.6.1: which payload lengths an opcode can have whatever the path MTU.
DecodeError check_payload(const Layout& t, std::size_t payload_bytes, std::size_t pad) {
  if (!t.carries_payload) return payload_bytes + pad == 0 ? DecodeError::kNone : DecodeError::kBadLength;
  if (pad != 0 && !t.may_be_padded) return DecodeError::kBadPad;
  return payload_bytes != 0 || t.may_be_empty ? DecodeError::kNone : DecodeError::kBadLength;
}

}  // namespace

std::size_t packet_bytes(const PacketHeader& header) {
  return layout(header.opcode).header_bytes + header.payload_bytes + pad_bytes(header.payload_bytes) +
         kIcrcBytes;
}

std::size_t encode_headers(const PacketHeader& h, std::span<std::byte> out_bytes) {
  const Layout& t = layout(h.opcode);
  if (t.header_bytes == 0 || out_bytes.size() < t.header_bytes) return 0;
  Writer out(out_bytes.data());
  write_bth(h, out);
  if (t.reth || t.atomic) out.u64(h.reth.va), out.u32(h.reth.rkey);
  if (t.reth) out.u32(h.reth.length_bytes);
  if (t.atomic) out.u64(h.atomic.swap_or_add), out.u64(h.atomic.compare);
  if (t.aeth) out.u8(h.aeth.syndrome), out.u24(h.aeth.msn);
  if (t.atomic_ack) out.u64(h.atomic.original);
  if (t.immediate) out.u32(h.imm);
  if (t.invalidate) out.u32(h.invalidate_rkey);
  if (h.opcode == Opcode::kCnp) out.u64(0), out.u64(0);
  assert(out.at() == out_bytes.data() + t.header_bytes);
  return t.header_bytes;
}

const char* describe(DecodeError error) {
  switch (error) {
    case DecodeError::kNone:
      return "no error";
    case DecodeError::kShort:
      return "shorter than the headers of its opcode";
    case DecodeError::kUnknownOpcode:
      return "an opcode that is neither of the reliable connection nor a CNP nor of a sprayed WRITE";
    case DecodeError::kBadVersion:
      return "a transport header version other than 0";
    case DecodeError::kBadPad:
      return "a pad count that does not fit the payload or the opcode";
    case DecodeError::kBadLength:
      return "a payload length that its opcode cannot have";
  }
  return "unknown error";
}

DecodeError decode(std::span<const std::byte> udp_payload, PacketHeader& header,
                   std::span<const std::byte>& payload) {
  if (udp_payload.size() < kBthBytes + kIcrcBytes) return DecodeError::kShort;
  header = PacketHeader{};
  Reader in(udp_payload.data());
  const std::size_t pad = read_bth(in, header);
  if (header.transport_version != 0) return DecodeError::kBadVersion;
  const Layout& t = layout(header.opcode);
  if (t.header_bytes == 0) return DecodeError::kUnknownOpcode;
  if (udp_payload.size() < t.header_bytes + kIcrcBytes) return DecodeError::kShort;
  const std::size_t body_bytes = udp_payload.size() - t.header_bytes - kIcrcBytes;
  if (body_bytes % 4 != 0) return DecodeError::kBadLength;
  if (pad > body_bytes) return DecodeError::kBadPad;
  const DecodeError error = check_payload(t, body_bytes - pad, pad);
  if (error != DecodeError::kNone) return error;
  read_extensions(in, t, header);
  header.payload_bytes = static_cast<std::uint32_t>(body_bytes - pad);
  payload = udp_payload.subspan(t.header_bytes, header.payload_bytes);
  return DecodeError::kNone;
}

}  // namespace genie::roce
