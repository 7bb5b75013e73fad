// The claim of a cable by a component.
#pragma once
#include <cstdint>

#include "twin/components/component.hpp"

namespace genie::twin {

struct Claim {
  Component* component = nullptr;
  std::uint64_t serial = 0;  // of the component
  TimePs until = 0;
  bool is_live = false;  // packets of the simulator use it

  bool is_alive() const { return component != nullptr && serial == component->serial; }
  bool is_of(const Component& own) const { return component == &own && serial == own.serial; }
  // An act that has joined a component since its forecast may change how long it uses a cable.
  bool is_used_at(TimePs time) const { return until > time || component->is_changed; }
  void take(Component& own) {
    component = &own;
    serial = own.serial;
    until = kNever;
  }
};

}  // namespace genie::twin
