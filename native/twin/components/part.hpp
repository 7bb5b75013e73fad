// A part of a component: its acts, and what it has used until the time of a checkpoint.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/index.hpp"
#include "twin/components/row.hpp"
#include "twin/memo/episode_job.hpp"

namespace genie::twin {

// Of a host or a cable, by an act's member.
struct Use {
  TimePs start = kNever, end = kNever;  // kNever: it has not ended
};
using Uses = std::vector<Use>;
using UsesOfRanks = std::map<std::int32_t, Uses>;
using UsesOfCables = std::unordered_map<std::uint32_t, Uses>;

inline TimePs first_of(const Uses& uses) { return std::ranges::min(uses, {}, &Use::start).start; }
inline bool have_ranks_in_common(const UsesOfRanks& one, const UsesOfRanks& other) {
  return std::ranges::any_of(one, [&](const auto& entry) { return other.contains(entry.first); });
}

struct Part {
  Component::Checkpoint checkpoint = {};
  const Component::Former* former = nullptr;  // that it is played alone from; nullptr: it has the checkpoint
  std::vector<Row> rows = {};                 // that have begun
  UsesOfRanks uses_of_ranks = {};
  std::unordered_set<std::int32_t> earlier_ranks = {};  // that others have used later
  TimePs first = kNever;

  static Use use_of(const Row& row, TimePs zero, TimePs until) {
    const TimePs end = row.own().end == kNever ? kNever : row.own().end - zero;
    return {row.start() - zero, end < until ? end : kNever};
  }
  void note_rows(TimePs zero, TimePs until) {
    for (const Row& row : rows) {
      const Use use = use_of(row, zero, until);
      uses_of_ranks[row.rank()].push_back(use);
      first = std::min(first, use.start);
    }
  }
  UsesOfCables uses_of_cables(TimePs zero, TimePs until) const {
    UsesOfCables uses;
    for (const Row& row : rows) {
      const Use use = use_of(row, zero, until);
      for (const std::uint32_t cable : row.act->place->cables_of[row.member]) uses[cable].push_back(use);
    }
    return uses;
  }
  // Connections that have been used, as pairs of ranks.
  std::unordered_set<std::uint64_t> connections() const {
    std::unordered_set<std::uint64_t> used;
    const QueuePairs::State& state = checkpoint.play->state.hosts.queue_pairs;
    for (std::uint32_t id = 0; id < state.queue_pairs.size(); ++id) {
      const HostQueuePair& own = state.queue_pairs[id];
      const auto rank = static_cast<std::uint32_t>(checkpoint.place->ranks[index(own.rank)]),
                 peer = static_cast<std::uint32_t>(checkpoint.place->ranks[index(own.peer_rank)]);
      if (rank < peer && state.is_used(id)) used.insert(pair_key(rank, peer));
    }
    return used;
  }
  // The time of the latest service of a link of the whole network.
  TimePs served_at(std::uint32_t link) const {
    return checkpoint.play->state.links.served_at(checkpoint.place->part.link(link));
  }
  // It has used a link before all of some uses.
  bool uses_before(std::uint32_t link, const UsesOfCables& others) const {
    const auto found = others.find(link / 2);
    return uses(link) && (found == others.end() || has_left(link, first_of(found->second)));
  }
  // All that it has sent over a link of the whole network has come by a time.
  bool has_left(std::uint32_t link, TimePs by) const {
    const Port& port = checkpoint.play->state.links.ports[checkpoint.place->part.link(link)];
    return port.flying == 0 && port.waiting == 0 && port.free + port.delay <= by;
  }
  // `link`: of the whole network.
  bool uses(std::uint32_t link) const {
    const NetworkPart& part = checkpoint.place->part;
    return std::ranges::binary_search(part.links, link) &&
           checkpoint.play->state.links.is_used(part.link(link));
  }
};

// By their first starts. Empty: two have a host at the same time, or more than two have one.
std::vector<Part> parts_in_order(Part own, std::vector<Part> others);
// True where two parts have taken turns. On each link that both use, the packets of one had left before those
// of the other could come. So it is for uses before, too: else both would have been one component by then. At
// a host both have begun something.
bool take_turns(const EpisodeJob& job, const Part& one, const Part& other, TimePs zero);

}  // namespace genie::twin
