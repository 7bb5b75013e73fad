// A packet on its way through the twin: what the network and the other end need, in half a cache line.
#pragma once
#include <cstdint>

#include "core/time.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"

namespace genie::twin {

struct Packet {
  static constexpr std::uint32_t kFree = 1u << 31;

  // Its way is picked by each switch; its route has the link by which it came.
  bool is_free() const { return (route & kFree) != 0; }

  // While it waits on a port: the link by which it came.
  std::uint32_t ingress() const { return static_cast<std::uint32_t>(arrival); }
  void set_ingress(std::uint32_t link) { arrival = link; }

  TimePs arrival = 0;            // at the end of the link that it is on; see ingress()
  std::uint32_t connection = 0;  // queue pair that gets it
  std::uint32_t route = 0;       // place of its next link in the network's paths
  std::uint32_t psn : 24 = 0;
  std::uint32_t priority : 3 = 0;  // its class
  std::uint32_t ack_request : 1 = 0;
  std::uint32_t solicited : 1 = 0;
  std::uint32_t ect : 1 = 0;  // ECN: may be marked
  std::uint32_t ce : 1 = 0;   // ECN: has been marked
  std::uint32_t trimmed : 1 = 0;
  std::uint32_t value = 0;      // immediate, length of the message, or syndrome and MSN: by opcode
  std::uint32_t telemetry = 0;  // place of what switches write about themselves; 0: none
  std::uint16_t payload_bytes = 0;
  roce::Opcode opcode = roce::Opcode::kAcknowledge;
  bool echo : 1 = false;      // of an acknowledgement: what it acknowledges was marked
  bool paced : 1 = false;     // its connection's rate let it go, and no port has held it since
  std::uint8_t port : 6 = 0;  // of its queue pair's source ports, where these are recycled
};
static_assert(sizeof(Packet) == 32);

}  // namespace genie::twin
