// Services of links that components use: the order in which switches have served their inputs before.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "twin/components/claim.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

class ComponentServices {
 public:
  ComponentServices(const Network& network, const Links& links) : network_(&network), links_(&links) {}

  // Keeps the latest services of a cable's links before the component uses them.
  void enter(Component& component, std::uint32_t cable, const Claim& before);
  // The latest service of a link whose cable was claimed so.
  Component::ServiceBefore latest_of(std::uint32_t link, const Claim& claim);
  // A service of a component's episode, by its place there.
  InputOrder::Service after(const Component& component, std::size_t at);
  // The services before a component, by the numbers of its part. Those before its first start count by their
  // order. `numbers`: of the component, whose own services do not count. Leaves the entries that do.
  InputServices before(std::vector<Component::ServiceBefore>& entries,
                       const std::vector<std::uint64_t>& numbers, TimePs first,
                       const NetworkPart& part) const;
  // A number for services whose order is known.
  std::uint32_t make_mark() { return ++latest_mark_; }
  // Orders of components that begin at one time are then less well known.
  void forget_steps() { marks_in_step_.clear(); }

 private:
  const Network* network_;
  const Links* links_;
  std::uint32_t latest_mark_ = 0;
  // By episode, first start, link, and time and mark of its service before.
  std::map<std::tuple<const Episode*, TimePs, std::uint32_t, TimePs, std::uint32_t>, std::uint32_t>
      marks_in_step_;
};

}  // namespace genie::twin
