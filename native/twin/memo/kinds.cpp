#include "twin/memo/kinds.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {

namespace {

constexpr Kind kWithoutSteps = -2;

}  // namespace

Kinds::Kinds(const SharedPlan& shared, const std::vector<const RankPlan*>& plans) : shared_(&shared) {
  find_uneven_groups(plans);
  count(plans);
}

bool Kinds::is_collective(const RankPlan& plan, std::size_t binding) const {
  const Binding& own = plan.bindings[binding];
  return plan.table->of_collective[binding] && own.template_id >= 0 &&
         shared_->templates[index(own.template_id)].steps() > 0;
}

void Kinds::find_uneven_groups(const std::vector<const RankPlan*>& plans) {
  const std::size_t groups = shared_->group_start.size();
  is_uneven_.assign(groups, 0);
  std::vector<std::vector<std::int64_t>> sizes_of(groups);
  std::vector<std::uint8_t> is_known(groups, 0);
  for (const RankPlan* plan : plans) {
    std::map<std::int32_t, std::vector<std::int64_t>> own;
    for (std::size_t at = 0; at < plan->bindings.size(); ++at) {
      const Binding& bound = plan->bindings[at];
      if (!plan->table->of_collective[at] || bound.group < 0) continue;
      own[bound.group].push_back(is_collective(*plan, at) ? bound.sizes_start : kWithoutSteps);
    }
    for (auto& [group, sizes] : own) {
      std::sort(sizes.begin(), sizes.end());
      sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
      if (!std::exchange(is_known[index(group)], std::uint8_t{1})) {
        sizes_of[index(group)] = sizes;
      } else if (sizes_of[index(group)] != sizes) {
        is_uneven_[index(group)] = 1;
      }
    }
  }
}

void Kinds::count(const std::vector<const RankPlan*>& plans) {
  std::map<Kind, std::uint64_t> count;
  std::map<const NodeTable*, std::vector<std::uint64_t>> uses_of;
  for (const RankPlan* plan : plans) {
    std::vector<std::uint64_t>& uses = uses_of[plan->table.get()];
    if (uses.empty()) {
      uses.resize(plan->bindings.size() + 1);
      for (std::int32_t node = 0; node < plan->table->nodes(); ++node) {
        const auto kind = static_cast<NodeKind>(plan->table->kind[index(node)]);
        if (kind == NodeKind::kColl || kind == NodeKind::kSend)
          ++uses[index(plan->table->binding[index(node)])];
      }
    }
    for (std::size_t at = 0; at < plan->bindings.size(); ++at) {
      const Binding& own = plan->bindings[at];
      if (is_collective(*plan, at) && own.position == 0) count[own.sizes_start] += uses[at];
      if (!plan->table->of_collective[at]) count[kMessages] += uses[at];
    }
  }
  for (const auto& [kind, uses] : count) {
    kinds_.push_back(kind);
    acts_ += uses;
  }
  // One message of each rank is no pattern.
  any_again_ = std::ranges::any_of(
      count, [&](const auto& entry) { return entry.second > (entry.first == kMessages ? plans.size() : 1); });
}

std::vector<Walker::Play> Kinds::plays_of(const RankPlan& plan) const {
  std::vector<Walker::Play> plays(plan.bindings.size(), Walker::Play::kOwn);
  for (std::size_t at = 0; at < plays.size(); ++at) {
    const Binding& own = plan.bindings[at];
    const bool is_message = !plan.table->of_collective[at];
    if (!is_message && !is_collective(plan, at)) continue;
    const bool is_live = is_message ? live_.contains(kMessages)
                                    : is_uneven_[index(own.group)] != 0 || live_.contains(own.sizes_start);
    plays[at] = is_live ? Walker::Play::kTold : Walker::Play::kHeld;
  }
  return plays;
}

}  // namespace genie::twin
