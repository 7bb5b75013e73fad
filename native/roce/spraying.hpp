// The source ports of a sprayed queue pair: which of them a packet leaves by. Packets of one port go one
// path, in order.
//
// By default a PSN says its port. With recycling the port is one that came back with a good acknowledgement:
// REPS (Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure
// Mitigation", arXiv:2407.21625), whose entropy values are the ports here. Each acknowledgement returns the
// port of a packet and whether the network marked it. An unmarked port is kept in a ring and used once more.
// Without one in the ring, a port is drawn. After a timeout the ring is frozen: what it has held is used
// again and again, and nothing is drawn.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "core/cloned.hpp"
#include "core/fold.hpp"
#include "core/mix.hpp"
#include "core/time.hpp"
#include "roce/types.hpp"

namespace genie::roce {

// The port of a data packet when it is first sent.
constexpr std::uint32_t port_of(std::uint32_t psn, std::uint32_t ports) {
  return ports > 1 ? psn % ports : 0;
}

constexpr std::uint8_t next_of(std::uint8_t port, std::uint32_t ports) {
  return port + 1u < ports ? static_cast<std::uint8_t>(port + 1) : std::uint8_t{0};
}

// The ring of REPS.
class RecycledPorts {
 public:
  static constexpr std::uint32_t kPlaces = 8;           // the paper's, of less than 25 bytes for a connection
  static constexpr TimePs kFreeze = 10'000 * kPsPerUs;  // the default of the simulator beside the paper

  explicit RecycledPorts(std::uint64_t seed) : seed_(seed) {}
  std::unique_ptr<RecycledPorts> clone() const { return std::make_unique<RecycledPorts>(*this); }

  std::uint8_t next(std::uint32_t ports) {
    if (ever_ == 0 || explore_ > 0 || (fresh_ == 0 && !frozen_)) {
      if (explore_ > 0) --explore_;
      return static_cast<std::uint8_t>(mixed(seed_ + kGoldenGamma * ++drawn_) % ports);
    }
    if (fresh_ > 0) return ring_[(head_ + kPlaces - fresh_--) % kPlaces];
    again_ = (again_ + 1) % ever_;
    return ring_[again_];
  }
  // An acknowledgement returns a port. After the freeze as many ports are drawn as fill the window.
  void acknowledged(std::uint8_t port, bool marked, TimePs now, std::uint32_t window_packets) {
    if (marked) return;
    ring_[head_] = port;
    head_ = (head_ + 1) % kPlaces;
    fresh_ = std::min(fresh_ + 1, kPlaces);
    ever_ = std::min(ever_ + 1, kPlaces);
    if (!frozen_ || now < thaw_) return;
    frozen_ = false;
    explore_ = window_packets;
  }
  void failed(TimePs now) {
    if (frozen_ || explore_ > 0) return;
    frozen_ = true;
    thaw_ = now + kFreeze;
  }

  void fold(Fold& fold) {
    static_assert(has_size<RecycledPorts>(56));
    fold.rare(drawn_);
    fold.exact(head_, fresh_, ever_, again_, explore_, frozen_);
    for (const std::uint8_t port : ring_) fold.exact(port);
    if (frozen_) fold.moment(thaw_);
  }

 private:
  std::uint64_t seed_, drawn_ = 0;
  TimePs thaw_ = 0;
  std::array<std::uint8_t, kPlaces> ring_{};
  std::uint32_t head_ = 0, fresh_ = 0, ever_ = 0, again_ = 0;  // ever_: places that have held a port
  std::uint32_t explore_ = 0;
  bool frozen_ = false;
};

// A requester's: what is sent again takes the port after its last one, and so another path.
class DataPorts {
 public:
  DataPorts(const QueuePairConfig& config, std::uint32_t salt)
      : recycled_(config.recycle_ports ? std::make_unique<RecycledPorts>(mixed(salt + kGoldenGamma))
                                       : nullptr) {}

  bool recycles() const { return recycled_ != nullptr; }
  std::uint8_t next(std::uint32_t psn, std::uint32_t ports, bool again = false) {
    if (ports <= 1) return 0;
    if (recycled_ != nullptr) return recycled_->next(ports);
    return static_cast<std::uint8_t>((port_of(psn, ports) + shift_ + (again ? 1u : 0u)) % ports);
  }
  void acknowledged(const Packet& packet, TimePs now, std::uint32_t window_packets) {
    if (recycled_ != nullptr) recycled_->acknowledged(packet.port, packet.echo, now, window_packets);
  }
  // A path may be down: everything takes the next port from now on.
  void timed_out(TimePs now, const QueuePairConfig& config) {
    shift_ = next_of(shift_, config.spray);
    if (recycled_ != nullptr) recycled_->failed(now);
  }

  void fold(Fold& fold) {
    static_assert(has_size<DataPorts>(16));
    fold.exact(shift_);
    if (recycled_ != nullptr) recycled_->fold(fold);
  }

 private:
  Cloned<RecycledPorts> recycled_;
  std::uint8_t shift_ = 0;
};

// A responder's: answers take them in turn. Of recycled ports an acknowledgement takes one that came with
// data, and so returns it.
class AnswerPorts {
 public:
  std::uint8_t next(std::uint32_t ports) {
    const std::uint8_t now = next_;
    next_ = next_of(now, ports);
    return now;
  }

  bool has_come() const { return come_[0] != 0; }
  // Of more than fit, the oldest is forgotten: its sender draws one.
  void came(std::uint8_t port, bool marked) {
    const auto free = std::find(come_.begin(), come_.end(), std::uint8_t{0});
    if (free == come_.end()) {
      std::shift_left(come_.begin(), come_.end(), 1);
      come_.back() = entry(port, marked);
    } else {
      *free = entry(port, marked);
    }
  }
  void give_back(Packet& packet) {
    packet.port = come_[0] & 0x3F;
    packet.echo = (come_[0] & kMarked) != 0;
    std::shift_left(come_.begin(), come_.end(), 1);
    come_.back() = 0;
  }

  void fold(Fold& fold) const {
    static_assert(has_size<AnswerPorts>(6));
    fold.exact(next_);
    for (const std::uint8_t port : come_) fold.exact(port);
  }

 private:
  static constexpr std::uint8_t kHeld = 0x80, kMarked = 0x40;
  static std::uint8_t entry(std::uint8_t port, bool marked) {
    return static_cast<std::uint8_t>(kHeld | (marked ? kMarked : 0u) | port);
  }

  std::uint8_t next_ = 0;
  std::array<std::uint8_t, 5> come_{};  // oldest first; 0: none
};

}  // namespace genie::roce
