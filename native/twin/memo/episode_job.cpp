#include "twin/memo/episode_job.hpp"

#include <algorithm>
#include <utility>

#include "core/index.hpp"

namespace genie::twin {

EpisodeJob::EpisodeJob(const Network& own_network, const roce::QueuePairConfig& own_config,
                       const SharedPlan& own_shared, std::vector<const RankPlan*> own_plans,
                       std::vector<std::int32_t> own_hosts)
    : network(&own_network),
      shared(&own_shared),
      plans(std::move(own_plans)),
      host_of_rank(std::move(own_hosts)),
      rank_of_host(index(own_network.hosts), -1) {
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank)
    rank_of_host[index(host_of_rank[rank])] = static_cast<std::int32_t>(rank);
  roce::QueuePairConfig paced = own_config;
  paced.pacing_unit = network->serialisation_unit;
  config = std::make_shared<const roce::QueuePairConfig>(paced);
}

std::span<const std::int32_t> EpisodeJob::members_of(std::int32_t group) const {
  const std::int64_t first = shared->group_start[index(group)], end = shared->group_start[index(group) + 1];
  return {shared->group_members.data() + first, static_cast<std::size_t>(end - first)};
}

std::string EpisodeJob::problem(const roce::SpreadConfig& spread) const {
  using congestion::Control;
  const Control control = config->congestion.control;
  if (control != Control::kNone && control != Control::kDcqcn)
    return "congestion controls other than DCQCN keep what they have learned";
  if (spread.queue_pairs > 1 || config->spray > 1 || network->balance != Balance::kPath)
    return "packets between two ranks take several paths";
  if (!network->changes.empty()) return "the network changes";
  if (network->cut_through) return "switches cut through, which depends on all of their ports";
  if (network->strict_classes != 0xFF) return "weighted classes keep their turns while a link is idle";
  if (std::ranges::any_of(network->link_errors,
                          [](const LinkErrors& it) { return it.chance > 0 || it.round_trip >= 0; }))
    return "links corrupt frames";
  if (std::ranges::any_of(network->link_burst_bytes, [](std::int64_t bytes) { return bytes > 0; }))
    return "token buckets fill while a link is idle";
  const auto is_positive = [](TimePs time) { return time > 0; };
  if (network->doorbell_latency > 0 || std::ranges::any_of(network->message_latency_ps, is_positive) ||
      network->nic.delays_messages() || network->nic.limits_ports())
    return "hosts or their NICs take time for messages";
  std::vector<std::int32_t> hosts = host_of_rank;
  std::sort(hosts.begin(), hosts.end());
  if (std::ranges::adjacent_find(hosts) != hosts.end()) return "ranks share a host";
  return "";
}

}  // namespace genie::twin
