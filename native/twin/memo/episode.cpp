#include "twin/memo/episode.hpp"

#include <cassert>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {

std::size_t Episode::memory_bytes() const {
  std::size_t bytes = sizeof(Episode) + links.size() * sizeof(LinkCounters) +
                      cable_rests.size() * sizeof(TimePs) + services.size() * sizeof(InputService);
  for (const std::vector<Node>& of_rank : nodes) {
    bytes += sizeof(of_rank) + sizeof(roce::QueuePairCounters);
    for (const Node& node : of_rank)
      bytes += sizeof(Node) + node.sends.size() * sizeof(SendRecord) +
               node.receives.size() * sizeof(ReceiveRecord);
  }
  return bytes;
}

void EpisodePlan::add_rank(std::int32_t host, const std::vector<Node>& nodes) {
  auto table = std::make_shared<NodeTable>();
  auto own = std::make_unique<RankPlan>();
  table->dep_start = {0};
  for (const Node& node : nodes) {
    table->kind.push_back(static_cast<std::uint8_t>(node.kind));
    table->slot.push_back(-1);
    table->duration_ps.push_back(0);
    table->release_ps.push_back(node.after >= 0 ? 0 : node.start);
    table->size_bytes.push_back(node.size_bytes);
    table->tag.push_back(node.origin.act);
    table->binding.push_back(static_cast<std::int32_t>(own->bindings.size()));
    if (node.after >= 0) table->deps.push_back(node.after);
    table->dep_start.push_back(static_cast<std::int32_t>(table->deps.size()));
    own->bindings.push_back(node.binding);
  }
  [[maybe_unused]] const std::string problem = table->prepare();
  assert(problem.empty());
  own->rank = static_cast<std::int32_t>(ranks.size());
  own->table = std::move(table);
  ranks.push_back(std::move(own));
  hosts.push_back(host);
  std::vector<std::uint8_t>& watched = is_watched.emplace_back();
  std::vector<Origin>& own_origins = origins.emplace_back();
  for (const Node& node : nodes) own_origins.push_back(node.origin);
  for (const Node& node : nodes) watched.push_back(!node.origin.is_by_timer && node.after < 0);
}

}  // namespace genie::twin
