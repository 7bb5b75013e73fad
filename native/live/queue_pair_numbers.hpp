// The numbers of a NIC's queue pairs. The high byte has the local rank + 1, by which a datagram finds its
// socket. A blind sender has to guess the other sixteen bits.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace genie::live {

class QueuePairNumbers {
 public:
  // Until drawn, the low bits are the index.
  explicit QueuePairNumbers(std::int32_t local_rank) : rank_(static_cast<std::uint32_t>(local_rank + 1)) {}

  // Gives indexes an order that the operating system's secrets choose; "" or why it cannot.
  std::string draw();

  bool of_this_rank(std::uint32_t qpn) const { return qpn >> 16 == rank_; }
  std::uint32_t number(std::uint32_t index) const {
    return rank_ << 16 | (drawn_.empty() ? index : std::uint32_t{drawn_[index & 0xFFFF]});
  }
  std::uint32_t index(std::uint32_t qpn) const {
    return drawn_.empty() ? qpn & 0xFFFF : std::uint32_t{index_of_[qpn & 0xFFFF]};
  }

 private:
  std::uint32_t rank_;
  std::vector<std::uint16_t> drawn_, index_of_;  // each the other's inverse
};

}  // namespace genie::live
