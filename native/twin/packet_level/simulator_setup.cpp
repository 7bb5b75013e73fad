// Set-up before the first event: processes, threads, and the sources of events.
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
  processes_.divide(std::move(found.process_of_node), found.processes);
  turns_ = std::move(found.turns);
  lookahead_ = kWindowMax;
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (processes_.number_of(links_.source_of(link)) != processes_.number_of(links_.target_of(link)))
      lookahead_ = std::min(lookahead_, links_.lookahead(link));
  }
}

// The thread of each process. Hosts go to threads in order, in parts of equal size, as most of their traffic
// stays near. A switch goes with most of what it is cabled to, or to the thread that has least.
std::vector<std::uint32_t> Simulator::share_out() const {
  const auto hosts = static_cast<std::uint32_t>(network_->hosts);
  const auto threads = std::clamp<std::uint32_t>(threads_, 1, std::max(1u, processes_.count()));
  constexpr std::uint32_t kNoThread = ~std::uint32_t{0};
  std::vector<std::uint32_t> thread_of(processes_.count(), kNoThread);
  std::vector<std::uint64_t> load(threads, 0);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    std::uint32_t& thread = thread_of[processes_.number_of(static_cast<std::int32_t>(host))];
    if (thread == kNoThread) thread = static_cast<std::uint32_t>(std::uint64_t{host} * threads / hosts);
  }
  std::vector<std::vector<std::uint32_t>> beside(processes_.count());
  for (std::uint32_t link = 0; link < links_.links(); ++link)
    beside[processes_.number_of(links_.source_of(link))].push_back(
        processes_.number_of(links_.target_of(link)));
  for (bool changed = true; changed;) {  // a tier further from the hosts each time
    changed = false;
    const std::vector<std::uint32_t> before = thread_of;
    for (std::uint32_t process = 0; process < thread_of.size(); ++process) {
      if (before[process] != kNoThread) continue;
      std::vector<std::uint32_t> votes(threads, 0);
      std::uint32_t known = 0;
      for (const std::uint32_t other : beside[process]) {
        if (before[other] == kNoThread) continue;
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
  for (std::uint32_t& thread : thread_of) thread = thread == kNoThread ? 0 : thread;
  return thread_of;
}

// Events of the processes, in the order in which they win ties: arrivals, starts, then those of hosts.
void Simulator::plan_sources() {
  std::vector<std::vector<std::uint32_t>> sources(processes_.count());
  const auto of = [&](std::int32_t node) -> std::vector<std::uint32_t>& {
    return sources[processes_.number_of(node)];
  };
  std::vector<std::uint32_t> nodes(processes_.count());
  for (const std::uint32_t process : processes_.of_nodes()) ++nodes[process];
  const auto is_alone = [&](std::int32_t node) {  // a switch that is a process: its arrivals have no tree
    return node >= network_->hosts && nodes[processes_.number_of(node)] == 1;
  };
  const auto is_used = [&](std::uint32_t link) {  // a link to the same host only where ranks share one
    return link < static_cast<std::uint32_t>(network_->links()) || hosts_.has_nic(link);
  };
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (is_used(link) && !is_alone(links_.target_of(link))) of(links_.target_of(link)).push_back(link);
  }
  for (std::uint32_t link = 0; link < links_.links(); ++link) {
    if (links_.source_of(link) >= network_->hosts)
      of(links_.source_of(link)).push_back(links_.links() + link);
  }
  hosts_.each_source([&](std::int32_t host, std::uint32_t source) { of(host).push_back(source); });
  std::vector<std::uint32_t> thread_of_process = share_out();
  const std::uint32_t threads = 1 + *std::max_element(thread_of_process.begin(), thread_of_process.end());
  schedule_.plan(sources, hosts_.sources(), hosts_.first_rare_source(), std::move(thread_of_process), threads,
                 lookahead_);
  standings_.resize(threads);
  links_.attach(processes_.of_nodes());
}

}  // namespace genie::twin
