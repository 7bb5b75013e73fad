// Where the packets came from that a NIC has refused: by counter and address, so many of each counter.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "live/sockets/ip_address.hpp"

namespace genie::live {

class RefusedSenders {
 public:
  struct Sender {
    const char* counter;
    IpAddress address;
    std::uint16_t port;  // of its first
    std::uint64_t packets;
  };

  // For each counter, of which there are a dozen: a flood from drawn addresses fills the places of its own
  // counter alone. Senders after them are counted, and not listed.
  static constexpr std::size_t kListed = 16;

  void add(const char* counter, const IpAddress& address, std::uint16_t port) {
    std::size_t listed = 0;
    for (Sender& sender : senders_) {
      if (sender.counter != counter) continue;
      if (sender.address == address) {
        ++sender.packets;
        return;
      }
      ++listed;
    }
    if (listed < kListed) senders_.push_back({counter, address, port, 1});
  }
  const std::vector<Sender>& list() const { return senders_; }

 private:
  std::vector<Sender> senders_;
};

}  // namespace genie::live
