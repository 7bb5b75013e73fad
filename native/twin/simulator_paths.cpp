// The ways of queue pairs through the network, and how they change with it.
#include <algorithm>

#include "core/mix.hpp"
#include "twin/simulator_sink.hpp"

namespace genie::twin {
namespace {

constexpr std::uint16_t kRocePort = 4791;
constexpr std::uint32_t kFirstAddress = 0x0A000001;  // 10.0.0.1 is host 0

// A counter-based random number: the same for the same seed and counter, in any order of asking.
std::uint64_t random_of(std::uint64_t seed, std::uint64_t counter) {
  return mixed(seed * kGoldenGamma + counter + 0x632BE59BD9B4E019ull);
}

}  // namespace

// As genie/config/source_ports.py has it.
std::uint16_t Simulator::source_port(std::int32_t rank, std::int32_t peer, std::uint32_t own,
                                     std::uint32_t other, std::uint32_t number) const {
  const SourcePorts& ports = network_->source_ports;
  const auto from = static_cast<std::uint32_t>(rank), to = static_cast<std::uint32_t>(peer);
  if (ports.rule == SourcePorts::Rule::kRange) {
    const std::uint64_t place = std::uint64_t{to} * spread_.queue_pairs + number;
    return static_cast<std::uint16_t>(ports.first + place % (ports.last - ports.first + 1u));
  }
  if (ports.rule == SourcePorts::Rule::kRanks) {
    const std::uint32_t hash = from * 0x9E3779B1u ^ to * 0x85EBCA77u ^ number * 0xC2B2AE3Du;
    return static_cast<std::uint16_t>(0xC000u | (hash >> 13 & 0x3FFFu));
  }
  // Queue pairs are numbered from a number that differs from run to run.
  const std::uint64_t first = 2 + (mixed(seed_ + kGoldenGamma) & 0xFFFFFu);
  std::uint64_t label = ((first + own) & 0xFFFFFFu) * ((first + other) & 0xFFFFFFu);
  label ^= label >> 20;
  label ^= label >> 40;
  label &= 0xFFFFFu;
  return static_cast<std::uint16_t>(0xC000u | ((label ^ label >> 14) & 0x3FFFu));
}

const Pinned* Simulator::pinned_for(const Connection& connection) const {
  const std::int32_t from = host_of(connection.rank), to = host_of(connection.peer_rank);
  const auto known = std::find_if(network_->pinned.begin(), network_->pinned.end(),
                                  [&](const Pinned& path) { return path.from == from && path.to == to; });
  return known == network_->pinned.end() ? nullptr : &*known;
}

// The links from a queue pair's host to its peer's: pinned ones, or at each switch one of the shortest ways,
// by a hash of the packets' five-tuple that differs from switch to switch. Empty: there is no way.
void Simulator::find_path(const Connection& connection, std::vector<std::uint32_t>& path) const {
  const std::int32_t from = host_of(connection.rank), to = host_of(connection.peer_rank);
  path.clear();
  if (from == to) path.push_back(static_cast<std::uint32_t>(network_->links() + from));
  if (const Pinned* pinned = from == to ? nullptr : pinned_for(connection)) {
    path = pinned->links;
    return;
  }
  const std::uint64_t addresses = pair_key(kFirstAddress + static_cast<std::uint32_t>(from),
                                           kFirstAddress + static_cast<std::uint32_t>(to));
  const std::uint64_t hash = mixed(addresses ^ mixed(std::uint64_t{connection.port} << 16 | kRocePort));
  std::vector<std::uint32_t> choices;
  for (std::int32_t node = from; node != to;) {
    choices.clear();
    network_->each_way(links_.routes(), node, to, [&](std::uint32_t link) { choices.push_back(link); });
    if (choices.empty()) return path.clear();
    path.push_back(
        choices[choices.size() > 1 ? random_of(static_cast<std::uint64_t>(node), hash) % choices.size() : 0]);
    node = network_->link_target[path.back()];
  }
}

// What happens to the network until `now`, while everything stands at that time.
void Simulator::apply_changes(TimePs now) {
  bool reroutes = false;
  const std::vector<Change>& changes = network_->changes;
  for (; next_change_ < changes.size() && changes[next_change_].time <= now; ++next_change_) {
    const Change& change = changes[next_change_];
    links_.apply(change, now);
    reroutes |= change.kind == Change::Kind::kRoutes;
    if (change.kind != Change::Kind::kDown) continue;
    // Nobody is paused any more, neither the link's own source nor who has been told by it.
    for (const std::uint32_t link : {change.number, change.number ^ 1}) {
      const std::uint32_t nic = nic_of_link_[link];
      if (nic == kNoNic) continue;
      Process& process = processes_[process_of_node_[static_cast<std::size_t>(links_.source_of(link))]];
      process.now = std::max(process.now, now);
      wake(process, nic);
    }
  }
  if (reroutes) reroute(now);
  for (std::uint32_t process = 0; process < processes_.size(); ++process) schedule_.wake(process, now);
}

// Queue pairs go by the routes that hold now; those that have no way keep to their old one. What is under way
// already stays on it.
void Simulator::reroute(TimePs now) {
  std::vector<std::uint32_t> path;
  for (std::uint32_t id = 0; id < connections_.size(); ++id) {
    Connection& connection = connections_[id];
    find_path(connection, path);
    if (path.empty() || links_.is_path(connection.route, path)) continue;
    connection.route = links_.add_path(path);
    const std::uint32_t nic = nic_of(path.front());
    if (nic == connection.nic) continue;
    nics_[connection.nic].queue_pairs[connection.on_port] = kMoved;
    connection.nic = nic;
    connection.on_port = static_cast<std::uint32_t>(nics_[nic].queue_pairs.size());
    nics_[nic].queue_pairs.push_back(id);
    Process& process = process_of(connection.rank);
    process.now = std::max(process.now, now);
    Sink{*this, process, id}.ready(connection.queue_pair);
  }
}

std::vector<std::uint32_t> Simulator::dead_links() const {
  std::vector<std::uint32_t> dead;
  for (const Process& process : processes_) {
    for (const std::uint32_t id : process.given_up) {
      for (const std::uint32_t way : {connections_[id].route, connections_[connections_[id].peer].route}) {
        for (std::uint32_t at = way;; ++at) {
          const std::uint32_t link = links_.link_at(at);
          const auto is_told = [&](std::uint32_t one) {
            return std::find(dead.begin(), dead.end(), one) != dead.end();
          };
          if (links_.is_down(link) && !is_told(link) && !is_told(link ^ 1))
            dead.push_back(link);  // a cable once
          if (links_.target_of(link) < network_->hosts) break;
        }
      }
    }
  }
  return dead;
}

}  // namespace genie::twin
