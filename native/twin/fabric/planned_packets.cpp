#include "twin/fabric/planned_packets.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "roce/types.hpp"

namespace genie::twin {

double PlannedPackets::share(std::uint64_t sent) {
  if (planned_ == 0) planned_ = std::max<std::uint64_t>(count(), 1);
  return std::min(static_cast<double>(sent) / static_cast<double>(planned_), 0.999);
}

// Collectives of one shape are counted once, and the nodes of a class.
std::uint64_t PlannedPackets::count() const {
  std::map<std::tuple<std::int32_t, std::int64_t, std::int32_t>, std::uint64_t> known;
  std::map<const NodeTable*, Uses> uses;
  std::uint64_t sum = 0;
  for (const RankPlan* plan : plans_) {
    const auto [own, is_first] = uses.try_emplace(plan->table.get());
    if (is_first) own->second = uses_of(*plan->table);
    sum += own->second.message_packets;
    for (std::size_t at = 0; at < plan->bindings.size(); ++at) {
      const Binding& binding = plan->bindings[at];
      if (!plan->table->of_collective[at] || binding.template_id < 0) continue;
      const auto [shape, is_new] =
          known.try_emplace({binding.template_id, binding.sizes_start, binding.position}, 0);
      if (is_new) shape->second = of_collective(binding);
      sum += own->second.collectives[at] * shape->second;
    }
  }
  return sum;
}

PlannedPackets::Uses PlannedPackets::uses_of(const NodeTable& table) const {
  Uses uses{.message_packets = 0, .collectives = std::vector<std::uint64_t>(table.of_collective.size(), 0)};
  for (std::size_t row = 0; row < table.kind.size(); ++row) {
    const auto kind = static_cast<NodeKind>(table.kind[row]);
    if (kind == NodeKind::kSend)
      uses.message_packets += roce::packets_of(static_cast<std::uint32_t>(table.size_bytes[row]), mtu_bytes_);
    if (kind == NodeKind::kColl) ++uses.collectives[static_cast<std::size_t>(table.binding[row])];
  }
  return uses;
}

// Of one rank's messages in it, its clear-to-sends included.
std::uint64_t PlannedPackets::of_collective(const Binding& binding) const {
  const StepTemplate& steps = shared_->templates[static_cast<std::size_t>(binding.template_id)];
  std::uint64_t sum = 0;
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    const std::int64_t size_bytes = shared_->block_sizes[static_cast<std::size_t>(
        binding.sizes_start + steps.block_of(step, binding.position))];
    if (size_bytes == 0 && !steps.empty_messages) continue;
    const auto at = static_cast<std::size_t>(step);
    if (steps.is_send(at)) {
      sum += roce::packets_of(static_cast<std::uint32_t>(size_bytes), mtu_bytes_);
    } else if (steps.credit[at]) {
      ++sum;
    }
  }
  return sum;
}

}  // namespace genie::twin
