// Rhythm of the packets of one long message: a period for the time in which no message comes.
#pragma once
#include <cstdint>

#include "twin/packet_level/simulator.hpp"
#include "twin/skip/groups_ahead.hpp"
#include "twin/skip/period_finder.hpp"

namespace genie::twin {

class PacketRhythm {
 public:
  PacketRhythm(Simulator& simulator, const GroupsAhead& ahead)
      : simulator_(simulator), ahead_(ahead), finder_(kLagMax) {}

  // The shortest period of the packets that have left since the last call. Watches the queue pair with the
  // longest message under way.
  PeriodFinder::Period look(std::uint32_t times);
  // True once the message that was watched is nearly over.
  bool is_over() const;
  // The rank whose packets are watched; -1: none.
  std::int32_t rank() const;
  // Packets are not watched until the next look.
  void stop();

 private:
  static constexpr std::uint32_t kLagMax = 64;        // packets in a period
  static constexpr std::uint32_t kLongPackets = 256;  // left of a message that is worth it
  static constexpr std::uint32_t kWaitMost = 256;     // looks

  void choose();

  Simulator& simulator_;
  const GroupsAhead& ahead_;  // their packets are not watched
  PeriodFinder finder_;
  std::uint32_t queue_pair_ = Hosts::kNone;
  std::uint32_t left_ = 0;                  // packets of the watched message, at the latest look
  std::uint32_t wait_ = 0, next_wait_ = 1;  // looks until the next choice, where no message was long
};

}  // namespace genie::twin
