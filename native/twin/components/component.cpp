#include "twin/components/component.hpp"

#include <algorithm>

namespace genie::twin {

std::vector<std::uint32_t> Component::tags() const {
  std::vector<std::uint32_t> found;
  for (const std::unique_ptr<Act>& act : acts) found.push_back(act->tag);
  std::ranges::sort(found);
  return found;
}

std::vector<Kind> Component::kinds() const {
  std::vector<Kind> found;
  for (const std::unique_ptr<Act>& act : acts) found.push_back(act->kind);
  return found;
}

// A message begins with its sender.
bool Component::Former::has(const Act& act, const Act::Member& member) const {
  const std::uint64_t sequence = act.is_message()
                                     ? std::min(act.members.front().sequence, act.members.back().sequence)
                                     : member.sequence;
  return sequence <= until && !member.is_expected && std::ranges::binary_search(tags, act.tag);
}

}  // namespace genie::twin
