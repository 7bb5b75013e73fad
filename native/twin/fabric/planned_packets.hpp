// Progress of a plan, for display: the part of its packets that has been sent.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "walker/plan.hpp"

namespace genie::twin {

class PlannedPackets {
 public:
  PlannedPackets(const SharedPlan& shared, std::vector<const RankPlan*> plans, std::uint32_t mtu_bytes)
      : shared_(&shared), plans_(std::move(plans)), mtu_bytes_(mtu_bytes) {}

  // Of the packets of the plan's messages: below 1, though what is sent again counts too. The first to ask
  // waits until they are counted.
  double share(std::uint64_t sent);
  // Of all messages, clear-to-sends included.
  std::uint64_t count() const;

 private:
  struct Uses {  // of the nodes of a class
    std::uint64_t message_packets = 0;
    std::vector<std::uint64_t> collectives;  // by binding
  };
  Uses uses_of(const NodeTable& table) const;
  std::uint64_t of_collective(const Binding& binding) const;

  const SharedPlan* shared_;
  std::vector<const RankPlan*> plans_;
  std::uint32_t mtu_bytes_;
  std::uint64_t planned_ = 0;
};

}  // namespace genie::twin
