// Ports and their wires as data, laid out by cache lines; network/links.hpp moves their packets.
#pragma once
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/time.hpp"
#include "twin/fabric/network.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

// The packets of one class, in a ring: `flying` on the wire, then `waiting`.
struct PriorityQueue {
  Packet* slots = nullptr;  // of an arena
  std::uint32_t head = 0, flying = 0, waiting = 0, capacity = 0;
  std::int64_t waiting_bytes = 0;

  Packet& at(std::uint32_t place) { return slots[(head + place) & (capacity - 1)]; }
  const Packet& at(std::uint32_t place) const { return slots[(head + place) & (capacity - 1)]; }
  // Asks for the memory of a place early; there may be none yet.
  void fetch(std::uint32_t place) const {
    const std::uintptr_t offset = sizeof(Packet) * ((head + place) & (capacity - 1));
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(slots) + offset), 1);
  }
  // The first leaves the wire.
  void pop() {
    assert(flying > 0);
    head = (head + 1) & (capacity - 1);
    --flying;
  }
};

// A port and its wire.
struct alignas(64) Port {
  enum Flag : std::uint8_t {
    kErrors = 1,    // corrupts frames, or replays those that a plan corrupts
    kInside = 2,    // both ends in one process
    kListed = 4,    // among those with packets that wait
    kToSwitch = 8,  // that is a process of its own
    kAbroad = 16,   // to a process that another thread plays
    kDown = 32,
    kCutThrough = 64,  // its target forwards what it has the header of
    kBucket = 128,     // a token bucket
  };
  // Bit of each class that waits and is not paused.
  unsigned ready() const { return waiting & ~unsigned{paused}; }
  bool is_paused(std::uint32_t priority) const { return (paused >> priority & 1) != 0; }
  void pause(std::uint32_t priority) { paused |= static_cast<std::uint8_t>(1u << priority); }
  void resume(std::uint32_t priority) { paused &= static_cast<std::uint8_t>(~(1u << priority)); }
  bool is(unsigned any) const { return (flags & any) != 0; }
  void set(Flag flag) { flags |= flag; }
  void clear(Flag flag) { flags &= static_cast<std::uint8_t>(~flag); }

  TimePs free = 0;   // when the port can start the next
  TimePs delay = 0;  // from the last bit sent until it is dealt with at the other end
  std::uint64_t packets = 0, bytes = 0;
  std::uint32_t ps_per_byte = 0;  // 0: not a whole number, or no limit
  std::uint32_t target_process = 0;
  std::uint8_t flying = 0, waiting = 0;  // bit of each class that has packets on the wire, or that wait
  std::uint8_t paused = 0;               // bit of each class
  std::uint8_t flags = 0;
  bool to_host = false;
  std::int64_t waiting_bytes = 0, longest_bytes = 0;
  std::array<PriorityQueue, kClasses> queues;  // from a cache line's beginning
  // Only packets that wait touch these.
  std::int64_t buffer_bytes = -1;  // of this port alone; -1: no limit
  std::int64_t rate_bps = 0;
  std::int32_t node = 0;      // that the port belongs to
  std::uint32_t process = 0;  // of that
  std::uint32_t thread = 0;   // in whose arena the rings are
  // ECN: a queue so long or shorter marks nothing.
  std::int64_t unmarked_bytes = std::numeric_limits<std::int64_t>::max();

  // The queue whose packet arrives first; one is on the wire.
  PriorityQueue& first_on_wire() {
    assert(flying != 0);
    unsigned best = static_cast<unsigned>(std::countr_zero(flying));
    for (unsigned left = flying & (flying - 1u); left != 0; left &= left - 1) {
      const auto other = static_cast<unsigned>(std::countr_zero(left));
      if (queues[other].at(0).arrival < queues[best].at(0).arrival) best = other;
    }
    return queues[best];
  }
  // Takes its packet off the wire.
  Packet take_first() {
    PriorityQueue& queue = first_on_wire();
    const Packet packet = queue.at(0);
    queue.pop();
    if (queue.flying == 0) flying &= static_cast<std::uint8_t>(~(1u << packet.priority));
    return packet;
  }
};
static_assert(sizeof(Port) == 256 && sizeof(PriorityQueue) == 32);

}  // namespace genie::twin
