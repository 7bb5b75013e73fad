#include "twin/planned_packets.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "roce/types.hpp"

namespace genie::twin {

double PlannedPackets::share(std::uint64_t sent) {
  if (planned_ == 0) planned_ = std::max<std::uint64_t>(count(), 1);
  return std::min(static_cast<double>(sent) / static_cast<double>(planned_), 0.999);
}

// Collectives of one shape are counted once.
std::uint64_t PlannedPackets::count() const {
  std::map<std::tuple<std::int32_t, std::int64_t, std::int32_t>, std::uint64_t> known;
  std::uint64_t sum = 0;
  for (const RankPlan* plan : plans_) {
    for (std::size_t row = 0; row < plan->kind.size(); ++row) {
      const auto kind = static_cast<NodeKind>(plan->kind[row]);
      if (kind == NodeKind::kSend)
        sum += roce::packets_of(static_cast<std::uint32_t>(plan->size_bytes[row]), mtu_bytes_);
      if (kind != NodeKind::kColl || plan->template_id[row] < 0) continue;
      const auto [shape, is_new] =
          known.try_emplace({plan->template_id[row], plan->sizes_start[row], plan->position[row]}, 0);
      if (is_new) shape->second = of_collective(*plan, row);
      sum += shape->second;
    }
  }
  return sum;
}

// Of one rank's messages in it, its clear-to-sends included.
std::uint64_t PlannedPackets::of_collective(const RankPlan& plan, std::size_t row) const {
  const StepTemplate& steps = shared_->templates[static_cast<std::size_t>(plan.template_id[row])];
  std::uint64_t sum = 0;
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    const std::int64_t size_bytes = shared_->block_sizes[static_cast<std::size_t>(
        plan.sizes_start[row] + steps.block_of(step, plan.position[row]))];
    if (size_bytes == 0 && !steps.empty_messages) continue;
    const auto at = static_cast<std::size_t>(step);
    if (steps.action[at] == static_cast<std::uint8_t>(StepAction::kSend)) {
      sum += roce::packets_of(static_cast<std::uint32_t>(size_bytes), mtu_bytes_);
    } else if (steps.credit[at]) {
      ++sum;
    }
  }
  return sum;
}

}  // namespace genie::twin
