// UDP sockets of the live world: one that receives on the RoCE port, one per source port that sends.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "live/sockets/ip_address.hpp"

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
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

// Sockets bound to address:port for receiving, one for each of `ranks` ranks that share it. A filter picks
// the socket by the local rank in the destination queue pair number. The group is indexed by the order of
// joining, and the kernel moves its last member into the place of one that closes. A process that uses one
// socket must therefore hold them all. On failure `error` says what and where.
std::vector<Socket> open_receivers(const IpAddress& address, std::uint16_t port, std::uint32_t ranks,
                                   std::string& error);

// Makes a bound socket fit for receiving: large buffer, receive offload, the ECN bits of what comes.
void prepare_receiver(const Socket& receiver, bool v6, bool offload);

// A socket for sending, bound to address:port or to the next free port in 0xC000..0xFFFF. With `exact` it is
// bound to that port alone, which others of this host may have too. `port` becomes the one that was bound.
// The socket's packets have "don't fragment" set, IP identification 0 (IPv4) and this traffic class.
Socket open_sender(const IpAddress& address, std::uint16_t& port, bool exact, std::uint8_t traffic_class,
                   std::string& error);

}  // namespace genie::live
