// Fold of a simulation that stands at one time.
#include <algorithm>
#include <cassert>

#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

std::string Simulator::unfoldable() const {
  if (hosts_.keeps_trace()) return "a trace of all packets was asked for";
  if (hosts_.queue_pairs().has_losses()) return "lost packets are planned";
  return can_fold() ? "" : "sprayed packets are not folded";
}

void Simulator::fold(Fold& fold, const Scope& scope) {
  PacketBases bases;
  hosts_.fold(fold, bases, scope);
  links_.fold(fold, bases, scope);
  if (&scope == &whole_) {
    for (std::uint32_t number = 0; number < processes_.count(); ++number) fold_process(fold, number);
  } else {
    fold_hosts(fold, scope);
  }
}

void Simulator::fold_own(Fold& fold, const Scope& scope) {
  PacketBases bases;
  hosts_.fold(fold, bases, scope);
  links_.fold_own(fold, bases, scope);
  fold_hosts(fold, scope);
}

void Simulator::fold_process(Fold& fold, std::uint32_t number) {
  fold.part(Fold::Part::kProcess, number);
  fold.total(processes_[number].data_packets);
}

void Simulator::fold_hosts(Fold& fold, const Scope& scope) {
  for (const std::uint32_t number : hosts_in(scope)) fold_process(fold, number);
}

// Processes, in ascending order.
std::vector<std::uint32_t> Simulator::hosts_in(const Scope& scope) const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t rank = 0; rank < hosts_.ranks().ranks(); ++rank) {
    if (scope.ranks[rank] != 0)
      found.push_back(processes_.number_of(hosts_.ranks().host_of(static_cast<std::int32_t>(rank))));
  }
  std::ranges::sort(found);
  assert(std::ranges::adjacent_find(found) == found.end());
  return found;
}

const std::vector<std::vector<std::uint32_t>>& Simulator::links_of_hosts() {
  if (!links_of_hosts_.empty()) return links_of_hosts_;
  links_of_hosts_.resize(index(network_->hosts));
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    for (const std::int32_t node : {links_.source_of(link), links_.target_of(link)}) {
      if (node < network_->hosts) links_of_hosts_[index(node)].push_back(link);
    }
  }
  return links_of_hosts_;
}

// A host that has slept since its latest event sleeps on, unless a packet is on its way to it.
Simulator::Sleep Simulator::leave_out_sleepers(Scope& scope, TimePs since) {
  Sleep sleep;
  const auto& links_of = links_of_hosts();
  slept_from_.resize(scope.ranks.size(), -1);
  for (std::uint32_t rank = 0; rank < scope.ranks.size(); ++rank) {
    if (scope.ranks[rank] == 0) continue;
    const auto number = static_cast<std::int32_t>(rank);
    const std::int32_t host = hosts_.ranks().host_of(number);
    const std::uint32_t process = processes_.number_of(host);
    const TimePs latest = processes_[process].now;
    sleep.active += latest > since;
    if (latest >= since) continue;
    const std::vector<std::uint32_t>& own = links_of[index(host)];
    if (slept_from_[rank] != latest) {
      const auto is_empty = [&](std::uint32_t link) { return links_.is_empty(link); };
      if (!hosts_.sleeps(number) || !std::ranges::all_of(own, is_empty)) continue;
      slept_from_[rank] = latest;
    }
    const auto brings = [&](std::uint32_t link) {
      const bool is_cable = link < static_cast<std::uint32_t>(network_->links());
      return is_cable && links_.target_of(link) == host && schedule_.time_of(link) != kNever;
    };
    if (std::ranges::any_of(own, brings)) continue;
    scope.ranks[rank] = 0;
    for (const std::uint32_t link : own) scope.links[link] = 0;
    sleep.latest = std::max(sleep.latest, latest);
    sleep.next = std::min(sleep.next, schedule_.tree(process).next_time());
  }
  return sleep;
}

void Simulator::move(const Scope& scope, TimePs events_by, TimePs hosts_by) {
  for (const std::uint32_t number : hosts_in(scope)) {
    schedule_.tree(number).move(events_by);
    processes_[number].now += hosts_by;
  }
  hosts_.ranks().renew_events();
}

void Simulator::move(TimePs by, TimePs now) {
  schedule_.move(by, now);
  for (std::uint32_t number = 0; number < processes_.count(); ++number) processes_[number].now += by;
  hosts_.ranks().renew_events();
}

}  // namespace genie::twin
