// A row of the plan of a component's play: a member of one of its acts.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/mix.hpp"
#include "twin/components/component.hpp"

namespace genie::twin {

struct Row {
  const Act* act = nullptr;
  std::size_t member = 0;
  std::int32_t row = -1, after = -1;  // among its rank's, and that of the one at whose end it begins

  const Act::Member& own() const { return act->members[member]; }
  std::int32_t rank() const { return act->place->ranks[member]; }
  std::uint64_t key() const { return pair_key(act->tag, static_cast<std::uint32_t>(member)); }
  bool is_receiver() const { return act->is_message() && rank() != act->sender; }
  // Of its member, or of the sender of its message.
  TimePs start() const {
    return act->is_message() ? act->members[act->place->place_of(act->sender)].start : own().start;
  }
};

}  // namespace genie::twin
