// Queue pairs of all ranks: their connections, and their paths through the network.
#pragma once
#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/flat_map.hpp"
#include "core/loss.hpp"
#include "core/mix.hpp"
#include "roce/connection.hpp"
#include "roce/queue_pair.hpp"
#include "twin/fabric/network.hpp"
#include "twin/fabric/paths.hpp"
#include "twin/host/nic.hpp"
#include "twin/host/rank_driver.hpp"
#include "twin/kernel/huge_pages.hpp"
#include "twin/kernel/renumbering.hpp"
#include "twin/network/links.hpp"
#include "twin/network/packet_bases.hpp"

namespace genie::twin {

struct alignas(64) HostQueuePair {  // the fields of every packet come first, beside the queue pair's own
  std::uint32_t peer = 0;           // queue pair at the other end
  std::uint32_t route = 0;          // of its packets: place of the first link
  std::uint32_t nic = 0, on_port = 0;
  std::uint16_t port = 0;  // UDP source port
  bool is_free = false;    // switches pick its data's way
  LossPlan* loss = nullptr;
  std::uint32_t telemetry = 0;   // of the newest data, for its acknowledgement
  std::uint32_t connection = 0;  // number among all connections
  roce::QueuePair queue_pair;
  std::int32_t rank = 0, peer_rank = 0;
  std::uint32_t number = 0;   // among those to this peer
  std::uint32_t sprayed = 0;  // its first among sprayed routes and ports

  // Early, what its next packet will touch: ranks with many connections find none of them in the cache.
  void fetch() const {
    const char* const lines = reinterpret_cast<const char*>(this);
    __builtin_prefetch(lines, 1);
    for (unsigned line = 4; line < 8; ++line) __builtin_prefetch(lines + 64 * line, 1);
  }
};

class QueuePairs {
 public:
  QueuePairs(const Network& network, const roce::QueuePairConfig& config, const roce::SpreadConfig& spread,
             std::uint64_t seed);

  // Loses data packets from rank `source` to rank `target`: call before connect.
  LossPlan& loss(std::int32_t source, std::int32_t target);
  // Queue pairs at an instant. They refer to the configuration.
  struct State {
    std::shared_ptr<const roce::QueuePairConfig> config;
    std::vector<HostQueuePair> queue_pairs;

    // One end of its connection has been given a message, or packets have come.
    bool is_used(std::uint32_t id) const {
      return queue_pairs[id].queue_pair.is_used() || queue_pairs[queue_pairs[id].peer].queue_pair.is_used();
    }
  };
  void keep(State& state) const {
    state.config = config_;
    state.queue_pairs.assign(queue_pairs_.begin(), queue_pairs_.end());
  }
  // Before connect: the configuration of others from whose state they are going to go on.
  void share_config(std::shared_ptr<const roce::QueuePairConfig> config) { config_ = std::move(config); }
  // After connect, of connections that are used. Each rank has one queue pair towards a peer, on one path.
  // `latest`: by number there, what latest_of says before.
  void take_over(const State& earlier, const Renumbering& to, const std::vector<std::uint8_t>& latest);
  std::vector<std::uint8_t> latest_of(const State& earlier, const Renumbering& to) const;
  // After connect, of others with the same numbers.
  void restore(const State& earlier);
  // Their numbers here, kNone where there is no such connection; the same for a packet under way.
  std::vector<std::uint32_t> numbers_of(const State& earlier, const Renumbering& to) const;
  Packet renumbered(Packet packet, const State& earlier, const Renumbering& to) const;

  // As State says.
  bool is_used(std::uint32_t id) const {
    return queue_pairs_[id].queue_pair.is_used() || queue_pairs_[queue_pairs_[id].peer].queue_pair.is_used();
  }

  // Those of all ranks that exchange messages, by rank, then by peer, each on a NIC port.
  void connect(const RankDriver& ranks, Nics& nics, Links& links);
  // They go by the routes that hold now; those that have no way keep to their old one. What is under way
  // already stays on it. moved(queue pair) for each that sends by another port from now on.
  template <class Moved>
  void reroute(const RankDriver& ranks, Nics& nics, Links& links, Moved moved) {
    for (std::uint32_t id = 0; id < size(); ++id) {
      if (reroute_one(id, ranks, nics, links)) moved(id);
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(queue_pairs_.size()); }
  HostQueuePair& operator[](std::uint32_t id) { return queue_pairs_[id]; }
  const HostQueuePair& operator[](std::uint32_t id) const { return queue_pairs_[id]; }
  // The first queue pair of a rank towards a peer; a pair's queue pairs follow one another.
  std::uint32_t first(std::int32_t rank, std::int32_t peer) {
    const std::uint32_t* const found = first_of_.find(key_of(rank, peer));
    assert(found != nullptr);
    return *found;
  }
  // The first queue pair of a rank: those of a rank follow one another.
  std::uint32_t first_of(std::int32_t rank) const;
  std::uint32_t per_pair() const { return spread_.queue_pairs; }
  roce::Connection& connection_of(const HostQueuePair& own) { return connections_[own.connection]; }
  // By which a packet goes, whose source port has the place `port` among its queue pair's.
  std::uint32_t route(const HostQueuePair& own, std::uint32_t port) const {
    return sprays_ ? sprayed_routes_[own.sprayed + port] : own.route;
  }
  // The routes of a queue pair and of its answers.
  std::vector<std::uint32_t> routes_of(std::uint32_t id) const;
  // fn(route) holds for each of these, where packets are not sprayed.
  template <class Function>
  bool all_routes(std::uint32_t id, Function fn) const {
    assert(config_->spray <= 1);
    return fn(queue_pairs_[id].route) && fn(queue_pairs_[queue_pairs_[id].peer].route);
  }
  bool has_losses() const { return !loss_plans_.empty(); }
  // Fold of one and of its connection. Gives the bases of what is under way to both of its ends.
  void fold(Fold& fold, std::uint32_t id, RankDriver& ranks, PacketBases& bases);
  // Handles that follow are those of what its connection gives to a queue pair: parts of messages have
  // handles of their connection.
  void set_part_handles(Fold& fold, std::uint32_t id, RankDriver& ranks);
  // The rate at which congestion control lets a pair's queue pairs send together, at most that of their
  // ports. `first`: of the pair.
  std::int64_t allowed_bps(std::uint32_t first, const Nics& nics, const Links& links, TimePs now) const;

 private:
  static std::uint64_t key_of(std::int32_t rank, std::int32_t peer) {
    return pair_key(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(peer));
  }
  void connect_pair(std::int32_t rank, std::int32_t peer, const RankDriver& ranks, Nics& nics, Links& links);
  bool reroute_one(std::uint32_t id, const RankDriver& ranks, Nics& nics, Links& links);
  void set_sprayed_routes(const HostQueuePair& own, const RankDriver& ranks, Links& links);

  const Network* network_;
  std::shared_ptr<const roce::QueuePairConfig> config_;
  bool sprays_;  // each packet looks at it
  roce::SpreadConfig spread_;
  std::uint64_t seed_;
  std::vector<HostQueuePair, HugeAllocator<HostQueuePair>> queue_pairs_;
  FlatMap<std::uint32_t> first_of_;  // (rank, peer) -> first queue pair
  // Of each rank towards each peer; one for all where messages have no choice of queue pairs.
  std::deque<roce::Connection> connections_;
  // Of each queue pair as many as its source ports, where these are several.
  std::vector<std::uint32_t> sprayed_routes_;
  std::vector<std::uint16_t> sprayed_ports_;
  std::deque<LossPlan> loss_plans_;
  FlatMap<LossPlan*> loss_of_;
};

}  // namespace genie::twin
