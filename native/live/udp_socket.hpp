// UDP sockets of the live world: one that receives on the RoCE port, one per source port that sends.
#pragma once
#include <cstdint>
#include <string>

#include "live/ip_address.hpp"

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

// A socket bound to address:port for receiving. `shared`: several ranks of this host join one port, each with
// its own socket; a filter picks the socket by the local rank in the destination queue pair number, and ranks
// must call this in the order of their local ranks. On failure `error` says what and where.
Socket open_receiver(const IpAddress& address, std::uint16_t port, bool shared, std::string& error);

// Makes a bound socket fit for receiving: large buffer, receive offload, the ECN bits of what comes.
void prepare_receiver(const Socket& receiver, bool v6, bool offload);

// A socket bound to address:port for sending, or to the next free port in 0xC000..0xFFFF unless `exact`, when
// others of this host may have it too; `port` becomes the one that was bound. Its packets have "don't
// fragment" set, IP identification 0 (IPv4) and this traffic class.
Socket open_sender(const IpAddress& address, std::uint16_t& port, bool exact, std::uint8_t traffic_class,
                   std::string& error);

}  // namespace genie::live
