#include "twin/components/part.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_set>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {
namespace {

enum class Order : std::uint8_t { kBefore, kAfter, kTogether };

// Of one part before another, by who has used a thing last; kTogether: both use it at some time.
Order order_of(const Uses& one, const Uses& other) {
  TimePs last_of_one = -kNever, last_of_other = -kNever;
  for (const Use& own : one) last_of_one = std::max(last_of_one, own.start);
  for (const Use& its : other) last_of_other = std::max(last_of_other, its.start);
  for (const Use& own : one) {
    for (const Use& its : other) {
      if (own.end > its.start && its.end > own.start) return Order::kTogether;
    }
  }
  if (last_of_one == last_of_other) return Order::kTogether;
  return last_of_one < last_of_other ? Order::kBefore : Order::kAfter;
}

// Both ends of a connection are taken from the part that has used them last: it is the same part.
bool have_equal_ends(const Part& one, const Part& other) {
  const std::unordered_set<std::uint64_t> others = other.connections();
  return std::ranges::all_of(one.connections(), [&](std::uint64_t key) {
    if (!others.contains(key)) return true;
    const auto rank = static_cast<std::int32_t>(key >> 32),
               peer = static_cast<std::int32_t>(key & 0xFFFFFFFFu);
    const auto has = [&](std::int32_t own) {
      return one.uses_of_ranks.contains(own) && other.uses_of_ranks.contains(own);
    };
    const auto order_at = [&](std::int32_t own) {
      return order_of(one.uses_of_ranks.at(own), other.uses_of_ranks.at(own));
    };
    return has(rank) && has(peer) && order_at(rank) == order_at(peer);
  });
}

}  // namespace

std::vector<Part> parts_in_order(Part own, std::vector<Part> others) {
  others.push_back(std::move(own));
  std::ranges::stable_sort(others, {}, &Part::first);
  std::map<std::int32_t, int> parts_of_rank;
  for (const Part& one : others) {
    for (const auto& [rank, uses] : one.uses_of_ranks) {
      if (++parts_of_rank[rank] > 2) return {};
    }
  }
  for (Part& one : others) {
    for (const Part& other : others) {
      for (const auto& [rank, uses] : one.uses_of_ranks) {
        const auto found = &one == &other ? other.uses_of_ranks.end() : other.uses_of_ranks.find(rank);
        if (found == other.uses_of_ranks.end()) continue;
        const Order order = order_of(uses, found->second);
        if (order == Order::kTogether) return {};
        if (order == Order::kBefore) one.earlier_ranks.insert(rank);
      }
    }
  }
  return others;
}

bool take_turns(const EpisodeJob& job, const Part& one, const Part& other, TimePs zero) {
  std::vector<std::uint32_t> shared;
  for (const std::uint32_t link : one.checkpoint.place->part.links) {
    if (one.uses(link) && other.uses(link)) shared.push_back(link);
  }
  if (shared.empty()) return true;
  if (!have_ranks_in_common(one.uses_of_ranks, other.uses_of_ranks) || !have_equal_ends(one, other))
    return false;
  const TimePs until = one.checkpoint.play->now();
  const UsesOfCables all_of_one = one.uses_of_cables(zero, until),
                     all_of_other = other.uses_of_cables(zero, until);
  const auto leaves_to = [](const Part& earlier, std::uint32_t link, const Uses& own, const Uses& others) {
    if (earlier.has_left(link, first_of(others))) return true;
    // It has used the link between two uses of the later, of which the state shows the latest.
    if (order_of(own, others) != Order::kBefore) return false;
    TimePs next = kNever;
    for (const Use& use : others) next = use.start < first_of(own) ? next : std::min(next, use.start);
    return earlier.has_left(link, next);
  };
  return std::ranges::all_of(shared, [&](std::uint32_t link) {
    for (const std::int32_t node : {job.network->link_source[link], job.network->link_target[link]}) {
      if (node >= job.network->hosts) continue;
      const std::int32_t rank = job.rank_of_host[index(node)];
      if (!one.uses_of_ranks.contains(rank) || !other.uses_of_ranks.contains(rank)) return false;
    }
    const auto own = all_of_one.find(link / 2), others = all_of_other.find(link / 2);
    if (own == all_of_one.end() || others == all_of_other.end()) return false;
    return leaves_to(one, link, own->second, others->second) ||
           leaves_to(other, link, others->second, own->second);
  });
}

}  // namespace genie::twin
