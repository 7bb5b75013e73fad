// Plans of episodes, from the acts of a component.
#include <algorithm>
#include <map>
#include <utility>

#include "core/index.hpp"
#include "twin/episodes/episodes.hpp"

namespace genie::twin {

// Of a row's member, or of the sender of its message.
TimePs Episodes::Row::start() const {
  return act->is_message() ? act->members[act->place->place_of(act->sender)].start : own().start;
}

std::vector<Episodes::Row> Episodes::rows_of(const std::vector<Act*>& acts) {
  std::vector<Row> rows;
  for (const Act* act : acts) {
    for (std::size_t member = 0; member < act->members.size(); ++member) {
      const Act::Member& own = act->members[member];
      if (own.row >= 0) rows.push_back({.act = act, .member = member, .row = own.row, .after = own.after});
    }
  }
  return rows;
}

EpisodePlan::Node Episodes::node_of(const Row& row, TimePs first, const EpisodePlace& place,
                                    EpisodePlan& plan) const {
  const Act& act = *row.act;
  const Act::Member& own = row.own();
  EpisodePlan::Node node;
  node.origin = {
      .act = act.tag, .member = static_cast<std::uint32_t>(row.member), .is_by_timer = own.is_by_timer};
  node.start = row.after >= 0 || row.is_receiver() ? 0 : own.start - first;
  node.after = row.after;
  if (act.is_message()) {
    node.kind = row.is_receiver() ? NodeKind::kRecv : NodeKind::kSend;
    node.size_bytes = act.operation.size_bytes;
    node.binding.peer = static_cast<std::int32_t>(place.place_of(act.place->ranks[1 - row.member]));
    return node;
  }
  node.binding = plans_[index(row.rank())]->bound(own.node);
  node.binding.group = static_cast<std::int32_t>(plan.shared.group_start.size()) - 2;
  node.binding.tag_bits = 0;
  return node;
}

// Ranks of a collective in the order of its group, by which members have positions.
std::span<const std::int32_t> Episodes::members_of(const Act& act) const {
  const auto known = std::ranges::find_if(act.members, [](const Act::Member& it) { return it.node >= 0; });
  const std::int32_t rank = act.place->ranks[static_cast<std::size_t>(known - act.members.begin())];
  const std::size_t group = index(plans_[index(rank)]->bound(known->node).group);
  const std::int64_t first = shared_->group_start[group], end = shared_->group_start[group + 1];
  return {shared_->group_members.data() + first, static_cast<std::size_t>(end - first)};
}

// `rows`: those of an act follow one another.
std::shared_ptr<const EpisodePlan> Episodes::plan_of(const EpisodePlace& place, TimePs first,
                                                     const std::vector<Row>& rows) const {
  const auto own_plan = std::make_shared<EpisodePlan>();
  EpisodePlan& plan = *own_plan;
  plan.shared.slice_delay = shared_->slice_delay;
  plan.shared.group_start = {0};
  std::map<std::int32_t, std::int32_t> templates;
  std::map<std::pair<std::int64_t, std::int32_t>, std::int64_t> sizes;
  std::vector<std::vector<EpisodePlan::Node>> nodes(place.ranks.size());
  const Act* latest = nullptr;
  for (const Row& row : rows) {
    const Act& act = *row.act;
    if (!act.is_message() && std::exchange(latest, &act) != &act) {
      for (const std::int32_t rank : members_of(act))
        plan.shared.group_members.push_back(static_cast<std::int32_t>(place.place_of(rank)));
      plan.shared.group_start.push_back(static_cast<std::int64_t>(plan.shared.group_members.size()));
    }
    auto& own = nodes[place.place_of(row.rank())];
    own.resize(std::max(own.size(), index(row.row) + 1));
    EpisodePlan::Node& node = own[index(row.row)] = node_of(row, first, place, plan);
    if (act.is_message()) continue;
    const std::int32_t whole = node.binding.template_id;
    const StepTemplate& steps = shared_->templates[index(whole)];
    const auto [known, is_new] = templates.try_emplace(whole, static_cast<std::int32_t>(templates.size()));
    if (is_new) plan.shared.templates.push_back(steps);
    node.binding.template_id = known->second;
    const auto start = shared_->block_sizes.begin() + node.binding.sizes_start;
    const auto [at, is_new_size] = sizes.try_emplace(
        {node.binding.sizes_start, whole}, static_cast<std::int64_t>(plan.shared.block_sizes.size()));
    if (is_new_size)
      plan.shared.block_sizes.insert(plan.shared.block_sizes.end(), start, start + steps.highest_block + 1);
    node.binding.sizes_start = at->second;
  }
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    plan.add_rank(places_.host_of(place, place.ranks[rank]), nodes[rank]);
  return own_plan;
}

}  // namespace genie::twin
