// The engine's way in: from the socket to queue pairs.
#include <arpa/inet.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

#include "live/engine.hpp"
#include "live/engine_sink.hpp"

namespace genie::live {
namespace {

constexpr std::uint16_t kIdentificationsTried = 64;

}  // namespace

// Takes what the socket has, within reason: timers and departures must have their turn.
void Engine::receive() {
  for (int call = 0; call < kReceiveCalls; ++call) {
    mmsghdr messages[kReceiveMessages];
    iovec vectors[kReceiveMessages];
    sockaddr_in from[kReceiveMessages];
    alignas(cmsghdr) char control[kReceiveMessages][CMSG_SPACE(sizeof(int))];
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
    if (count <= 0) return;
    // Taken after the call: a packet may have come while it was under way.
    const TimePs now = this->now();
    for (int at = 0; at < count; ++at) {
      std::size_t size = messages[at].msg_len, segment = size;
      for (cmsghdr* item = CMSG_FIRSTHDR(&messages[at].msg_hdr); item != nullptr;
           item = CMSG_NXTHDR(&messages[at].msg_hdr, item)) {
        if (item->cmsg_level == SOL_UDP && item->cmsg_type == UDP_GRO) {
          int value = 0;
          std::memcpy(&value, CMSG_DATA(item), sizeof value);
          segment = static_cast<std::size_t>(value);
        }
      }
      const std::byte* data = receive_buffer_.data() + static_cast<std::size_t>(at) * kReceiveBytes;
      std::uint16_t index = 0;
      for (std::size_t offset = 0; offset < size && segment > 0; offset += segment, ++index)
        datagram({data + offset, std::min(segment, size - offset)}, from[at], index, now);
    }
    if (count < static_cast<int>(kReceiveMessages)) return;
  }
}

void Engine::datagram(std::span<const std::byte> bytes, const sockaddr_in& from, std::uint16_t index,
                      TimePs now) {
  ++counters_.datagrams_received;
  counters_.bytes_received += bytes.size();
  roce::PacketHeader header;
  std::span<const std::byte> payload;
  if (roce::decode(bytes, header, payload) != roce::DecodeError::kNone) {
    ++counters_.malformed;
    return;
  }
  const std::uint32_t peer = header.dest_qpn & 0xFFFF;
  if (header.dest_qpn >> 16 != static_cast<std::uint32_t>(config_.local_rank + 1)) {
    ++counters_.wrong_rank;
    return;
  }
  if (peer >= connections_.size() || peer == static_cast<std::uint32_t>(config_.rank) ||
      connections_[peer].target.sin_addr.s_addr != from.sin_addr.s_addr) {
    ++counters_.strangers;
    return;
  }
  Connection& connection = connections_[peer];
  if (!icrc_right(connection, bytes, ntohs(from.sin_port), index)) {
    ++counters_.bad_icrc;
    return;
  }
  last_progress_ = now;  // what strangers send is none
  roce::Packet packet;
  packet.opcode = header.opcode;
  packet.ack_request = header.ack_request;
  packet.syndrome = header.aeth.syndrome;
  packet.msn = header.aeth.msn;
  packet.psn = header.psn;
  packet.payload_bytes = header.payload_bytes;
  packet.immediate = header.imm;
  packet.rkey = header.reth.rkey;
  packet.message_bytes = header.reth.length_bytes;
  packet.remote_address = header.reth.va;
  payload_ = payload;
  Sink sink{*this, connection, now};
  connection.queue_pair.receive(packet, now, sink);
}

// A plain socket does not show the IP identification. Ours is 0, or the segment's number in an offloaded
// send.
bool Engine::icrc_right(Connection& connection, std::span<const std::byte> bytes, std::uint16_t from_port,
                        std::uint16_t index) const {
  if (connection.in_flow_port != from_port) {
    std::array<std::byte, 4> peer{};
    std::memcpy(peer.data(), &connection.target.sin_addr.s_addr, 4);
    connection.in_flow = roce::IcrcFlow(roce::Ipv4Flow{
        .src = peer, .dst = network_order(config_.ipv4), .src_port = from_port, .dst_port = config_.port});
    connection.in_flow_port = from_port;
  }
  const std::span<const std::byte> covered = bytes.first(bytes.size() - roce::kIcrcBytes);
  const std::uint32_t carried = roce::load_icrc(bytes.data() + covered.size());
  if (connection.in_flow.icrc_of(covered, index) == carried) return true;
  for (std::uint16_t identification = 0; identification < kIdentificationsTried; ++identification) {
    if (identification != index && connection.in_flow.icrc_of(covered, identification) == carried)
      return true;
  }
  return false;
}

}  // namespace genie::live
