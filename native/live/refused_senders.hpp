// Where the packets came from that a NIC has refused: by counter and address, within reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "live/ip_address.hpp"

namespace genie::live {

class RefusedSenders {
 public:
  struct Sender {
    const char* counter;
    IpAddress address;
    std::uint16_t port;  // of its first
    std::uint64_t packets;
  };

  // A flood from drawn addresses fills the list once: those after it are counted, and not listed.
  static constexpr std::size_t kListed = 32;

  void add(const char* counter, const IpAddress& address, std::uint16_t port) {
    for (Sender& sender : senders_) {
      if (sender.counter == counter && sender.address == address) {
        ++sender.packets;
        return;
      }
    }
    if (senders_.size() < kListed) senders_.push_back({counter, address, port, 1});
  }
  const std::vector<Sender>& list() const { return senders_; }

 private:
  std::vector<Sender> senders_;
};

}  // namespace genie::live
