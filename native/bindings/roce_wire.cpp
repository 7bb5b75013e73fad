// Packet headers, CRC-32 and ICRC in Python: for tests, tools and measurements, not for the data path.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "bindings/bindings.hpp"
#include "roce/icrc.hpp"
#include "roce/wire.hpp"

namespace genie::bindings {
namespace {

using roce::CrcPath;
using roce::IcrcFlow;
using roce::PacketHeader;

std::span<const std::byte> view(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Every field of a header by the name that Python gives it, with the largest value it holds on the wire.
template <class Visit>
void each_field(PacketHeader& h, Visit visit) {
  constexpr std::uint64_t k32 = std::numeric_limits<std::uint32_t>::max();
  constexpr std::uint64_t k64 = std::numeric_limits<std::uint64_t>::max();
  visit("opcode", h.opcode, 0xFF);
  visit("solicited", h.solicited, 1);
  visit("migreq", h.migreq, 1);
  visit("transport_version", h.transport_version, 0xF);
  visit("fecn", h.fecn, 1);
  visit("becn", h.becn, 1);
  visit("ack_request", h.ack_request, 1);
  visit("reserved6", h.reserved6, 0x3F);
  visit("reserved7", h.reserved7, 0x7F);
  visit("pkey", h.pkey, 0xFFFF);
  visit("dest_qpn", h.dest_qpn, roce::kMask24);
  visit("psn", h.psn, roce::kMask24);
  visit("reth_va", h.reth.va, k64);
  visit("reth_rkey", h.reth.rkey, k32);
  visit("reth_length_bytes", h.reth.length_bytes, k32);
  visit("aeth_syndrome", h.aeth.syndrome, 0xFF);
  visit("aeth_msn", h.aeth.msn, roce::kMask24);
  visit("imm", h.imm, k32);
  visit("invalidate_rkey", h.invalidate_rkey, k32);
  visit("atomic_swap_or_add", h.atomic.swap_or_add, k64);
  visit("atomic_compare", h.atomic.compare, k64);
  visit("atomic_original", h.atomic.original, k64);
}

[[noreturn]] void refuse(const std::string& why) { throw nb::value_error(why.c_str()); }

std::uint64_t checked(nb::handle value, const std::string& name, std::uint64_t limit) {
  std::uint64_t number = 0;
  if (!nb::try_cast(value, number) || number > limit)
    refuse(name + " must be an integer from 0 to " + std::to_string(limit));
  return number;
}

PacketHeader header_from(const nb::dict& fields) {
  PacketHeader header;
  std::size_t used = 0;
  each_field(header, [&](const char* name, auto& field, std::uint64_t limit) {
    if (!fields.contains(name)) return;
    ++used;
    field = static_cast<std::decay_t<decltype(field)>>(checked(fields[name], name, limit));
  });
  used += fields.contains("payload") + fields.contains("icrc");
  if (used != fields.size()) refuse("a field that no RoCE header has; roce_decode() shows their names");
  return header;
}

nb::bytes encode(const nb::kwargs& kwargs) {
  const nb::dict& fields = kwargs;
  PacketHeader header = header_from(fields);
  nb::bytes payload("", 0);
  if (fields.contains("payload") && !nb::try_cast(fields["payload"], payload))
    refuse("payload must be bytes");
  if (payload.size() > std::numeric_limits<std::uint16_t>::max())
    refuse("payload is longer than a UDP datagram");
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> packet(roce::packet_bytes(header) + roce::kMaxHeaderBytes);
  const std::size_t header_bytes = roce::encode_headers(header, packet);
  if (header_bytes == 0)
    refuse("opcode is neither of the reliable connection nor a CNP nor of a sprayed WRITE");
  packet.resize(roce::packet_bytes(header));
  if (payload.size() != 0) std::memcpy(packet.data() + header_bytes, payload.data(), payload.size());
  const std::uint64_t icrc = fields.contains("icrc") ? checked(fields["icrc"], "icrc", 0xFFFF'FFFF) : 0;
  roce::store_icrc(static_cast<std::uint32_t>(icrc), packet.data() + packet.size() - roce::kIcrcBytes);
  return nb::bytes(packet.data(), packet.size());
}

nb::dict decode(const nb::bytes& udp_payload) {
  PacketHeader header;
  std::span<const std::byte> payload;
  const std::span<const std::byte> packet = view(udp_payload);
  const roce::DecodeError error = roce::decode(packet, header, payload);
  if (error != roce::DecodeError::kNone) refuse(roce::describe(error));
  nb::dict fields;
  each_field(header, [&](const char* name, auto& field, std::uint64_t) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      fields[name] = field;
    } else {
      fields[name] = static_cast<std::uint64_t>(field);
    }
  });
  fields["payload"] = nb::bytes(payload.data(), payload.size());
  fields["icrc"] = roce::load_icrc(packet.data() + packet.size() - roce::kIcrcBytes);
  return fields;
}

CrcPath path_named(const std::optional<std::string>& name) {
  if (!name) return roce::crc_path_chosen();
  for (const CrcPath path : roce::kCrcPaths)
    if (*name == roce::crc_path_name(path) && roce::crc_path_available(path)) return path;
  refuse("no CRC path '" + *name + "' on this machine; crc_paths() names those there are");
}

std::vector<std::string> crc_paths() {
  std::vector<std::string> names;
  for (const CrcPath path : roce::kCrcPaths)
    if (roce::crc_path_available(path)) names.emplace_back(roce::crc_path_name(path));
  return names;
}

std::uint32_t crc32(const nb::bytes& data, const std::optional<std::string>& path) {
  const auto bytes = view(data);
  return ~roce::crc_update_by(path_named(path), roce::kCrcInit, bytes.data(), bytes.size());
}

std::uint32_t icrc_of_ip_packet(const nb::bytes& packet, const std::optional<std::string>& path) {
  const auto icrc = roce::icrc_of_ip_packet(view(packet), path_named(path));
  if (!icrc) refuse("not a whole IPv4 or IPv6 packet with UDP, BTH and ICRC and no options");
  return *icrc;
}

template <std::size_t kSize>
std::array<std::byte, kSize> address(const nb::bytes& bytes) {
  std::array<std::byte, kSize> out;
  std::memcpy(out.data(), bytes.data(), kSize);
  return out;
}

std::uint32_t icrc_of_flow(const nb::bytes& src, const nb::bytes& dst, std::uint16_t src_port,
                           std::uint16_t dst_port, std::uint16_t identification, bool dont_fragment,
                           const nb::bytes& udp_payload) {
  const auto covered = view(udp_payload);
  if (covered.size() < roce::kBthBytes || covered.size() > 65503)
    refuse("udp_payload needs 12 to 65503 bytes");
  if (src.size() == 4 && dst.size() == 4)
    return roce::icrc_ipv4({address<4>(src), address<4>(dst), src_port, dst_port, dont_fragment},
                           identification, covered);
  if (src.size() == 16 && dst.size() == 16)
    return roce::icrc_ipv6({address<16>(src), address<16>(dst), src_port, dst_port}, covered);
  refuse("src and dst must both have 4 bytes or both 16");
}

// Seconds that `work(i)` takes for i in [0, repetitions); its results are used, so that none is left out.
template <class Work>
double seconds_of(std::uint64_t repetitions, Work work) {
  volatile std::uint32_t sink = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::uint32_t result = 0;
  for (std::uint64_t i = 0; i < repetitions; ++i) result ^= work(i, result);
  sink = result;
  (void)sink;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double measure_crc(std::size_t size_bytes, std::uint64_t repetitions,
                   const std::optional<std::string>& path) {
  const CrcPath chosen = path_named(path);
  std::vector<std::byte> data(size_bytes, std::byte{0x5A});
  return seconds_of(repetitions, [&](std::uint64_t, std::uint32_t previous) {
    return roce::crc_update_by(chosen, previous, data.data(), data.size());
  });
}

double measure_icrc(std::size_t payload_bytes, std::uint64_t repetitions) {
  const IcrcFlow flow(roce::Ipv4Flow{});
  std::vector<std::byte> payload(payload_bytes, std::byte{0x5A});
  std::array<std::byte, roce::kMaxHeaderBytes> out;
  return seconds_of(repetitions, [&](std::uint64_t i, std::uint32_t) {
    const PacketHeader header{.opcode = roce::Opcode::kWriteMiddle,
                              .psn = static_cast<std::uint32_t>(i),
                              .payload_bytes = static_cast<std::uint32_t>(payload_bytes)};
    const std::size_t size = roce::encode_headers(header, out);
    return flow.icrc(std::span(out).first(size), payload);
  });
}

}  // namespace

void register_roce_wire(nb::module_& m) {
  using namespace nb::literals;
  m.def("roce_decode", &decode, nb::sig("def roce_decode(udp_payload: bytes) -> dict[str, typing.Any]"),
        "udp_payload"_a,
        "Header fields, payload and ICRC of a UDP payload. ValueError says why it is malformed; the ICRC is "
        "not "
        "checked.");
  m.def(
      "roce_encode", &encode, nb::sig("def roce_encode(**fields: int | bytes) -> bytes"),
      "UDP payload from the fields that roce_decode() gives; those left out are zero, or their usual value.");
  m.def("crc_paths", &crc_paths,
        "Ways to compute CRC-32 on this machine, slowest first; the last one is used.");
  m.def("crc32", &crc32, "data"_a, "path"_a = nb::none(),
        "CRC-32 as zlib's, by the fastest or a named path.");
  m.def("icrc_of_ip_packet", &icrc_of_ip_packet, "packet"_a, "path"_a = nb::none(),
        "ICRC that an IP packet (ICRC included, its value ignored) should carry.");
  m.def("icrc_of_flow", &icrc_of_flow, "src"_a, "dst"_a, "src_port"_a, "dst_port"_a, "identification"_a,
        "dont_fragment"_a, "udp_payload"_a,
        "ICRC by the precomputed state of a flow; `udp_payload` is without its ICRC, addresses are 4 or 16 "
        "bytes.");
  m.def("measure_crc", &measure_crc, "size_bytes"_a, "repetitions"_a, "path"_a = nb::none(),
        "Seconds for the CRC of so many buffers.");
  m.def("measure_icrc", &measure_icrc, "payload_bytes"_a, "repetitions"_a,
        "Seconds to encode the headers of so many packets and compute their ICRC.");
}

}  // namespace genie::bindings
