// A packet socket that sees the IPv4 headers of what comes to the RoCE port. With them the NIC can check the
// ICRC in full, whatever the sender's identifications. The socket needs CAP_NET_RAW.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "live/sockets/ip_address.hpp"
#include "live/sockets/udp_socket.hpp"

namespace genie::live {

class HeaderSocket {
 public:
  // A received packet, or several that receive offload has merged.
  struct Packet {
    std::span<const std::byte> udp_payload;  // of all segments
    std::size_t segment_bytes = 0;           // of each but the last
    std::uint16_t identification = 0;        // of the first; segmentation counts it up
    bool congested = false;                  // CE
    bool fragmentable = false;               // "don't fragment" is not set
    sockaddr_storage from{};
  };

  // Packets to this address and port whose destination queue pair belongs to `local_rank`; none that this
  // host sends. On failure `error` says why.
  std::string open(const IpAddress& address, std::uint16_t port, std::int32_t local_rank);
  bool open() const { return socket_.open(); }
  int get() const { return socket_.get(); }

  // The next packet into `buffer`; false when there is none. What is no RoCE packet in a plain IPv4 header
  // never comes out.
  bool receive(std::span<std::byte> buffer, Packet& packet) const;

 private:
  Socket socket_;
};

// Lets a socket hold its port and take nothing.
bool silence(const Socket& socket);

}  // namespace genie::live
