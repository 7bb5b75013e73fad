// Prints inputs to start fuzz_parser's corpus from: packets of each opcode, as UDP payload, as IPv4 and as
// IPv6 packet, by our own encoder. With an argument: malformed ones, which the corpus keeps whatever they
// reach.
#include <array>
#include <cstdio>
#include <vector>

#include "roce/icrc.hpp"
#include "roce/wire.hpp"

namespace {

using namespace genie::roce;
using Bytes = std::vector<std::byte>;

void put16(std::byte* at, std::size_t value) {
  at[0] = static_cast<std::byte>(value >> 8 & 0xFF);
  at[1] = static_cast<std::byte>(value & 0xFF);
}

void print(const Bytes& bytes) {
  for (const std::byte byte : bytes) std::printf("%02x", static_cast<unsigned>(byte));
  std::printf("\n");
}

Bytes udp_payload_of(const PacketHeader& header) {
  Bytes bytes(packet_bytes(header));
  const std::size_t size = encode_headers(header, bytes);
  for (std::size_t at = 0; at < header.payload_bytes; ++at)
    bytes[size + at] = static_cast<std::byte>((at * 29 + 3) & 0xFF);
  return bytes;
}

// Around the payload: IP and UDP headers, the right ICRC.
Bytes ip_packet_of(const Bytes& payload, bool ipv4) {
  const std::size_t ip_bytes = ipv4 ? 20 : 40, udp_bytes = 8 + payload.size();
  Bytes packet(ip_bytes + udp_bytes);
  packet[0] = ipv4 ? std::byte{0x45} : std::byte{0x60};
  put16(&packet[ipv4 ? 2 : 4], ipv4 ? ip_bytes + udp_bytes : udp_bytes);
  packet[ipv4 ? 9 : 6] = std::byte{17};
  packet[ipv4 ? 8 : 7] = std::byte{64};
  if (ipv4) packet[6] = std::byte{0x40};
  packet[ip_bytes - 1] = std::byte{1};
  put16(&packet[ip_bytes], 0xC123);
  put16(&packet[ip_bytes + 2], kUdpPort);
  put16(&packet[ip_bytes + 4], udp_bytes);
  std::copy(payload.begin(), payload.end(), packet.begin() + static_cast<std::ptrdiff_t>(ip_bytes) + 8);
  if (const auto icrc = icrc_of_ip_packet(packet, CrcPath::kTable))
    store_icrc(*icrc, packet.data() + packet.size() - kIcrcBytes);
  return packet;
}

// Pad counts that no payload goes with.
void print_malformed() {
  for (const Opcode opcode :
       {Opcode::kSendOnly, Opcode::kWriteOnly, Opcode::kReadResponseOnly, kSendOnlyInvalidate}) {
    Bytes packet = udp_payload_of({.opcode = opcode});
    for (const std::byte flags : {std::byte{0x10}, std::byte{0x30}}) {
      packet[1] = flags;
      print(packet);
    }
  }
}

void print_packets() {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    PacketHeader header{.opcode = static_cast<Opcode>(opcode), .dest_qpn = 0x10001, .psn = 0xABCDEF};
    header.reth = {.va = 0x1122334455667788, .rkey = 0x99AABBCC, .length_bytes = 0x1000};
    header.aeth = {.syndrome = 0x1F, .msn = 3};
    header.imm = 0xDDEEFF01;
    for (const std::uint32_t size : {0U, 5U, 64U}) {
      header.payload_bytes = size;
      if (packet_bytes(header) < kBthBytes + kIcrcBytes) continue;
      const Bytes payload = udp_payload_of(header);
      PacketHeader decoded;
      std::span<const std::byte> part;
      if (decode(payload, decoded, part) != DecodeError::kNone) continue;
      print(payload);
      print(ip_packet_of(payload, true));
      print(ip_packet_of(payload, false));
    }
  }
}

}  // namespace

int main(int count, char**) {
  if (count > 1) {
    print_malformed();
  } else {
    print_packets();
  }
}
