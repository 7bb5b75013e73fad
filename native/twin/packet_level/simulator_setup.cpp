// What is settled before the first event: processes and threads, queue pairs and their paths.
#include <algorithm>
#include <numeric>
#include <utility>

#include "core/index.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {
// Nodes whose links leave no time between them are one process.
void Simulator::divide() {
  constexpr TimePs kLeast = 10 * kPsPerNs;
  // A switch's arrivals of a window are told apart by 64 bits: those that time does not take number them.
  constexpr TimePs kWindowMax = (TimePs{1} << 32) - 1;
  std::vector<Cable> cables;
  for (std::uint32_t link = 0; link < links_.links(); ++link)
    cables.push_back({links_.source_of(link), links_.target_of(link), links_.lookahead(link) < kLeast});
  Regions found = regions_of(network_->hosts, network_->nodes, cables);
  process_of_node_ = std::move(found.process_of_node);
  turns_ = std::move(found.turns);
  processes_.resize(found.processes);
  lookahead_ = kWindowMax;
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (process_of_node_[index(links_.source_of(link))] != process_of_node_[index(links_.target_of(link))])
      lookahead_ = std::min(lookahead_, links_.lookahead(link));
  }
}

// The thread of each process: hosts in order, in parts of equal size, as most of their traffic stays near; a
// switch goes with most of what it is cabled to, or where there is least.
std::vector<std::uint32_t> Simulator::share_out() const {
  const auto hosts = static_cast<std::uint32_t>(network_->hosts);
  const auto threads =
      std::clamp<std::uint32_t>(threads_, 1, std::max(1u, static_cast<std::uint32_t>(processes_.size())));
  constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  std::vector<std::uint32_t> thread_of(processes_.size(), kNobody);
  std::vector<std::uint64_t> load(threads, 0);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    std::uint32_t& thread = thread_of[process_of_node_[host]];
    if (thread == kNobody) thread = static_cast<std::uint32_t>(std::uint64_t{host} * threads / hosts);
  }
  std::vector<std::vector<std::uint32_t>> beside(processes_.size());
  for (std::uint32_t link = 0; link < links_.links(); ++link)
    beside[process_of_node_[index(links_.source_of(link))]].push_back(
        process_of_node_[index(links_.target_of(link))]);
  for (bool changed = true; changed;) {  // a tier further from the hosts each time
    changed = false;
    const std::vector<std::uint32_t> before = thread_of;
    for (std::uint32_t process = 0; process < thread_of.size(); ++process) {
      if (before[process] != kNobody) continue;
      std::vector<std::uint32_t> votes(threads, 0);
      std::uint32_t known = 0;
      for (const std::uint32_t other : beside[process]) {
        if (before[other] == kNobody) continue;
        ++votes[before[other]];
        ++known;
      }
      if (known == 0) continue;
      std::uint32_t best = 0;
      for (std::uint32_t thread = 1; thread < threads; ++thread) {
        if (votes[thread] > votes[best] || (votes[thread] == votes[best] && load[thread] < load[best]))
          best = thread;
      }
      thread_of[process] = best;
      load[best] += beside[process].size();
      changed = true;
    }
  }
  for (std::uint32_t& thread : thread_of) thread = thread == kNobody ? 0 : thread;
  return thread_of;
}

// Events of the processes, in the order in which they win ties: arrivals, starts, NICs, what ranks do later,
// timers.
void Simulator::plan_sources() {
  std::vector<std::vector<std::uint32_t>> sources(processes_.size());
  const auto of = [&](std::int32_t node) -> std::vector<std::uint32_t>& {
    return sources[process_of_node_[index(node)]];
  };
  std::vector<std::uint32_t> nodes(processes_.size());
  for (const std::uint32_t process : process_of_node_) ++nodes[process];
  const auto is_alone = [&](std::int32_t node) {  // a switch that is a process: its arrivals have no tree
    return node >= network_->hosts && nodes[process_of_node_[index(node)]] == 1;
  };
  const auto ranks = static_cast<std::uint32_t>(walkers_.size());
  const auto is_used = [&](std::uint32_t link) {  // a link to the same host only where ranks share one
    return link < static_cast<std::uint32_t>(network_->links()) || nic_of_link_[link] != kNoNic;
  };
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (is_used(link) && !is_alone(links_.target_of(link))) of(links_.target_of(link)).push_back(link);
  }
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (links_.source_of(link) >= network_->hosts)
      of(links_.source_of(link)).push_back(links_.links() + link);
  }
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    const bool may_be_used = !network_->changes.empty() && links_.source_of(link) < network_->hosts;
    if (nic_of_link_[link] != kNoNic || may_be_used) of(links_.source_of(link)).push_back(nic_source_ + link);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) of(host_of_rank_[rank]).push_back(later_source_ + rank);
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    of(host_of(queue_pairs_[id].rank)).push_back(timer_source_ + id);
  std::vector<std::uint32_t> thread_of_process = share_out();
  const std::uint32_t threads = 1 + *std::max_element(thread_of_process.begin(), thread_of_process.end());
  schedule_.plan(sources, timer_source_ + static_cast<std::uint32_t>(queue_pairs_.size()), later_source_,
                 std::move(thread_of_process), threads, lookahead_);
  standings_.resize(threads);
  links_.attach(process_of_node_);
}

std::uint32_t Simulator::nic_of(std::uint32_t link) {
  std::uint32_t& number = nic_of_link_[link];
  if (number == kNoNic) {
    number = static_cast<std::uint32_t>(nics_.size());
    const bool limited = network_->nic.limits_ports() && network_->nic.is_port(link);
    nics_.push_back({.queue_pairs = {}, .link = link, .limited = limited, .retries = links_.retries(link)});
  }
  return number;
}

// Queue pairs of all ranks that exchange messages, by rank, then by peer.
void Simulator::connect_all() {
  const std::vector<std::uint64_t> pairs = connected_pairs(walkers_);
  std::uint32_t first = 0;
  for (const std::uint64_t pair : pairs) {
    first_of_[pair] = first;
    first += spread_.queue_pairs;
  }
  queue_pairs_.reserve(first);
  for (const std::uint64_t pair : pairs) {
    const auto rank = static_cast<std::int32_t>(pair >> 32),
               peer = static_cast<std::int32_t>(pair & 0xFFFFFFFFu);
    connect(rank, peer, *first_of_.find(pair), *first_of_.find(key_of(peer, rank)));
  }
  std::vector<std::int32_t> host_of_connection;
  for (const HostQueuePair& connection : queue_pairs_) host_of_connection.push_back(host_of(connection.rank));
  links_.set_targets(std::move(host_of_connection));
  if (!network_->nic.delays_messages()) return;
  nic_queues_.resize(queue_pairs_.size());
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    nic_queues_[id].delays = network_->nic.is_port(nics_[queue_pairs_[id].nic].link);
}

// The queue pairs of a rank towards a peer, whose own begin at `back`.
void Simulator::connect(std::int32_t rank, std::int32_t peer, std::uint32_t first, std::uint32_t back) {
  const bool alike = spread_.queue_pairs == 1;  // nothing to keep
  if (!alike || connections_.empty()) connections_.emplace_back(spread_);
  std::vector<std::uint32_t> path;
  for (std::uint32_t number = 0; number < spread_.queue_pairs; ++number) {
    const Ends ends{rank, peer, first + number, back + number, number};
    HostQueuePair connection{.peer = back + number,
                             .port = source_port(network_->source_ports, seed_, spread_.queue_pairs, ends),
                             .connection = static_cast<std::uint32_t>(connections_.size()) - 1,
                             .queue_pair = roce::QueuePair(config_, first + number, 0, 0),
                             .rank = rank,
                             .peer_rank = peer,
                             .number = number};
    const std::int32_t from = host_of(rank), to = host_of(peer);
    find_path(*network_, links_.routes(), from, to, connection.port, path);
    connection.route = links_.add_path(path);
    connection.is_free = network_->balance != Balance::kPath && pinned_path(*network_, from, to) == nullptr;
    connection.nic = nic_of(links_.link_at(connection.route));
    if (config_.spray > 1) {
      connection.sprayed = static_cast<std::uint32_t>(sprayed_ports_.size());
      const std::vector<std::uint16_t> ports =
          sprayed_ports(network_->source_ports, seed_, config_.spray, ends);
      sprayed_ports_.insert(sprayed_ports_.end(), ports.begin(), ports.end());
      sprayed_routes_.resize(sprayed_ports_.size(), connection.route);
      set_sprayed_routes(connection);
    }
    std::vector<std::uint32_t>& on_port = nics_[connection.nic].queue_pairs;
    connection.on_port = static_cast<std::uint32_t>(on_port.size());
    on_port.push_back(first + number);
    if (LossPlan** loss = loss_of_.find(key_of(rank, peer))) connection.loss = *loss;
    queue_pairs_.push_back(std::move(connection));
  }
}

}  // namespace genie::twin
