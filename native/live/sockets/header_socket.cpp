#include "live/sockets/header_socket.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "live/sockets/socket_options.hpp"

namespace genie::live {
namespace {

constexpr int kBufferBytes = 64 << 20;
constexpr std::size_t kIpBytes = 20, kUdpBytes = 8;
constexpr std::uint32_t kNetwork = static_cast<std::uint32_t>(SKF_NET_OFF);  // offsets from IP's header
constexpr std::uint32_t kRankByte = kNetwork + kIpBytes + kUdpBytes + 5;  // of BTH's destination queue pair

// The kernel's description of a frame's offloads (linux/virtio_net.h, which is not valid C++).
struct OffloadHeader {
  std::uint8_t flags = 0, gso_type = 0;
  std::uint16_t header_bytes = 0, gso_size = 0, checksum_start = 0, checksum_offset = 0;
};
constexpr std::uint8_t kSegmentedUdp = 5, kSegmentedWithEcn = 0x80;

std::uint16_t get16(const std::byte* at) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(at[0]) << 8 | static_cast<unsigned>(at[1]));
}

std::string failure(const char* what) { return std::string(what).append(": ").append(std::strerror(errno)); }

bool attach(int descriptor, std::span<sock_filter> code) {
  const sock_fprog program{.len = static_cast<unsigned short>(code.size()), .filter = code.data()};
  return setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

// UDP in an IPv4 header without options, unfragmented, to this address, port and rank.
bool attach_filter(int descriptor, const IpAddress& address, std::uint16_t port, std::int32_t local_rank) {
  std::uint32_t ipv4 = 0;
  std::memcpy(&ipv4, address.bytes.data(), sizeof ipv4);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kNetwork),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x45, 0, 11),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kNetwork + 9),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 9),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kNetwork + 6),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3FFF, 7, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNetwork + 16),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(ipv4), 0, 5),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kNetwork + kIpBytes + 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 3),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kRankByte),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(local_rank + 1), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFFFFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  return attach(descriptor, code);
}

// Where IP's header begins, as the kernel says it beside the frame.
std::size_t network_offset(msghdr& message) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_PACKET || item->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata data{};
    std::memcpy(&data, CMSG_DATA(item), sizeof data);
    return data.tp_net;
  }
  return 0;
}

}  // namespace

bool silence(const Socket& socket) {
  sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  return attach(socket.get(), code);
}

std::string HeaderSocket::open(const IpAddress& address, std::uint16_t port, std::int32_t local_rank) {
  // Bound to its protocol only when the filter is there.
  Socket opened(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!opened.open()) return failure("cannot see packet headers (CAP_NET_RAW)");
  sockaddr_ll where{};
  where.sll_family = AF_PACKET;
  where.sll_protocol = htons(ETH_P_IP);
  if (!attach_filter(opened.get(), address, port, local_rank) ||
      !set_option(opened.get(), SOL_PACKET, PACKET_VNET_HDR, 1) ||
      !set_option(opened.get(), SOL_PACKET, PACKET_AUXDATA, 1) ||
      !set_option(opened.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) ||
      bind(opened.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
    return failure("cannot see packet headers");
  set_buffer(opened.get(), SO_RCVBUFFORCE, SO_RCVBUF, kBufferBytes);
  socket_ = std::move(opened);
  return "";
}

bool HeaderSocket::receive(std::span<std::byte> buffer, Packet& packet) const {
  while (true) {
    OffloadHeader offload;
    iovec vectors[] = {{&offload, sizeof offload}, {buffer.data(), buffer.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(tpacket_auxdata))];
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got < 0) return false;
    const std::size_t size =
        static_cast<std::size_t>(got) - std::min(static_cast<std::size_t>(got), sizeof offload);
    const std::size_t ip = network_offset(message);
    if (size < ip + kIpBytes + kUdpBytes) continue;
    const std::byte* header = buffer.data() + ip;
    const std::size_t udp_bytes = get16(header + kIpBytes + 4);
    // A segmented send's UDP header may say the length of the whole, and IP's of it all: the frame decides.
    const std::size_t there = size - ip - kIpBytes;
    const bool segmented = (offload.gso_type & ~kSegmentedWithEcn) == kSegmentedUdp;
    const std::size_t taken = segmented ? there : std::min(there, udp_bytes);
    if (taken < kUdpBytes) continue;
    packet.udp_payload = std::span<const std::byte>(header + kIpBytes + kUdpBytes, taken - kUdpBytes);
    packet.segment_bytes = segmented && offload.gso_size > 0 ? offload.gso_size : packet.udp_payload.size();
    packet.identification = get16(header + 4);
    packet.congested = is_marked(static_cast<int>(header[1]));
    packet.fragmentable = (static_cast<unsigned>(header[6]) & 0x40) == 0;
    packet.from = {};
    auto& from = reinterpret_cast<sockaddr_in&>(packet.from);
    from.sin_family = AF_INET;
    from.sin_port = htons(get16(header + kIpBytes));
    std::memcpy(&from.sin_addr.s_addr, header + 12, 4);
    return true;
  }
}

}  // namespace genie::live
