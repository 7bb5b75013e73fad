// The packet parser on arbitrary bytes: as a UDP payload, as an IP packet, and as the fields of a header to
// encode. Buffers are heap blocks of their exact size.
#include <array>
#include <vector>

#include "input.hpp"
#include "roce/icrc.hpp"
#include "roce/wire.hpp"

namespace {

using namespace genie::roce;
using genie::fuzz::Input;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8;

bool inside(Bytes part, Bytes whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

// Packets that decode() accepts encode to the same bytes, except a CNP's reserved bytes, which become zero.
// The payload is the part between headers and pad.
void udp_payload(Bytes bytes) {
  PacketHeader header;
  Bytes payload;
  if (decode(bytes, header, payload) != DecodeError::kNone) return;
  REQUIRE(packet_bytes(header) == bytes.size());
  REQUIRE(payload.size() == header.payload_bytes);
  REQUIRE(inside(payload, bytes));
  std::array<std::byte, kMaxHeaderBytes> headers;
  const std::size_t size = encode_headers(header, headers);
  REQUIRE(size >= kBthBytes && size <= bytes.size() - kIcrcBytes);
  const std::size_t compared = header.opcode == Opcode::kCnp ? kBthBytes : size;
  REQUIRE(
      std::equal(headers.begin(), headers.begin() + static_cast<std::ptrdiff_t>(compared), bytes.begin()));
  REQUIRE(payload.data() == bytes.data() + size);
  // The headers alone, in a block of exactly their size, decode to the same fields again.
  std::vector<std::byte> again(bytes.begin(), bytes.end());
  REQUIRE(encode_headers(header, std::span(again).first(size)) == size);
  PacketHeader second;
  REQUIRE(decode(again, second, payload) == DecodeError::kNone);
  REQUIRE(second == header);
}

std::uint16_t get16(Bytes bytes, std::size_t at) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(bytes[at]) << 8 |
                                    static_cast<unsigned>(bytes[at + 1]));
}

template <std::size_t kSize>
std::array<std::byte, kSize> address_at(Bytes bytes, std::size_t at) {
  std::array<std::byte, kSize> address;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), kSize, address.begin());
  return address;
}

// The short cut for a flow, where the packet is one that a flow can describe.
void flow_agrees(Bytes packet, std::uint32_t icrc) {
  const bool ipv4 = packet[0] == std::byte{0x45};
  const std::size_t ip_bytes = ipv4 ? kIpv4Bytes : kIpv6Bytes;
  const std::size_t stated = ipv4 ? get16(packet, 2) : kIpv6Bytes + get16(packet, 4);
  if (get16(packet, ip_bytes + 4) != stated - ip_bytes) return;  // UDP's length says something else
  if (stated - ip_bytes - kUdpBytes > 65507) return;
  const Bytes covered = packet.subspan(ip_bytes + kUdpBytes, stated - ip_bytes - kUdpBytes - kIcrcBytes);
  const std::uint16_t src_port = get16(packet, ip_bytes), dst_port = get16(packet, ip_bytes + 2);
  if (!ipv4) {
    const Ipv6Flow flow{address_at<16>(packet, 8), address_at<16>(packet, 24), src_port, dst_port};
    REQUIRE(IcrcFlow(flow).icrc_of(covered) == icrc);
    return;
  }
  if ((get16(packet, 6) & 0xBFFF) != 0) return;  // the reserved flag
  const Ipv4Flow flow{address_at<4>(packet, 12), address_at<4>(packet, 16), src_port, dst_port,
                      get16(packet, 6) != 0};
  const std::uint16_t identification = get16(packet, 4);
  REQUIRE(IcrcFlow(flow).icrc_of(covered, identification) == icrc);
  REQUIRE(IcrcFlow(flow).identification_of(covered, icrc) == identification);
  PacketHeader header;
  Bytes payload;
  const Bytes whole = packet.subspan(ip_bytes + kUdpBytes, covered.size() + kIcrcBytes);
  if (decode(whole, header, payload) != DecodeError::kNone) return;
  for (std::size_t at = static_cast<std::size_t>(payload.data() - whole.data()) + payload.size();
       at < covered.size(); ++at)
    if (covered[at] != std::byte{0}) return;  // in two pieces the pad counts as zeros
  const std::size_t head = static_cast<std::size_t>(payload.data() - whole.data());
  REQUIRE(IcrcFlow(flow).icrc(covered.first(head), payload, identification) == icrc);
}

void ip_packet(Bytes packet) {
  const auto icrc = icrc_of_ip_packet(packet, CrcPath::kTable);
  for (const CrcPath path : kCrcPaths)
    if (crc_path_available(path)) REQUIRE(icrc_of_ip_packet(packet, path) == icrc);
  if (!icrc) return;
  flow_agrees(packet, *icrc);
  const std::size_t ip_bytes = packet[0] == std::byte{0x45} ? kIpv4Bytes : kIpv6Bytes;
  udp_payload(packet.subspan(ip_bytes + kUdpBytes));
}

// Fields wider than their place are cut to it; nothing is written behind the room that is given.
void header_fields(Input in) {
  PacketHeader header{.opcode = static_cast<Opcode>(in.u8()),
                      .solicited = in.flag(),
                      .migreq = in.flag(),
                      .transport_version = static_cast<std::uint8_t>(in.u8()),
                      .fecn = in.flag(),
                      .becn = in.flag(),
                      .ack_request = in.flag(),
                      .reserved6 = static_cast<std::uint8_t>(in.u8()),
                      .reserved7 = static_cast<std::uint8_t>(in.u8()),
                      .pkey = static_cast<std::uint16_t>(in.u16()),
                      .dest_qpn = in.u32(),
                      .psn = in.u32(),
                      .payload_bytes = in.u16() & 0x1FFF};
  const std::size_t room = in.below(kMaxHeaderBytes + 8);
  header.reth = {.va = in.u64(), .rkey = in.u32(), .length_bytes = in.u32()};
  header.aeth = {.syndrome = static_cast<std::uint8_t>(in.u8()), .msn = in.u32()};
  header.imm = in.u32();
  header.invalidate_rkey = in.u32();
  header.atomic = {.swap_or_add = in.u64(), .compare = in.u64(), .original = in.u64()};
  std::vector<std::byte> out(room);
  const std::size_t size = encode_headers(header, out);
  REQUIRE(size <= room);
  if (size == 0) return;
  std::vector<std::byte> packet(packet_bytes(header));
  REQUIRE(encode_headers(header, packet) == size);
  REQUIRE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size), packet.begin()));
  PacketHeader second;
  Bytes payload;
  const DecodeError error = decode(packet, second, payload);
  REQUIRE((error == DecodeError::kBadVersion) == ((header.transport_version & 0x0F) != 0));
  if (error != DecodeError::kNone) {
    REQUIRE(error != DecodeError::kUnknownOpcode && error != DecodeError::kShort);
    return;
  }
  REQUIRE(second.opcode == header.opcode && second.payload_bytes == header.payload_bytes);
  REQUIRE(second.psn == (header.psn & kMask24) && second.dest_qpn == (header.dest_qpn & kMask24));
  REQUIRE(second.pkey == header.pkey && second.solicited == header.solicited && second.becn == header.becn);
  if (has_reth(header.opcode)) REQUIRE(second.reth == header.reth);
  if (has_aeth(header.opcode)) REQUIRE(second.aeth.syndrome == header.aeth.syndrome);
  if (has_immediate(header.opcode)) REQUIRE(second.imm == header.imm);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  udp_payload(bytes);
  ip_packet(bytes);
  header_fields(Input(bytes));
  return 0;
}
