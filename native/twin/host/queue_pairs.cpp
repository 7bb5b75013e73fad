#include "twin/host/queue_pairs.hpp"

#include <algorithm>
#include <utility>

namespace genie::twin {

QueuePairs::QueuePairs(const Network& network, const roce::QueuePairConfig& config,
                       const roce::SpreadConfig& spread, std::uint64_t seed)
    : network_(&network),
      config_(std::make_shared<const roce::QueuePairConfig>(config)),
      sprays_(config.spray > 1),
      spread_(spread),
      seed_(seed) {}

LossPlan& QueuePairs::loss(std::int32_t source, std::int32_t target) {
  LossPlan*& plan = loss_of_[key_of(source, target)];
  if (plan == nullptr) plan = &loss_plans_.emplace_back(source, target);
  return *plan;
}

void QueuePairs::connect(const RankDriver& ranks, Nics& nics, Links& links) {
  const std::vector<std::uint64_t> pairs = connected_pairs(ranks.walkers());
  std::uint32_t first = 0;
  for (const std::uint64_t pair : pairs) {
    first_of_[pair] = first;
    first += spread_.queue_pairs;
  }
  queue_pairs_.reserve(first);
  for (const std::uint64_t pair : pairs)
    connect_pair(static_cast<std::int32_t>(pair >> 32), static_cast<std::int32_t>(pair & 0xFFFFFFFFu), ranks,
                 nics, links);
  assert(size() == first);
}

// The queue pairs of a rank towards a peer.
void QueuePairs::connect_pair(std::int32_t rank, std::int32_t peer, const RankDriver& ranks, Nics& nics,
                              Links& links) {
  const std::uint32_t own_first = first(rank, peer), peer_first = first(peer, rank);
  assert(own_first == size());
  const bool has_choice = spread_.queue_pairs > 1;
  if (has_choice || connections_.empty()) connections_.emplace_back(spread_);
  std::vector<std::uint32_t> path;
  for (std::uint32_t number = 0; number < spread_.queue_pairs; ++number) {
    const Ends ends{rank, peer, own_first + number, peer_first + number, number};
    HostQueuePair own{.peer = ends.other,
                      .port = source_port(network_->source_ports, seed_, spread_.queue_pairs, ends),
                      .connection = static_cast<std::uint32_t>(connections_.size()) - 1,
                      .queue_pair = roce::QueuePair(*config_, ends.own, 0, 0),
                      .rank = rank,
                      .peer_rank = peer,
                      .number = number};
    const std::int32_t from = ranks.host_of(rank), to = ranks.host_of(peer);
    find_path(*network_, links.routes(), from, to, own.port, path);
    own.route = links.add_path(path);
    own.is_free = network_->balance != Balance::kPath && pinned_path(*network_, from, to) == nullptr;
    const std::uint32_t link = links.link_at(own.route);
    own.nic = nics.take(*network_, link, links.retries(link));
    own.on_port = nics[own.nic].add(ends.own);
    if (config_->spray > 1) {
      own.sprayed = static_cast<std::uint32_t>(sprayed_ports_.size());
      const std::vector<std::uint16_t> ports =
          sprayed_ports(network_->source_ports, seed_, config_->spray, ends);
      sprayed_ports_.insert(sprayed_ports_.end(), ports.begin(), ports.end());
      sprayed_routes_.resize(sprayed_ports_.size(), own.route);
      set_sprayed_routes(own, ranks, links);
    }
    if (LossPlan** loss = loss_of_.find(key_of(rank, peer))) own.loss = *loss;
    queue_pairs_.push_back(std::move(own));
  }
}

// True where it sends by another port from now on.
bool QueuePairs::reroute_one(std::uint32_t id, const RankDriver& ranks, Nics& nics, Links& links) {
  HostQueuePair& own = queue_pairs_[id];
  std::vector<std::uint32_t> path;
  find_path(*network_, links.routes(), ranks.host_of(own.rank), ranks.host_of(own.peer_rank), own.port, path);
  if (path.empty()) return false;
  const std::uint32_t nic = nics.take(*network_, path.front(), links.retries(path.front()));
  if (!links.is_path(own.route, path)) own.route = links.add_path(path);
  if (config_->spray > 1) set_sprayed_routes(own, ranks, links);
  if (nic == own.nic) return false;
  nics[own.nic].move_away(own.on_port);
  own.nic = nic;
  own.on_port = nics[nic].add(id);
  return true;
}

// A sprayed queue pair's source ports have paths of their own, all from the host's port that its route begins
// with.
void QueuePairs::set_sprayed_routes(const HostQueuePair& own, const RankDriver& ranks, Links& links) {
  std::vector<std::uint32_t> path;
  for (std::uint32_t place = 0; place < config_->spray; ++place) {
    find_path(*network_, links.routes(), ranks.host_of(own.rank), ranks.host_of(own.peer_rank),
              sprayed_ports_[own.sprayed + place], path,
              {.place = static_cast<std::int32_t>(place), .first_link = links.link_at(own.route)});
    std::uint32_t& route = sprayed_routes_[own.sprayed + place];
    if (!path.empty() && !links.is_path(route, path)) route = links.add_path(path);
  }
}

std::uint32_t QueuePairs::first_of(std::int32_t rank) const {
  const auto first = std::ranges::lower_bound(queue_pairs_, rank, {}, &HostQueuePair::rank);
  return static_cast<std::uint32_t>(first - queue_pairs_.begin());
}

std::vector<std::uint32_t> QueuePairs::routes_of(std::uint32_t id) const {
  std::vector<std::uint32_t> routes;
  for (const std::uint32_t end : {id, queue_pairs_[id].peer}) {
    routes.push_back(queue_pairs_[end].route);
    for (std::uint32_t place = 0; config_->spray > 1 && place < config_->spray; ++place)
      routes.push_back(sprayed_routes_[queue_pairs_[end].sprayed + place]);
  }
  return routes;
}

void QueuePairs::set_part_handles(Fold& fold, std::uint32_t id, RankDriver& ranks) {
  if (spread_.is_parted()) return fold.set_handles(&connection_of(queue_pairs_[id]).part_handles());
  ranks.set_handles(fold, queue_pairs_[id].rank);
}

void QueuePairs::fold(Fold& fold, std::uint32_t id, RankDriver& ranks, PacketBases& bases) {
  static_assert(has_size<HostQueuePair>(704));
  static_assert(has_size<QueuePairs>(344));
  HostQueuePair& own = queue_pairs_[id];
  fold.at_queue_pair(id, own.peer);
  fold.exact(own.route, own.nic, own.telemetry != 0);
  if (own.number == 0 && spread_.is_parted()) connection_of(own).fold_base(fold);
  set_part_handles(fold, id, ranks);
  const roce::QueuePair::Bases found = own.queue_pair.fold(fold);
  PacketBases::Bases& at_own = bases.of(id);
  at_own.expected_psn = found.expected_psn;
  at_own.unacked_psn = found.unacked_psn;
  bases.of(own.peer).peer_msn = found.msn;
  if (own.number > 0 || spread_.queue_pairs == 1) return;
  ranks.set_handles(fold, own.rank);
  connection_of(own).fold(fold);
}

std::vector<std::uint32_t> QueuePairs::numbers_of(const State& earlier, const Renumbering& to) const {
  std::vector<std::uint32_t> numbers;
  for (const HostQueuePair& own : earlier.queue_pairs) {
    const std::uint32_t* const known =
        first_of_.find(key_of(to.ranks[index(own.rank)], to.ranks[index(own.peer_rank)]));
    numbers.push_back(known == nullptr ? Renumbering::kNone : *known);
  }
  return numbers;
}

// Those that are used, and here by none that has used them later.
std::vector<std::uint8_t> QueuePairs::latest_of(const State& earlier, const Renumbering& to) const {
  std::vector<std::uint8_t> latest(earlier.queue_pairs.size(), 0);
  for (std::uint32_t id = 0; id < earlier.queue_pairs.size(); ++id) {
    if (!earlier.is_used(id)) continue;
    latest[id] = to.is_latest(earlier.queue_pairs[id].rank) || !is_used(to.queue_pairs[id]);
  }
  return latest;
}

void QueuePairs::take_over(const State& earlier, const Renumbering& to,
                           const std::vector<std::uint8_t>& latest) {
  assert(spread_.queue_pairs == 1 && config_ == earlier.config);
  for (std::uint32_t id = 0; id < earlier.queue_pairs.size(); ++id) {
    if (!earlier.is_used(id)) continue;
    const HostQueuePair& from = earlier.queue_pairs[id];
    assert(to.queue_pairs[id] != Renumbering::kNone);
    roce::QueuePair& own = queue_pairs_[to.queue_pairs[id]].queue_pair;
    if (latest[id] == 0) {
      own.add_counters(from.queue_pair);
      continue;
    }
    own.take_over(from.queue_pair, [&](std::uint64_t handle) {
      return Walker::renumbered(handle, to.rows[index(from.rank)]);
    });
  }
}

void QueuePairs::restore(const State& earlier) {
  assert(spread_.queue_pairs == 1 && config_ == earlier.config && size() == earlier.queue_pairs.size());
  for (std::uint32_t id = 0; id < size(); ++id) {
    assert(queue_pairs_[id].peer == earlier.queue_pairs[id].peer);
    assert(queue_pairs_[id].route == earlier.queue_pairs[id].route);
    queue_pairs_[id].queue_pair = earlier.queue_pairs[id].queue_pair;
  }
}

Packet QueuePairs::renumbered(Packet packet, const State& earlier, const Renumbering& to) const {
  const std::uint32_t sender = earlier.queue_pairs[packet.connection].peer;
  packet.route += queue_pairs_[to.queue_pairs[sender]].route - earlier.queue_pairs[sender].route;
  packet.connection = to.queue_pairs[packet.connection];
  return packet;
}

std::int64_t QueuePairs::allowed_bps(std::uint32_t first, const Nics& nics, const Links& links,
                                     TimePs now) const {
  constexpr std::int64_t kUnlimited = congestion::Controller::kUnlimited;
  const HostQueuePair *const begin = &queue_pairs_[first], *const end = begin + per_pair();
  const auto sum = [](std::int64_t a, std::int64_t b) { return b < kUnlimited - a ? a + b : kUnlimited; };
  std::int64_t pairs_bps = 0, ports_bps = 0;
  for (const HostQueuePair* it = begin; it != end; ++it) {
    const std::int64_t rate_bps = links.rate_bps(nics[it->nic].link());
    const std::int64_t port_bps = rate_bps > 0 ? rate_bps : kUnlimited;
    pairs_bps = sum(pairs_bps, std::min(it->queue_pair.allowed_bps(now), port_bps));
    if (std::none_of(begin, it, [&](const HostQueuePair& other) { return other.nic == it->nic; }))
      ports_bps = sum(ports_bps, port_bps);
  }
  return std::min(pairs_bps, ports_bps);
}

}  // namespace genie::twin
