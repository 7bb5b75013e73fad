// UDP sockets of the live world: one that receives on the RoCE port, one per path that sends.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace genie::live {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();
  int get() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

sockaddr_in address_of(std::uint32_t ipv4, std::uint16_t port);  // both host integers
std::array<std::byte, 4> network_order(std::uint32_t ipv4);
std::string text_of(std::uint32_t ipv4);

// A socket bound to ipv4:port for receiving, with generic receive offload. `shared`: several ranks of this
// host join one port, each with its own socket; a filter picks the socket by the local rank in the
// destination queue pair number, and ranks must call this in the order of their local ranks. On failure
// `error` says what and where.
Socket open_receiver(std::uint32_t ipv4, std::uint16_t port, bool shared, bool offload, std::string& error);

// A socket bound to ipv4:port for sending, or to the next free port in 0xC000..0xFFFF; `port` becomes the one
// that was bound. Its packets have "don't fragment" set and IP identification 0.
Socket open_sender(std::uint32_t ipv4, std::uint16_t& port, std::string& error);

}  // namespace genie::live
