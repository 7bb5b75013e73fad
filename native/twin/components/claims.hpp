// Claims of a job's cables by components.
#pragma once
#include <cstdint>
#include <vector>

#include "twin/components/claim.hpp"
#include "twin/components/component_services.hpp"

namespace genie::twin {

class Claims {
 public:
  Claims(const Network& network, ComponentServices& services)
      : services_(&services), claims_(static_cast<std::size_t>(network.links() / 2 + 1)) {}

  const Claim& operator[](std::uint32_t cable) const { return claims_[cable]; }
  // Packets of the simulator's own use the cable from now on.
  void set_live(std::uint32_t cable) { claims_[cable].is_live = true; }
  // The component needs the cable until a time, if it has it.
  void set_until(const Component& component, std::uint32_t cable, TimePs time) {
    if (claims_[cable].is_of(component)) claims_[cable].until = time;
  }
  bool is_owned(const Component& component, std::uint32_t cable) const {
    return claims_[cable].is_of(component) && !claims_[cable].is_live;
  }
  bool is_free_for(const Component& component, std::uint32_t cable, TimePs time) const {
    const Claim& own = claims_[cable];
    return is_owned(component, cable) || (!own.is_live && !(own.is_alive() && own.is_used_at(time)));
  }
  // Gives a cable to a component, which first keeps the latest services of the cable's links.
  void claim(Component& component, std::uint32_t cable) {
    Claim& own = claims_[cable];
    if (!own.is_of(component)) services_->enter(component, cable, own);
    own.take(component);
  }
  // Of these cables, those of one component are another's.
  void hand_over(const std::vector<std::uint32_t>& cables, const Component& from, Component& into) {
    for (const std::uint32_t cable : cables) {
      if (claims_[cable].is_of(from)) claims_[cable].take(into);
    }
  }

 private:
  ComponentServices* services_;
  std::vector<Claim> claims_;  // by cable
};

}  // namespace genie::twin
