#include "twin/components/component_plans.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {

std::vector<Act*> ComponentPlans::in_order(Component& component) {
  std::vector<Act*> acts;
  for (const std::unique_ptr<Act>& act : component.acts) acts.push_back(act.get());
  const auto key = [](const Act* act) {
    TimePs first = kNever;
    for (const Act::Member& member : act->members) first = std::min(first, member.start);
    return std::tuple(first, act->place->ranks.front(), act->place->ranks.back(), act->members.size(),
                      act->sender, act->kind, act->operation.size_bytes, act->operation.handle);
  };
  if (acts.size() > 1) std::ranges::stable_sort(acts, {}, key);
  struct OfRank {
    std::size_t rank;  // among those of the component
    Act::Member* member;
    auto key() const { return std::pair(rank, member->sequence); }
  };
  std::vector<OfRank> rows;
  rows.reserve(component.place->ranks.size());
  for (Act* act : acts) {
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      Act::Member& member = act->members[at];
      member.row = -1;
      if (member.node < 0 && !act->is_message()) continue;
      rows.push_back({component.place->place_of(act->place->ranks[at]), &member});
    }
  }
  if (!std::ranges::is_sorted(rows, {}, &OfRank::key)) std::ranges::stable_sort(rows, {}, &OfRank::key);
  for (auto first = rows.begin(); first != rows.end();) {
    const auto end =
        std::find_if(first, rows.end(), [&](const OfRank& it) { return it.rank != first->rank; });
    for (auto row = first; row != end; ++row) {
      Act::Member& own = *row->member;
      own.row = static_cast<std::int32_t>(row - first);
      if (own.is_expected) {
        own.after = own.follows == nullptr ? -1 : own.follows->row;
        continue;
      }
      const auto before = std::find_if(first, end, [&](const OfRank& it) {
        return it.member != &own && it.member->end == own.start && own.start != kNever;
      });
      own.after = before == end ? -1 : static_cast<std::int32_t>(before - first);
    }
    first = end;
  }
  return acts;
}

std::vector<Row> ComponentPlans::rows_of(const std::vector<Act*>& acts) {
  std::vector<Row> rows;
  for (const Act* act : acts) {
    for (std::size_t member = 0; member < act->members.size(); ++member) {
      const Act::Member& own = act->members[member];
      if (own.row >= 0) rows.push_back({.act = act, .member = member, .row = own.row, .after = own.after});
    }
  }
  return rows;
}

void ComponentPlans::describe(const Component& component, const std::vector<Act*>& acts,
                              const InputServices& services, KnownEpisodes::Description& description) const {
  const EpisodePlace& place = *component.place;
  description.assign({static_cast<std::int64_t>(place.alike)});
  for (const InputService& own : services)
    description.insert(description.end(), {own.link, own.time, own.mark, own.is_later});
  for (const Act* act : acts) {
    description.insert(description.end(),
                       {act->is_message() ? act->operation.size_bytes : act->kind, act->is_message(),
                        static_cast<std::int64_t>(act->members.size())});
    if (!act->is_message() && !std::ranges::is_sorted(members_of(*act))) {
      for (const std::int32_t rank : members_of(*act))
        description.push_back(static_cast<std::int64_t>(place.place_of(rank)));
    }
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      const Act::Member& member = act->members[at];
      const std::int32_t rank = act->place->ranks[at];
      const bool is_bound = member.node >= 0 && !act->is_message();
      description.insert(description.end(),
                         {static_cast<std::int64_t>(place.place_of(rank)), member.row,
                          member.node < 0 || member.after >= 0 ? -1 : member.start - component.first,
                          is_bound ? job_->plans[index(rank)]->bound(member.node).template_id : -1,
                          is_bound ? job_->plans[index(rank)]->bound(member.node).sizes_start : -1,
                          member.after, member.is_by_timer});
    }
  }
}

std::shared_ptr<const EpisodePlan> ComponentPlans::plan_of(const EpisodePlace& place, TimePs first,
                                                           const std::vector<Row>& rows) const {
  const auto own_plan = std::make_shared<EpisodePlan>();
  EpisodePlan& plan = *own_plan;
  plan.shared.slice_delay = job_->shared->slice_delay;
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
    const StepTemplate& steps = job_->shared->templates[index(whole)];
    const auto [known, is_new] = templates.try_emplace(whole, static_cast<std::int32_t>(templates.size()));
    if (is_new) plan.shared.templates.push_back(steps);
    node.binding.template_id = known->second;
    const auto start = job_->shared->block_sizes.begin() + node.binding.sizes_start;
    const auto [at, is_new_size] = sizes.try_emplace(
        {node.binding.sizes_start, whole}, static_cast<std::int64_t>(plan.shared.block_sizes.size()));
    if (is_new_size)
      plan.shared.block_sizes.insert(plan.shared.block_sizes.end(), start, start + steps.highest_block + 1);
    node.binding.sizes_start = at->second;
  }
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    plan.add_rank(places_->host_of(place, place.ranks[rank]), nodes[rank]);
  return own_plan;
}

EpisodePlan::Node ComponentPlans::node_of(const Row& row, TimePs first, const EpisodePlace& place,
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
  node.binding = job_->plans[index(row.rank())]->bound(own.node);
  node.binding.group = static_cast<std::int32_t>(plan.shared.group_start.size()) - 2;
  node.binding.tag_bits = 0;
  return node;
}

// In the order of their places in the group.
std::span<const std::int32_t> ComponentPlans::members_of(const Act& act) const {
  const auto known = std::ranges::find_if(act.members, [](const Act::Member& it) { return it.node >= 0; });
  const std::int32_t rank = act.place->ranks[static_cast<std::size_t>(known - act.members.begin())];
  return job_->members_of(job_->plans[index(rank)]->bound(known->node).group);
}

}  // namespace genie::twin
