#include "live/sockets/udp_socket.hpp"

#include <linux/filter.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "live/sockets/socket_options.hpp"

namespace genie::live {
namespace {

constexpr int kReceiveBufferBytes = 16 << 20;
constexpr int kSendBufferBytes = 4 << 20;
constexpr std::uint16_t kFirstSourcePort = 0xC000;

std::string failure(const char* what, const IpAddress& address, std::uint16_t port) {
  const int why = errno;
  std::string text(what);
  text.append(address.v6 ? " [" : " ").append(address.text()).append(address.v6 ? "]:" : ":");
  return text.append(std::to_string(port)).append(": ").append(std::strerror(why));
}

bool bind_to(const Socket& socket, const IpAddress& address, std::uint16_t port) {
  sockaddr_storage where;
  const socklen_t size = address.fill(where, port);
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&where), size) == 0;
}

// Picks the socket of a reuseport group by the high byte of BTH's destination queue pair (byte 5).
bool attach_rank_filter(int descriptor) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 5),
      BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 1),
      BPF_STMT(BPF_RET | BPF_A, 0),
  };
  const sock_fprog program{.len = sizeof code / sizeof code[0], .filter = code};
  return setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0;
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<Socket> open_receivers(const IpAddress& address, std::uint16_t port, std::uint32_t ranks,
                                   std::string& error) {
  const auto open_one = [&](bool shared) {
    Socket receiver(socket(address.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // Other stacks send UDP's checksum as 0 over IPv6, as annex A17 has it: the ICRC guards the packet.
    if (!receiver.open() || (address.v6 && !set_option(receiver.get(), IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)) ||
        (shared && !set_option(receiver.get(), SOL_SOCKET, SO_REUSEPORT, 1)) ||
        !bind_to(receiver, address, port) ||
        // Not before bind: a socket that has a filter cannot join a group.
        (shared && !attach_rank_filter(receiver.get()))) {
      error = failure("cannot receive on", address, port);
      return Socket();
    }
    return receiver;
  };
  std::vector<Socket> receivers;
  receivers.push_back(open_one(false));
  if (receivers.front().open() && ranks > 1) {
    receivers.clear();  // the port is free: no other run's group is joined
    for (std::uint32_t rank = 0; rank < ranks && error.empty(); ++rank) receivers.push_back(open_one(true));
  }
  if (!error.empty()) receivers.clear();
  return receivers;
}

void prepare_receiver(const Socket& receiver, bool v6, bool offload) {
  set_buffer(receiver.get(), SO_RCVBUFFORCE, SO_RCVBUF, kReceiveBufferBytes);
  set_option(receiver.get(), SOL_UDP, UDP_GRO, offload ? 1 : 0);
  v6 ? set_option(receiver.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
     : set_option(receiver.get(), IPPROTO_IP, IP_RECVTOS, 1);
}

Socket open_sender(const IpAddress& address, std::uint16_t& port, bool exact, std::uint8_t traffic_class,
                   std::string& error) {
  Socket sender(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // "Don't fragment", and ICMP ignored: the path MTU is known by now. A forged message of a smaller MTU would
  // end the connection, and its forger needs no number of the connection.
  const bool ready =
      sender.open() &&
      (address.v6 ? set_option(sender.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) &&
                        set_option(sender.get(), IPPROTO_IPV6, IPV6_TCLASS, traffic_class)
                  : set_option(sender.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) &&
                        set_option(sender.get(), IPPROTO_IP, IP_TOS, traffic_class)) &&
      (!exact || set_option(sender.get(), SOL_SOCKET, SO_REUSEADDR, 1));
  for (int tries = 0; ready && tries < (exact ? 1 : 0x4000); ++tries) {
    if (bind_to(sender, address, port)) {
      set_buffer(sender.get(), SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
      return sender;
    }
    if (errno != EADDRINUSE) break;
    if (!exact) port = port == 0xFFFF ? kFirstSourcePort : static_cast<std::uint16_t>(port + 1);
  }
  error = failure("cannot send from", address, port);
  return Socket();
}

}  // namespace genie::live
