#include "live/udp_socket.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace genie::live {
namespace {

constexpr int kReceiveBufferBytes = 16 << 20;
constexpr int kSendBufferBytes = 4 << 20;
constexpr std::uint16_t kFirstSourcePort = 0xC000;

bool set(int descriptor, int level, int name, int value) {
  return setsockopt(descriptor, level, name, &value, sizeof value) == 0;
}

// As large as allowed: above the system's limit only with CAP_NET_ADMIN.
void set_buffer(int descriptor, int force, int plain, int size_bytes) {
  if (!set(descriptor, SOL_SOCKET, force, size_bytes)) set(descriptor, SOL_SOCKET, plain, size_bytes);
}

std::string failure(const char* what, std::uint32_t ipv4, std::uint16_t port) {
  return std::string(what) + " " + text_of(ipv4) + ":" + std::to_string(port) + ": " + std::strerror(errno);
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

sockaddr_in address_of(std::uint32_t ipv4, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(ipv4);
  return address;
}

std::array<std::byte, 4> network_order(std::uint32_t ipv4) {
  std::array<std::byte, 4> bytes{};
  const std::uint32_t value = htonl(ipv4);
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

std::string text_of(std::uint32_t ipv4) {
  char text[INET_ADDRSTRLEN] = "";
  const in_addr address{htonl(ipv4)};
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

Socket open_receiver(std::uint32_t ipv4, std::uint16_t port, bool shared, bool offload, std::string& error) {
  Socket receiver(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(ipv4, port);
  if (!receiver.open() || (shared && !set(receiver.get(), SOL_SOCKET, SO_REUSEPORT, 1)) ||
      bind(receiver.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      // Not before bind: a socket that has a filter cannot join a group.
      (shared && !attach_rank_filter(receiver.get()))) {
    error = failure("cannot receive on", ipv4, port);
    return Socket();
  }
  set_buffer(receiver.get(), SO_RCVBUFFORCE, SO_RCVBUF, kReceiveBufferBytes);
  if (offload) set(receiver.get(), SOL_UDP, UDP_GRO, 1);
  return receiver;
}

Socket open_sender(std::uint32_t ipv4, std::uint16_t& port, std::string& error) {
  Socket sender(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!sender.open() || !set(sender.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)) {
    error = failure("cannot send from", ipv4, port);
    return Socket();
  }
  for (int tries = 0; tries < 0x4000; ++tries) {
    const sockaddr_in address = address_of(ipv4, port);
    if (bind(sender.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      set_buffer(sender.get(), SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
      return sender;
    }
    if (errno != EADDRINUSE) break;
    port = port == 0xFFFF ? kFirstSourcePort : static_cast<std::uint16_t>(port + 1);
  }
  error = failure("cannot send from", ipv4, port);
  return Socket();
}

}  // namespace genie::live
