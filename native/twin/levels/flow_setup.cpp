// Set-up of level flow, before its first event and when routes change: queue pairs, their links and
// latencies.
#include <algorithm>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"
#include "twin/fabric/frames.hpp"
#include "twin/fabric/paths.hpp"
#include "twin/levels/flow_simulator.hpp"

namespace genie::twin {
namespace {

// Of the network's links, then of one from each host to itself, as fast as its port.
std::vector<std::int64_t> link_rates(const Network& network) {
  std::vector<std::int64_t> rates = network.link_rate_bps;
  rates.resize(rates.size() + index(network.hosts), 0);
  for (std::size_t link = 0; link < network.link_source.size(); ++link) {
    if (network.link_source[link] < network.hosts)
      rates[network.link_source.size() + index(network.link_source[link])] = network.link_rate_bps[link];
  }
  return rates;
}

// Of a link that is a NIC's port: in full packets, as fast as line and NIC let it.
double capacity_of(const Network& network, std::uint32_t mtu_bytes, std::uint32_t link,
                   std::int64_t rate_bps) {
  const double line = bytes_per_ps(rate_bps);
  if (!network.nic.limits_ports() || !network.nic.is_port(link)) return line;
  const TimePs time = network.nic.occupancy(mtu_bytes);
  const double full = mtu_bytes + frame_header_bytes(network, roce::Opcode::kWriteMiddle);
  return time == 0 ? line : std::min(line, full / static_cast<double>(time));
}

std::vector<double> capacities(const Network& network, std::uint32_t mtu_bytes) {
  std::vector<double> all;
  for (const std::int64_t rate : link_rates(network))
    all.push_back(capacity_of(network, mtu_bytes, static_cast<std::uint32_t>(all.size()), rate));
  return all;
}

}  // namespace

FlowSimulator::FlowSimulator(const Network& network, const FlowConfig& config, const SharedPlan& shared,
                             const std::vector<const RankPlan*>& plans,
                             std::vector<std::int32_t> host_of_rank, std::uint64_t seed)
    : network_(&network),
      config_(config),
      host_of_rank_(std::move(host_of_rank)),
      seed_(seed),
      sharing_(capacities(network, config.mtu_bytes), config.rule),
      circuits_(config.circuits, network.hosts),
      routes_(&network.routes.front()),
      rate_bps_(link_rates(network)),
      planned_(shared, plans, config.mtu_bytes) {
  walkers_.reserve(plans.size());
  for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  ready_.resize(plans.size());
  use_.resize(rate_bps_.size());
}

void FlowSimulator::connect_all() {
  const std::vector<std::uint64_t> pairs = connected_pairs(walkers_);
  const std::uint32_t each = config_.spread.queue_pairs;
  for (std::uint32_t at = 0; at < pairs.size(); ++at) first_of_[pairs[at]] = at * each;
  queue_pairs_.resize(pairs.size() * each);
  for (const std::uint64_t pair : pairs) {
    const auto rank = static_cast<std::uint32_t>(pair >> 32), peer = static_cast<std::uint32_t>(pair);
    const std::uint32_t first = *first_of_.find(pair), back = *first_of_.find(pair_key(peer, rank));
    if (each > 1 || connections_.empty()) connections_.emplace_back(config_.spread);
    for (std::uint32_t number = 0; number < each; ++number) {
      QueuePair& own = queue_pairs_[first + number];
      own.rank = static_cast<std::int32_t>(rank);
      own.peer_rank = static_cast<std::int32_t>(peer);
      own.peer = back + number;
      own.number = number;
      own.connection = static_cast<std::uint32_t>(connections_.size()) - 1;
      own.port = source_port(network_->source_ports, seed_, each,
                             {own.rank, own.peer_rank, first + number, own.peer, number});
      if (circuits_.used()) own.circuit = circuits_.of(host_of(own.rank), host_of(own.peer_rank));
      while (circuits_.used() && circuit_uses_.size() <= own.circuit) {
        const double rate = bytes_per_ps(config_.circuits.rate_bps);
        circuit_uses_.push_back({.links = {sharing_.add_link(rate), sharing_.add_link(rate)}, .waiting = {}});
      }
      find_path(*network_, *routes_, host_of(own.rank), host_of(own.peer_rank), own.port, own.path);
      own.cut = own.path.empty();
      own.delayed = network_->nic.delays_messages() && !own.cut && network_->nic.is_port(own.path.front());
    }
  }
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    sharing_.add({});
    set_path(id);
  }
}

TimePs FlowSimulator::serialisation(std::uint32_t link, std::uint32_t size_bytes) const {
  return rate_bps_[link] <= 0 ? 0 : serialisation_ps(size_bytes, rate_bps_[link]);
}

double FlowSimulator::capacity(std::uint32_t link) const {
  return capacity_of(*network_, config_.mtu_bytes, link, rate_bps_[link]);
}

// Latencies and the flow of a queue pair whose path is known.
void FlowSimulator::set_path(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  const std::vector<std::uint32_t>& back = queue_pairs_[own.peer].path;
  const std::uint32_t full = config_.mtu_bytes + frame_header_bytes(*network_, roce::Opcode::kWriteMiddle);
  const std::uint32_t credit =
      static_cast<std::uint32_t>(kCreditBytes) + frame_header_bytes(*network_, roce::Opcode::kWriteOnly);
  const std::uint32_t acknowledge = frame_header_bytes(*network_, roce::Opcode::kAcknowledge);
  const auto links = static_cast<std::uint32_t>(network_->links());
  const auto delay = [&](const std::vector<std::uint32_t>& path) {
    TimePs sum = 0;
    for (const std::uint32_t link : path) sum += link < links ? network_->link_delay_ps[link] : 0;
    return sum;
  };
  const auto sending = [&](const std::vector<std::uint32_t>& path, std::uint32_t size_bytes) {
    TimePs sum = 0;
    for (const std::uint32_t link : path) sum += serialisation(link, size_bytes);
    return sum;
  };
  const TimePs there = network_->packet_latency_ps[index(host_of(own.peer_rank))];
  const TimePs here = network_->packet_latency_ps[index(host_of(own.rank))];
  own.delay = delay(own.path) + there;
  own.hops_byte_ps = own.slowest_byte_ps = 0;
  for (const std::uint32_t link : own.path) {
    const double byte_ps = rate_bps_[link] <= 0 ? 0 : 1 / bytes_per_ps(rate_bps_[link]);
    own.hops_byte_ps += byte_ps;
    own.slowest_byte_ps = std::max(own.slowest_byte_ps, byte_ps);
  }
  own.credit_latency = own.delay + sending(own.path, credit);
  own.ack_latency = delay(back) + sending(back, acknowledge) + here;
  double limit = FlowSharing::kUnlimited;
  const TimePs round_trip = own.delay + sending(own.path, full) + own.ack_latency;
  if (config_.window_packets > 0 && round_trip > 0)
    limit = static_cast<double>(config_.window_packets) * full / static_cast<double>(round_trip);
  own.shares = shares_of(own);
  std::vector<LinkShare> shared;
  for (const LinkShare& part : own.shares) {
    // A link without a limit needs no sharing, but it may fail.
    if (part.link >= rate_bps_.size() || rate_bps_[part.link] != 0 || !network_->changes.empty() ||
        (network_->nic.limits_ports() && network_->nic.is_port(part.link)))
      shared.push_back(part);
  }
  sharing_.move(id, shared, own.cut ? 0 : limit);
}

// Where switches spread packets, each of several equally short paths has its part of them.
std::vector<LinkShare> FlowSimulator::shares_of(const QueuePair& own) const {
  const std::int32_t from = host_of(own.rank), to = host_of(own.peer_rank);
  const bool spread = network_->balance != Balance::kPath && network_->balance != Balance::kFlowlet;
  if (circuits_.used() && from != to) return {{circuit_uses_[own.circuit].links[from < to ? 0 : 1], 1}};
  std::vector<LinkShare> shares;
  const auto add = [&](std::uint32_t link, double share) {
    const auto known =
        std::find_if(shares.begin(), shares.end(), [&](const LinkShare& part) { return part.link == link; });
    if (known == shares.end()) {
      shares.push_back({link, share});
    } else {
      known->share += share;
    }
  };
  if (from == to || !spread || pinned_path(*network_, from, to) != nullptr) {
    for (const std::uint32_t link : own.path) add(link, 1);
    return shares;
  }
  std::vector<std::pair<std::int32_t, double>> at{{from, 1.0}};
  std::vector<std::uint32_t> choices;
  while (!at.empty()) {
    std::vector<std::pair<std::int32_t, double>> next;
    for (const auto& [node, share] : at) {
      choices.clear();
      network_->each_next_hop(*routes_, node, to, [&](std::uint32_t link) { choices.push_back(link); });
      for (const std::uint32_t link : choices) {
        const double part = share / static_cast<double>(choices.size());
        const std::int32_t target = network_->link_target[link];
        add(link, part);
        if (target == to) continue;
        const auto known =
            std::find_if(next.begin(), next.end(), [&](const auto& one) { return one.first == target; });
        if (known == next.end()) {
          next.emplace_back(target, part);
        } else {
          known->second += part;
        }
      }
    }
    at = std::move(next);
  }
  return shares;
}

}  // namespace genie::twin
