// The source ports of a sprayed queue pair: which of them a packet leaves by. Packets of one port go one
// path, in order.
#pragma once
#include <cstdint>

namespace genie::roce {

// The port of a data packet when it is first sent.
constexpr std::uint32_t port_of(std::uint32_t psn, std::uint32_t ports) {
  return ports > 1 ? psn % ports : 0;
}

constexpr std::uint8_t next_of(std::uint8_t port, std::uint32_t ports) {
  return port + 1u < ports ? static_cast<std::uint8_t>(port + 1) : std::uint8_t{0};
}

// A requester's: what is sent again takes the port after its last one, and so another path.
class DataPorts {
 public:
  std::uint8_t by(std::uint32_t psn, std::uint32_t ports, bool again = false) const {
    if (ports <= 1) return 0;
    return static_cast<std::uint8_t>((port_of(psn, ports) + shift_ + (again ? 1u : 0u)) % ports);
  }
  // A timeout: everything takes the next port from now on.
  void shift(std::uint32_t ports) { shift_ = next_of(shift_, ports); }

 private:
  std::uint8_t shift_ = 0;
};

// A responder's: answers take them in turn.
class AnswerPorts {
 public:
  std::uint8_t next(std::uint32_t ports) {
    const std::uint8_t now = next_;
    next_ = next_of(now, ports);
    return now;
  }

 private:
  std::uint8_t next_ = 0;
};

}  // namespace genie::roce
