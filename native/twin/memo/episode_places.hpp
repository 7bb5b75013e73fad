// Places of episodes: the parts of the network that groups and pairs of ranks use.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "core/flat_map.hpp"
#include "twin/fabric/network_part.hpp"
#include "twin/memo/episode_job.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

struct EpisodePlace {
  std::uint32_t number = 0;
  std::vector<std::int32_t> ranks;  // ascending
  NetworkPart part;
  std::vector<std::uint32_t> cables;                  // half of the number of a link
  std::vector<std::vector<std::uint32_t>> cables_of;  // by rank: of its own paths
  std::size_t alike = 0;                              // number of those that are alike

  std::size_t place_of(std::int32_t rank) const;  // among its ranks
};

class EpisodePlaces {
 public:
  explicit EpisodePlaces(const EpisodeJob& job) : job_(&job), of_group_(job.shared->group_start.size()) {}

  // All links that collectives of a group may use; of messages between two ranks; of several places.
  const EpisodePlace& of_group(std::int32_t group, Simulator& simulator);
  const EpisodePlace& of_pair(std::int32_t one, std::int32_t other, Simulator& simulator);
  const EpisodePlace& of_all(std::vector<std::uint32_t> numbers);
  const EpisodePlace& at(std::uint32_t number) const { return places_[number]; }
  // The network of places that are alike.
  const Network& network_of(std::size_t alike) const { return networks_[alike]; }
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  std::int32_t host_of(const EpisodePlace& place, std::int32_t rank) const;

 private:
  using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;

  Pairs pairs_of(const std::vector<std::int32_t>& members, std::int32_t group) const;
  const EpisodePlace& add(std::vector<std::int32_t> ranks, const Pairs& pairs, Simulator& simulator);
  const EpisodePlace& add(std::vector<std::int32_t> ranks, std::vector<Pinned> paths);

  const EpisodeJob* job_;
  std::deque<EpisodePlace> places_;
  std::vector<std::uint32_t> of_group_;  // number + 1; 0: not yet known
  FlatMap<std::uint32_t> of_pair_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> of_all_;
  std::map<std::vector<std::int64_t>, std::size_t> known_;  // by description
  std::deque<Network> networks_;
  std::uint64_t memory_bytes_ = 0;  // about
};

}  // namespace genie::twin
