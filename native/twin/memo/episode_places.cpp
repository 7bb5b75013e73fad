#include "twin/memo/episode_places.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"

namespace genie::twin {
namespace {

template <class Number>
void sort_unique(std::vector<Number>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

std::size_t EpisodePlace::place_of(std::int32_t rank) const {
  return static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

const EpisodePlace& EpisodePlaces::of_group(std::int32_t group, Simulator& simulator) {
  std::uint32_t& known = of_group_[index(group)];
  if (known > 0) return places_[known - 1];
  const std::span<const std::int32_t> own = job_->members_of(group);
  const std::vector<std::int32_t> members(own.begin(), own.end());
  const EpisodePlace& place = add(members, pairs_of(members, group), simulator);
  known = place.number + 1;
  return place;
}

const EpisodePlace& EpisodePlaces::of_pair(std::int32_t one, std::int32_t other, Simulator& simulator) {
  const auto [low, high] = std::minmax(one, other);
  std::uint32_t& known =
      of_pair_[pair_key(static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high))];
  if (known > 0) return places_[known - 1];
  const EpisodePlace& place = add({low, high}, {{low, high}}, simulator);
  known = place.number + 1;
  return place;
}

const EpisodePlace& EpisodePlaces::of_all(std::vector<std::uint32_t> numbers) {
  sort_unique(numbers);
  if (numbers.size() == 1) return places_[numbers.front()];
  const auto [known, is_new] = of_all_.try_emplace(numbers);
  if (!is_new) return places_[known->second];
  std::vector<std::int32_t> ranks;
  std::vector<Pinned> paths;
  for (const std::uint32_t number : numbers) {
    const EpisodePlace& one = places_[number];
    ranks.insert(ranks.end(), one.ranks.begin(), one.ranks.end());
    paths.insert(paths.end(), one.part.paths.begin(), one.part.paths.end());
  }
  const EpisodePlace& place = add(std::move(ranks), std::move(paths));
  known->second = place.number;
  return place;
}

std::int32_t EpisodePlaces::host_of(const EpisodePlace& place, std::int32_t rank) const {
  return place.part.node(job_->host_of_rank[index(rank)]);
}

// Ranks that exchange messages in collectives of the group, the lower first.
EpisodePlaces::Pairs EpisodePlaces::pairs_of(const std::vector<std::int32_t>& members,
                                             std::int32_t group) const {
  Pairs pairs;
  for (const std::int32_t rank : members) {
    const RankPlan& plan = *job_->plans[index(rank)];
    for (std::size_t at = 0; at < plan.bindings.size(); ++at) {
      const Binding& own = plan.bindings[at];
      if (!plan.table->of_collective[at] || own.group != group || own.template_id < 0) continue;
      const StepTemplate& steps = job_->shared->templates[index(own.template_id)];
      for (const auto* peers : {&steps.send_peers, &steps.receive_peers}) {
        for (const std::int32_t value : *peers) {
          const std::int32_t peer = members[index(steps.position_of_peer(value, own.position))];
          if (peer != rank) pairs.emplace_back(std::min(rank, peer), std::max(rank, peer));
        }
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

const EpisodePlace& EpisodePlaces::add(std::vector<std::int32_t> ranks, const Pairs& pairs,
                                       Simulator& simulator) {
  const Links& links = simulator.links();
  QueuePairs& queue_pairs = simulator.hosts().queue_pairs();
  std::vector<Pinned> paths;
  for (const auto& [low, high] : pairs) {
    for (const auto& [from, to] : {std::pair(low, high), std::pair(high, low)}) {
      paths.push_back({.from = job_->host_of_rank[index(from)],
                       .to = job_->host_of_rank[index(to)],
                       .links = links.path_from(queue_pairs[queue_pairs.first(from, to)].route),
                       .port = -1});
    }
  }
  return add(std::move(ranks), std::move(paths));
}

const EpisodePlace& EpisodePlaces::add(std::vector<std::int32_t> ranks, std::vector<Pinned> paths) {
  EpisodePlace& place = places_.emplace_back();
  place.number = static_cast<std::uint32_t>(places_.size()) - 1;
  place.ranks = std::move(ranks);
  sort_unique(place.ranks);
  NetworkPart& part = place.part;
  part.paths = std::move(paths);
  const auto ends_of = [](const Pinned& path) { return std::pair(path.from, path.to); };
  std::ranges::sort(part.paths, {}, ends_of);
  const auto same = std::ranges::unique(part.paths, {}, ends_of);
  part.paths.erase(same.begin(), same.end());
  for (const Pinned& path : part.paths) {
    for (const std::uint32_t link : path.links) {
      place.cables.push_back(link / 2);
      if (job_->network->link_source[link] >= job_->network->hosts)
        part.switches.push_back(job_->network->link_source[link]);
    }
  }
  for (const std::int32_t rank : place.ranks) part.hosts.push_back(job_->host_of_rank[index(rank)]);
  sort_unique(part.hosts);
  sort_unique(part.switches);
  sort_unique(place.cables);
  for (const std::uint32_t cable : place.cables)
    part.links.insert(part.links.end(), {2 * cable, 2 * cable + 1});
  place.cables_of.resize(place.ranks.size());
  std::map<std::int32_t, std::size_t> at_host;
  for (std::size_t at = 0; at < place.ranks.size(); ++at)
    at_host[job_->host_of_rank[index(place.ranks[at])]] = at;
  for (const Pinned& path : part.paths) {
    for (const std::int32_t host : {path.from, path.to}) {
      for (const std::uint32_t link : path.links) place.cables_of[at_host[host]].push_back(link / 2);
    }
  }
  for (std::vector<std::uint32_t>& cables : place.cables_of) sort_unique(cables);
  Network own = twin::network_of(part, *job_->network);
  std::vector<std::int64_t> words = describe(own);
  for (const std::int32_t rank : place.ranks) words.push_back(host_of(place, rank));
  memory_bytes_ += words.size() * sizeof(words.front());
  for (const Pinned& path : part.paths)
    memory_bytes_ += sizeof(path) + 3 * path.links.size() * sizeof(std::uint32_t);
  const auto [known, is_new] = known_.try_emplace(std::move(words), networks_.size());
  if (is_new) networks_.push_back(std::move(own));
  place.alike = known->second;
  return place;
}

}  // namespace genie::twin
