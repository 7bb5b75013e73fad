// The codec on random and cut input (run under ASan and UBSan) and the CRC's algorithms against each other.
#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "roce/icrc.hpp"
#include "roce/wire.hpp"

namespace {

using namespace genie::roce;
using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

Bytes random_bytes(Random& random, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
  return bytes;
}

std::size_t below(Random& random, std::size_t limit) { return static_cast<std::size_t>(random() % limit); }

// One bit at a time, straight from the definition.
std::uint32_t crc_by_bits(std::uint32_t crc, const Bytes& data) {
  for (const std::byte byte : data) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1U ? 0xEDB88320U : 0U);
  }
  return crc;
}

void test_crc_known_answer() {
  const std::string digits = "123456789";
  const auto* data = reinterpret_cast<const std::byte*>(digits.data());
  CHECK_EQUAL(~crc_update(kCrcInit, data, digits.size()), 0xCBF43926U);
  for (const CrcPath path : kCrcPaths)
    if (crc_path_available(path))
      CHECK_EQUAL(~crc_update_by(path, kCrcInit, data, digits.size()), 0xCBF43926U);
}

// Every length up to a few folds of the widest algorithm, at every alignment in turn, from any register.
void test_crc_paths_agree() {
  Random random(20);
  const Bytes pool = random_bytes(random, 2048);
  for (std::size_t size = 0; size <= 1200; ++size) {
    const std::size_t offset = size % 64;
    const Bytes data(pool.begin() + static_cast<std::ptrdiff_t>(offset),
                     pool.begin() + static_cast<std::ptrdiff_t>(offset + size));
    const auto start = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = crc_by_bits(start, data);
    CHECK_EQUAL_IN(crc_update(start, pool.data() + offset, size), expected, std::to_string(size));
    for (const CrcPath path : kCrcPaths) {
      if (!crc_path_available(path)) continue;
      CHECK_EQUAL_IN(crc_update_by(path, start, pool.data() + offset, size), expected,
                     crc_path_name(path) + std::to_string(size));
    }
  }
}

void test_crc_in_pieces() {
  Random random(21);
  for (int round = 0; round < 300; ++round) {
    const Bytes data = random_bytes(random, below(random, 5000));
    const std::uint32_t whole = crc_update(kCrcInit, data.data(), data.size());
    std::uint32_t crc = kCrcInit;
    for (std::size_t at = 0; at < data.size();) {
      const std::size_t piece = std::min(data.size() - at, 1 + below(random, 700));
      crc = crc_update(crc, data.data() + at, piece);
      at += piece;
    }
    CHECK_EQUAL_IN(crc, whole, std::to_string(round));
  }
}

std::array<std::byte, 4> random_ipv4(Random& random) {
  const Bytes bytes = random_bytes(random, 4);
  return {bytes[0], bytes[1], bytes[2], bytes[3]};
}

std::array<std::byte, 16> random_ipv6(Random& random) {
  std::array<std::byte, 16> address;
  const Bytes bytes = random_bytes(random, 16);
  std::copy(bytes.begin(), bytes.end(), address.begin());
  return address;
}

void put16(Bytes& out, std::size_t value) {
  out.push_back(static_cast<std::byte>(value >> 8 & 0xFF));
  out.push_back(static_cast<std::byte>(value & 0xFF));
}

void append(Bytes& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_udp(Bytes& out, Random& random, std::uint16_t src, std::uint16_t dst, std::size_t payload_bytes) {
  put16(out, src);
  put16(out, dst);
  put16(out, payload_bytes + 8);
  append(out, random_bytes(random, 2));  // checksum
}

Bytes ipv4_packet(Random& random, const Ipv4Flow& flow, std::uint16_t identification,
                  const Bytes& udp_payload) {
  Bytes packet{std::byte{0x45}};
  append(packet, random_bytes(random, 1));  // TOS
  put16(packet, 28 + udp_payload.size());
  put16(packet, identification);
  put16(packet, flow.dont_fragment ? 0x4000 : 0);
  append(packet, random_bytes(random, 1));  // TTL
  packet.push_back(std::byte{17});
  append(packet, random_bytes(random, 2));  // checksum
  append(packet, flow.src);
  append(packet, flow.dst);
  append_udp(packet, random, flow.src_port, flow.dst_port, udp_payload.size());
  append(packet, udp_payload);
  return packet;
}

Bytes ipv6_packet(Random& random, const Ipv6Flow& flow, const Bytes& udp_payload) {
  Bytes packet = random_bytes(random, 4);  // traffic class, flow label
  packet[0] = (packet[0] & std::byte{0x0F}) | std::byte{0x60};
  put16(packet, 8 + udp_payload.size());
  packet.push_back(std::byte{17});
  append(packet, random_bytes(random, 1));  // hop limit
  append(packet, flow.src);
  append(packet, flow.dst);
  append_udp(packet, random, flow.src_port, flow.dst_port, udp_payload.size());
  append(packet, udp_payload);
  return packet;
}

// The linear short cut of IcrcFlow against the plain computation over a masked packet.
void test_flow_icrc_is_that_of_the_packet() {
  Random random(22);
  for (int round = 0; round < 400; ++round) {
    const std::size_t body = round == 0 ? 65504 - 16 : 4 * below(random, 1100);
    Bytes udp = random_bytes(random, kBthBytes + body + kIcrcBytes);
    const std::span<const std::byte> covered(udp.data(), udp.size() - kIcrcBytes);
    const auto identification = static_cast<std::uint16_t>(random());
    const Ipv4Flow v4{random_ipv4(random), random_ipv4(random), static_cast<std::uint16_t>(random()),
                      static_cast<std::uint16_t>(random()), random() % 2 == 0};
    const Ipv6Flow v6{random_ipv6(random), random_ipv6(random), static_cast<std::uint16_t>(random()),
                      static_cast<std::uint16_t>(random())};
    for (const CrcPath path : kCrcPaths) {
      if (!crc_path_available(path)) continue;
      const auto expected4 = icrc_of_ip_packet(ipv4_packet(random, v4, identification, udp), path);
      CHECK_EQUAL_IN(icrc_ipv4(v4, identification, covered), expected4.value(), std::to_string(round));
      const auto expected6 = icrc_of_ip_packet(ipv6_packet(random, v6, udp), path);
      CHECK_EQUAL_IN(icrc_ipv6(v6, covered), expected6.value(), std::to_string(round));
    }
    const std::size_t split = kBthBytes + below(random, std::min<std::size_t>(body / 4, 7) + 1) * 4;
    CHECK_EQUAL_IN(IcrcFlow(v4).icrc(covered.first(split), covered.subspan(split), identification),
                   icrc_ipv4(v4, identification, covered), std::to_string(round));
  }
}

void test_icrc_adds_the_pad() {
  Random random(23);
  const IcrcFlow flow(Ipv4Flow{});
  for (std::size_t size = 0; size < 9; ++size) {
    Bytes whole = random_bytes(random, kBthBytes + size);
    const Bytes payload(whole.begin() + kBthBytes, whole.end());
    whole.resize(kBthBytes + (size + 3) / 4 * 4);
    CHECK_EQUAL(flow.icrc(std::span(whole).first(kBthBytes), payload), flow.icrc_of(whole));
  }
}

void test_icrc_refuses_other_packets() {
  Random random(24);
  const Bytes udp = random_bytes(random, 32);
  const Bytes good4 = ipv4_packet(random, Ipv4Flow{}, 0, udp), good6 = ipv6_packet(random, Ipv6Flow{}, udp);
  for (const Bytes& good : {good4, good6}) {
    CHECK(icrc_of_ip_packet(good, CrcPath::kTable).has_value());
    for (std::size_t size = 0; size < good.size(); ++size) {
      const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK_IN(!icrc_of_ip_packet(cut, CrcPath::kTable), std::to_string(size));
    }
  }
  Bytes options = good4, fragment = good4, tcp = good4, tiny = good4;
  options[0] = std::byte{0x46};
  fragment[6] = std::byte{0x20};
  tcp[9] = std::byte{6};
  tiny[3] = std::byte{43};  // room for BTH and 3 bytes
  for (const Bytes& bad : {options, fragment, tcp, tiny}) CHECK(!icrc_of_ip_packet(bad, CrcPath::kTable));
  for (int round = 0; round < 20000; ++round) {
    Bytes noise = random_bytes(random, below(random, 120));
    if (!noise.empty()) noise[0] = random() % 2 ? std::byte{0x45} : std::byte{0x60};
    (void)icrc_of_ip_packet(noise, CrcPath::kTable);
  }
}

PacketHeader decoded(const Bytes& bytes, DecodeError expected, const std::string& context) {
  PacketHeader header;
  std::span<const std::byte> payload;
  CHECK_EQUAL_IN(static_cast<int>(decode(bytes, header, payload)), static_cast<int>(expected), context);
  return header;
}

Bytes encoded(const PacketHeader& header) {
  std::array<std::byte, kMaxHeaderBytes> headers;
  const std::size_t size = encode_headers(header, headers);
  Bytes bytes(packet_bytes(header));
  std::copy_n(headers.begin(), size, bytes.begin());
  return bytes;
}

// Accepted input encodes to the same bytes, except pad and a CNP's reserved bytes. No byte is read out of
// bounds: each input is a heap block of its exact size.
void test_random_bytes() {
  Random random(25);
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    Bytes bytes = random_bytes(random, below(random, 80));
    if (bytes.size() > 1 && round % 4 != 0) {
      bytes[0] = static_cast<std::byte>(random() % 0x1A);
      bytes[1] &= std::byte{0xF0};
    }
    PacketHeader header;
    std::span<const std::byte> payload;
    if (decode(bytes, header, payload) != DecodeError::kNone) continue;
    ++accepted;
    CHECK_EQUAL(packet_bytes(header), bytes.size());
    CHECK_EQUAL(payload.size(), header.payload_bytes);
    if (header.opcode == Opcode::kCnp) continue;
    std::array<std::byte, kMaxHeaderBytes> headers;
    const std::size_t size = encode_headers(header, headers);
    CHECK(payload.data() == bytes.data() + size);
    CHECK_IN(std::equal(headers.begin(), headers.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin()),
             std::to_string(round));
  }
  CHECK(accepted > 10000);
}

constexpr std::array<std::size_t, 24> kSizes{12, 12, 12, 16, 12, 16, 28, 12, 12, 16, 28, 32,
                                             28, 16, 12, 16, 16, 16, 24, 40, 40, 0,  16, 16};

// Known opcodes and the lengths of their headers.
void test_opcodes() {
  for (unsigned value = 0; value < 256; ++value) {
    const auto opcode = static_cast<Opcode>(value);
    const std::string context = "opcode " + std::to_string(value);
    std::array<std::byte, kMaxHeaderBytes> out;
    const bool sprayed = value >= 0xC6 && value <= 0xCB;  // a RETH in each, beside the immediate of two
    const std::size_t size = value < 24                       ? kSizes[value]
                             : value == 0x81                  ? 28
                             : !sprayed                       ? 0
                             : value % 2 == 1 && value > 0xC8 ? 32
                                                              : 28;
    PacketHeader header{.opcode = opcode};
    CHECK_EQUAL_IN(encode_headers(header, out), size, context);
    if (size == 0) {
      Bytes bytes(64);
      bytes[0] = static_cast<std::byte>(value);
      decoded(bytes, DecodeError::kUnknownOpcode, context);
      continue;
    }
    CHECK_EQUAL_IN(encode_headers(header, std::span(out).first(size - 1)), 0U, context);
    Bytes cut = encoded({.opcode = opcode});
    cut.resize(size + kIcrcBytes - 1);
    decoded(cut, DecodeError::kShort, context);
  }
}

void test_malformed() {
  using enum DecodeError;
  decoded(Bytes(0), kShort, "nothing");
  decoded(Bytes(15), kShort, "less than BTH and ICRC");
  Bytes version = encoded({.opcode = Opcode::kSendOnly});
  version[1] = std::byte{1};
  decoded(version, kBadVersion, "version 1");
  Bytes pad = encoded({.opcode = Opcode::kSendOnly});
  pad[1] = std::byte{0x10};
  decoded(pad, kBadPad, "a pad byte and no payload");
  for (const Opcode opcode : {Opcode::kSendFirst, Opcode::kWriteMiddle, Opcode::kReadResponseFirst}) {
    decoded(encoded({.opcode = opcode, .payload_bytes = 255}), kBadPad, "pad in a first or middle packet");
    decoded(encoded({.opcode = opcode, .payload_bytes = 256}), kNone, "first or middle packet");
    decoded(encoded({.opcode = opcode}), kBadLength, "an empty first or middle packet");
  }
  decoded(encoded({.opcode = Opcode::kWriteLast}), kBadLength, "an empty last packet");
  decoded(encoded({.opcode = Opcode::kReadResponseLast}), kBadLength, "an empty last packet");
  for (const Opcode opcode : {Opcode::kAcknowledge, Opcode::kReadRequest, Opcode::kFetchAdd, Opcode::kCnp})
    decoded(encoded({.opcode = opcode, .payload_bytes = 4}), kBadLength, "a payload where there is none");
  Bytes odd = encoded({.opcode = Opcode::kSendOnly, .payload_bytes = 8});
  odd.push_back({});
  decoded(odd, kBadLength, "no multiple of 4");
}

// RDMA WRITE Only with Immediate: the fields where the standard has them.
void test_layout() {
  const PacketHeader header{
      .opcode = Opcode::kWriteOnlyImm,
      .solicited = true,
      .migreq = true,
      .fecn = false,
      .becn = true,
      .ack_request = true,
      .pkey = 0x1234,
      .dest_qpn = 0x56789A,
      .psn = 0xBCDEF0,
      .payload_bytes = 5,
      .reth = {.va = 0x0102030405060708, .rkey = 0x090A0B0C, .length_bytes = 0x0D0E0F10},
      .imm = 0x11121314};
  const unsigned expected[] = {0x0B, 0xF0, 0x12, 0x34, 0x40, 0x56, 0x78, 0x9A, 0x80, 0xBC, 0xDE,
                               0xF0, 1,    2,    3,    4,    5,    6,    7,    8,    9,    10,
                               11,   12,   13,   14,   15,   16,   17,   18,   19,   20};
  const Bytes bytes = encoded(header);
  CHECK_EQUAL(bytes.size(), 32U + 8U + 4U);
  for (std::size_t i = 0; i < 32; ++i)
    CHECK_EQUAL_IN(static_cast<unsigned>(bytes[i]), expected[i], std::to_string(i));
  CHECK(decoded(bytes, DecodeError::kNone, "write only imm") == header);
}

// Any identification is found. A damaged packet matches none of the 2^16 in all but one of 2^16 cases.
void test_identification_follows_from_the_icrc() {
  Random random(23);
  int taken = 0;
  for (int round = 0; round < 2000; ++round) {
    const Ipv4Flow v4{random_ipv4(random), random_ipv4(random), 49152, 4791, true};
    const Ipv6Flow v6{random_ipv6(random), random_ipv6(random), 49152, 4791};
    Bytes udp = random_bytes(random, kBthBytes + 4 * below(random, 300));
    const auto identification = static_cast<std::uint16_t>(random());
    const std::uint32_t icrc = IcrcFlow(v4).icrc_of(udp, identification);
    CHECK(IcrcFlow(v4).identification_of(udp, icrc) == identification);
    CHECK(IcrcFlow(v6).identification_of(udp, IcrcFlow(v6).icrc_of(udp)) == 0);
    CHECK(!IcrcFlow(v6).identification_of(udp, IcrcFlow(v6).icrc_of(udp) ^ 1));
    std::size_t place = below(random, udp.size());
    if (place == 4) ++place;  // not covered
    udp[place] ^= static_cast<std::byte>(1 + below(random, 255));
    taken += IcrcFlow(v4).identification_of(udp, icrc).has_value();
  }
  CHECK(taken <= 2);
}

}  // namespace

int main() {
  test_crc_known_answer();
  test_identification_follows_from_the_icrc();
  test_crc_paths_agree();
  test_crc_in_pieces();
  test_flow_icrc_is_that_of_the_packet();
  test_icrc_adds_the_pad();
  test_icrc_refuses_other_packets();
  test_random_bytes();
  test_opcodes();
  test_malformed();
  test_layout();
  return genie::test::check_result("test_wire");
}
