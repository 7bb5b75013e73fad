// Receive path of the soft NIC: from the socket to queue pairs.
#include <netinet/udp.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>

#include "live/nic_buffers.hpp"
#include "live/nic_sink.hpp"
#include "live/sockets/socket_options.hpp"

namespace genie::live {
namespace {

constexpr std::uint16_t kPkeyMember = 0x7FFF;  // of the default partition, full or limited (section 10.9.3)

// Ancillary data of a datagram: the length of its segments, and the ECN mark in its traffic class.
struct Ancillary {
  std::size_t segment_bytes = 0;
  bool congested = false;
};

Ancillary ancillary_of(msghdr& message, std::size_t size_bytes) {
  Ancillary out{.segment_bytes = size_bytes};
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    int value = 0;
    std::memcpy(&value, CMSG_DATA(item), std::min<std::size_t>(sizeof value, item->cmsg_len - CMSG_LEN(0)));
    if (item->cmsg_level == SOL_UDP && item->cmsg_type == UDP_GRO) {
      out.segment_bytes = static_cast<std::size_t>(value);
    } else if ((item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS) ||
               (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_TCLASS)) {
      out.congested = is_marked(value);
    }
  }
  return out;
}

}  // namespace

// Takes what the socket has, within reason: timers and departures must have their turn.
void SoftNic::receive() {
  for (int call = 0; call < kReceiveCalls; ++call) {
    if (!(headers_.open() ? receive_packets() : receive_datagrams())) return;
  }
}

// False when the socket is empty.
bool SoftNic::receive_datagrams() {
  mmsghdr messages[kReceiveMessages];
  iovec vectors[kReceiveMessages];
  sockaddr_storage from[kReceiveMessages];
  alignas(cmsghdr) char control[kReceiveMessages][CMSG_SPACE(sizeof(int)) * 2];
  for (std::size_t at = 0; at < kReceiveMessages; ++at) {
    vectors[at] = {receive_buffer_.data() + at * kReceiveBytes, kReceiveBytes};
    messages[at] = {};
    messages[at].msg_hdr.msg_name = &from[at];
    messages[at].msg_hdr.msg_namelen = sizeof from[at];
    messages[at].msg_hdr.msg_iov = &vectors[at];
    messages[at].msg_hdr.msg_iovlen = 1;
    messages[at].msg_hdr.msg_control = control[at];
    messages[at].msg_hdr.msg_controllen = sizeof control[at];
  }
  const int count = recvmmsg(receiver_.get(), messages, kReceiveMessages, MSG_DONTWAIT, nullptr);
  ++counters_.receive_calls;
  // Taken after the call: a packet may have come while it was under way.
  const TimePs now = count > 0 ? this->now() : 0;
  for (int at = 0; at < count; ++at) {
    const std::size_t size = messages[at].msg_len;
    const Ancillary ancillary = ancillary_of(messages[at].msg_hdr, size);
    const std::byte* data = receive_buffer_.data() + static_cast<std::size_t>(at) * kReceiveBytes;
    std::uint16_t index = 0;
    std::size_t offset = 0;
    do {  // an empty datagram is one too
      const std::size_t segment = std::min(ancillary.segment_bytes, size - offset);
      datagram({{data + offset, segment}, from[at], index++, false, false, ancillary.congested, now});
      offset += segment;
    } while (offset < size && ancillary.segment_bytes > 0);
  }
  return count == static_cast<int>(kReceiveMessages);
}

bool SoftNic::receive_packets() {
  HeaderSocket::Packet packet;
  for (std::size_t count = 0; count < kReceiveMessages; ++count) {
    ++counters_.receive_calls;
    if (!headers_.receive(receive_buffer_, packet)) return false;
    const TimePs now = this->now();
    std::uint16_t identification = packet.identification;
    std::span<const std::byte> left = packet.udp_payload;
    do {
      const std::size_t segment = std::min(packet.segment_bytes, left.size());
      datagram({left.first(segment), packet.from, identification++, true, packet.fragmentable,
                packet.congested, now});
      left = left.subspan(segment);
    } while (!left.empty());
  }
  return true;
}

void SoftNic::datagram(const Incoming& incoming) {
  const std::span<const std::byte> bytes = incoming.bytes;
  ++counters_.datagrams_received;
  counters_.bytes_received += bytes.size();
  roce::PacketHeader header;
  std::span<const std::byte> payload;
  if (roce::decode(bytes, header, payload) != roce::DecodeError::kNone)
    return turn_away(counters_.malformed, "malformed", incoming);
  Connection* const found = connection_of(header, incoming);
  if (found == nullptr) return;
  Connection& connection = *found;
  if (!icrc_right(connection, incoming)) return turn_away(counters_.bad_icrc, "bad_icrc", incoming);
  roce::Packet packet;
  packet.opcode = header.opcode;
  packet.ack_request = header.ack_request;
  packet.solicited = header.solicited;
  packet.congested = incoming.congested;
  packet.echo = header.becn;
  packet.syndrome = header.aeth.syndrome;
  packet.msn = header.aeth.msn;
  packet.psn = header.psn;
  packet.payload_bytes = header.payload_bytes;
  packet.immediate = header.imm;
  packet.rkey = header.reth.rkey;
  packet.message_bytes = header.reth.length_bytes;
  packet.remote_address = header.reth.va;
  assert(incoming_ == nullptr && payload.size() == packet.payload_bytes);
  payload_ = payload;
  incoming_ = &incoming;
  Sink sink{*this, connection, incoming.time};
  roce::QueuePair& pair = connection.queue_pair;
  const std::uint32_t expected_psn = pair.expected_psn(), unacked_psn = pair.unacked_psn();
  pair.receive(packet, incoming.time, sink);
  incoming_ = nullptr;
  // Duplicates and late answers are easily forged, and a peer that sends nothing else gets nowhere either.
  if (pair.expected_psn() != expected_psn || pair.unacked_psn() != unacked_psn)
    last_progress_ = incoming.time;
}

// The connection of a packet by queue pair, address, UDP port and partition; null when it is turned away.
SoftNic::Connection* SoftNic::connection_of(const roce::PacketHeader& header, const Incoming& incoming) {
  if (!numbers_.of_this_rank(header.dest_qpn)) {
    turn_away(counters_.wrong_rank, "wrong_rank", incoming);
    return nullptr;
  }
  const std::uint32_t id = numbers_.index(header.dest_qpn);
  if (id >= connections_.size() || !connections_[id].connected ||
      !(connections_[id].remote.address == IpAddress::of(incoming.from))) {
    turn_away(counters_.strangers, "strangers", incoming);
    return nullptr;
  }
  Connection& connection = connections_[id];
  const std::vector<std::uint16_t>& ports = connection.remote.peer_ports;
  if (!ports.empty() && std::find(ports.begin(), ports.end(), port_of(incoming.from)) == ports.end()) {
    turn_away(counters_.wrong_port, "wrong_port", incoming);
    return nullptr;
  }
  if ((header.pkey & kPkeyMember) != kPkeyMember) {
    turn_away(counters_.bad_pkey, "bad_pkey", incoming);
    return nullptr;
  }
  return &connection;
}

void SoftNic::turn_away(std::uint64_t& counter, const char* name, const Incoming& incoming) {
  ++counter;
  refused_senders_.add(name, IpAddress::of(incoming.from), port_of(incoming.from));
}

std::string SoftNic::sender_of_packet() const {
  if (incoming_ == nullptr) return "";
  return IpAddress::of(incoming_->from).text() + " port " + std::to_string(port_of(incoming_->from));
}

// A packet that its connection has not taken: all about it is right for its peer but what it asks for.
void SoftNic::refused_packet(std::uint32_t queue_pair, const roce::Packet& packet, roce::Refusal refusal) {
  if (incoming_ == nullptr) return;
  const std::string sender = refusal == roce::Refusal::kForGood ? sender_of_packet() : "";
  refused_senders_.add(roce::counter_of(refusal), IpAddress::of(incoming_->from), port_of(incoming_->from));
  if (refusal != roce::Refusal::kForGood || ended_) return;
  char detail[160];
  std::snprintf(detail, sizeof detail, " %s with PSN %u to queue pair 0x%06x, of %u bytes",
                roce::describe(packet.opcode), packet.psn, qpn(queue_pair), packet.payload_bytes);
  ended_ = Ended{queue_pair, "it refused from " + sender + detail};
  if (!roce::has_reth(packet.opcode)) return;
  std::snprintf(detail, sizeof detail, " with key 0x%08x for %u bytes at address %llu", packet.rkey,
                packet.message_bytes, static_cast<unsigned long long>(packet.remote_address));
  ended_->text += detail;
}

// The hashed five-tuple of a packet, with which its ICRC begins.
const roce::IcrcFlow& SoftNic::flow_from(Connection& connection, const Incoming& incoming) {
  assert(!connection.outs.empty());
  const std::uint16_t port = port_of(incoming.from);
  const auto known = std::find_if(connection.ins.begin(), connection.ins.end(), [&](const In& in) {
    return in.port == port && in.fragmentable == incoming.fragmentable;
  });
  if (known != connection.ins.end()) return known->flow;
  if (connection.ins.size() < connection.outs.size()) connection.ins.emplace_back();
  In& in = connection.ins[connection.next_in++ % connection.ins.size()];
  in = {port, incoming.fragmentable,
        icrc_flow(connection.remote.address, port, config_.address, config_.port, !incoming.fragmentable)};
  return in.flow;
}

// A plain socket does not show the IPv4 identification. Ours is 0, or the segment's number in an offloaded
// send. Of another stack, the NIC takes any identification that makes the ICRC right. This checks 16 of the
// ICRC's 32 bits.
bool SoftNic::icrc_right(Connection& connection, const Incoming& incoming) {
  const roce::IcrcFlow& flow = flow_from(connection, incoming);
  const std::span<const std::byte> covered = incoming.bytes.first(incoming.bytes.size() - roce::kIcrcBytes);
  const std::uint32_t carried = roce::load_icrc(incoming.bytes.data() + covered.size());
  if (flow.icrc_of(covered, incoming.identification) == carried) return true;
  if (incoming.identified) return false;
  const std::optional<std::uint16_t> identification = flow.identification_of(covered, carried);
  if (!identification) return false;
  if (!connection.remote.foreign) return *identification < kSegmentsMax;
  ++counters_.identifications_unseen;
  return true;
}

}  // namespace genie::live
