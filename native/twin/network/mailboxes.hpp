// Packets from the links of one thread's processes to those of another's, of one window.
#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

class Mailboxes {
 public:
  void resize(std::uint32_t threads) {
    threads_ = threads;
    boxes_.resize(std::size_t{threads} * threads);
  }
  // A packet of a link arrives in another thread; by the sending thread alone.
  void post(std::uint32_t from, std::uint32_t to, std::uint32_t link, const Packet& packet, TimePs arrival) {
    assert(from != to && from < threads_ && to < threads_);
    std::vector<RemotePacket>& packets = boxes_[from * threads_ + to].packets;
    packets.push_back({link, packet});
    packets.back().packet.arrival = arrival;
  }
  // fn(link, packet) for each that has been posted to a thread, in the order of the sending threads; between
  // windows, by the receiving thread alone.
  template <class Function>
  void take(std::uint32_t thread, Function fn) {
    for (std::uint32_t from = 0; from < threads_; ++from) {
      std::vector<RemotePacket>& packets = boxes_[from * threads_ + thread].packets;
      for (const RemotePacket& remote : packets) fn(remote.link, remote.packet);
      packets.clear();
    }
  }

 private:
  struct RemotePacket {
    std::uint32_t link;
    Packet packet;
  };
  struct alignas(64) Mailbox {
    std::vector<RemotePacket> packets;
  };
  std::uint32_t threads_ = 0;
  std::vector<Mailbox> boxes_;  // by sending thread, then by receiving thread
};

}  // namespace genie::twin
