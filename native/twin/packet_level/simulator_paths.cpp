// The ways of queue pairs through the network, and how they change with it.
#include <algorithm>

#include "twin/packet_level/simulator_sink.hpp"

namespace genie::twin {

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
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    HostQueuePair& connection = queue_pairs_[id];
    find_path(*network_, links_.routes(), host_of(connection.rank), host_of(connection.peer_rank),
              connection.port, path);
    if (path.empty()) continue;
    const std::uint32_t nic = nic_of(path.front());
    if (!links_.is_path(connection.route, path)) connection.route = links_.add_path(path);
    if (config_.spray > 1) set_sprayed_routes(connection);
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

// A sprayed connection's source ports go their own ways, all from the host's port that its route begins with.
void Simulator::set_sprayed_routes(const HostQueuePair& connection) {
  std::vector<std::uint32_t> path;
  for (std::uint32_t place = 0; place < config_.spray; ++place) {
    find_path(*network_, links_.routes(), host_of(connection.rank), host_of(connection.peer_rank),
              sprayed_ports_[connection.sprayed + place], path,
              {.place = static_cast<std::int32_t>(place), .first_link = links_.link_at(connection.route)});
    std::uint32_t& route = sprayed_routes_[connection.sprayed + place];
    if (!path.empty() && !links_.is_path(route, path)) route = links_.add_path(path);
  }
}

// The routes of a connection and of its answers.
std::vector<std::uint32_t> Simulator::routes_of(std::uint32_t id) const {
  std::vector<std::uint32_t> routes;
  for (const std::uint32_t end : {id, queue_pairs_[id].peer}) {
    routes.push_back(queue_pairs_[end].route);
    for (std::uint32_t place = 0; config_.spray > 1 && place < config_.spray; ++place)
      routes.push_back(sprayed_routes_[queue_pairs_[end].sprayed + place]);
  }
  return routes;
}

std::vector<std::uint32_t> Simulator::dead_links() const {
  std::vector<std::uint32_t> dead;
  for (const Process& process : processes_) {
    for (const std::uint32_t id : process.given_up) {
      for (const std::uint32_t route : routes_of(id)) {
        for (std::uint32_t at = route;; ++at) {
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
