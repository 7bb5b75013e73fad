#include "twin/packet_level/simulator.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "twin/packet_level/window_loop.hpp"

namespace genie::twin {
namespace {

// Times between paced packets are the fabric's, like those of all frames.
roce::QueuePairConfig with_pacing_of(const Network& network, roce::QueuePairConfig config) {
  config.pacing_unit = network.serialisation_unit;
  return config;
}

}  // namespace

Simulator::Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                     const std::vector<const RankPlan*>& plans, std::vector<std::int32_t> host_of_rank,
                     std::uint64_t seed, const roce::SpreadConfig& spread, std::uint32_t threads,
                     const std::vector<bool>& keeps_records)
    : network_(&network),
      links_(network, schedule_, seed),
      hosts_(network, config, RankDriver(network, shared, plans, std::move(host_of_rank), keeps_records),
             QueuePairs(network, with_pacing_of(network, config), spread, seed), links_, schedule_),
      threads_(congestion::needs_telemetry(config.congestion.control) ? 1 : threads),
      planned_(shared, plans, config.mtu_bytes),
      whole_{std::vector<std::uint8_t>(plans.size(), 1), std::vector<std::uint8_t>(links_.links(), 1)} {
  divide();
}

void Simulator::connect() {
  hosts_.connect();
  plan_sources();
  if (listener_ != nullptr) links_.inputs().keep_services();
  apply_changes(0);
}

void Simulator::begin(TimePs now) {
  for (std::uint32_t rank = 0; rank < hosts_.ranks().ranks(); ++rank) {
    const auto number = static_cast<std::int32_t>(rank);
    hosts_.begin(processes_.of(hosts_.ranks().host_of(number)), number, now);
  }
  if (has_taken_over_) return go_on_from(now);
  for (std::uint32_t number = 0; number < processes_.count(); ++number)
    schedule_.rest(number, links_.finish(number, 0));
}

bool Simulator::run(std::uint64_t events, TimePs until) {
  const std::uint64_t before = this->events(), end = before + std::min(events, ~before);
  std::vector<std::thread> others;
  for (std::uint32_t thread = 1; thread < standings_.threads(); ++thread)
    others.emplace_back([=, this] { WindowLoop(*this, thread, events, end, until).run(); });
  WindowLoop(*this, 0, events, end, until).run();
  for (std::thread& other : others) other.join();
  return !reached_ && !failed_ && !abandoned_;
}

// A process's events before `end`, at most about so many.
std::uint64_t Simulator::play(std::uint32_t number, TimePs end, std::uint64_t most) {
  Process& process = processes_[number];
  if (links_.is_switch(number)) return links_.play_switch(number, end);
  TournamentTree& tree = schedule_.tree(number);
  const std::uint32_t* sources = schedule_.sources(number);
  std::uint64_t count = 0;
  for (; tree.next_time() < end && count < most && process.errors.empty(); ++count) {
    const TimePs before = std::exchange(process.now, tree.next_time());
    const std::uint32_t at = tree.next_source(), source = process.source = sources[at];
    if (source < links_.links()) {
      Hosts::Arrivals arrivals{hosts_, process};
      links_.arrive(source, process.now, tree, at, arrivals);
    } else if (source < links_.sources()) {
      links_.starts(source - links_.links(), process.now);
    } else if (!hosts_.handle(process, source)) {
      process.now = before;  // nothing has happened
    } else if (process.played_at == process.now && (before == process.now || tree.next_time() == process.now))
        [[unlikely]] {
      hosts_.ranks().set_tie();
    }
    hosts_.walk(process);
  }
  schedule_.rest(number, links_.finish(number, std::min(end, tree.next_time())));
  return count;
}

// Ranks have begun what they hold, or are to tell.
void Simulator::tell_starts() {
  if (listener_ == nullptr || come_to_ == kNever || !hosts_.ranks().has_starts()) return;
  listener_->began(hosts_.ranks().take_starts(), come_to_);
}

// Makes the changes of the network until `now`, while everything stands at that time.
void Simulator::apply_changes(TimePs now) {
  bool reroutes = false;
  for (; next_change_time() <= now; ++next_change_) {
    const Change& change = network_->changes[next_change_];
    links_.apply(change, now);
    reroutes |= change.kind == Change::Kind::kRoutes;
    if (change.kind != Change::Kind::kDown) continue;
    // No pause holds any more, neither of the link's own source nor of a sender that was told by it.
    for (const std::uint32_t link : {change.number, change.number ^ 1}) {
      if (hosts_.has_nic(link)) hosts_.resume(processes_.of(links_.source_of(link), now), link);
    }
  }
  if (reroutes) hosts_.reroute(processes_, now);
  for (std::uint32_t process = 0; process < processes_.count(); ++process) schedule_.wake(process, now);
}

TimePs Simulator::next() {
  TimePs next = next_change_time();
  for (std::uint32_t thread = 0; thread < schedule_.threads(); ++thread) {
    const Calendar& calendar = schedule_.calendar(thread);
    const std::uint64_t window = calendar.next();
    if (window != Calendar::kNone && window > 0) next = std::min(next, calendar.end_of(window - 1));
    if (window == 0) next = 0;
  }
  return next;
}

std::size_t Simulator::sample(TimePs time) {
  if (sampler_ == nullptr) sampler_ = std::make_unique<Sampler>(*network_);
  sampler_->look_at_links(links_, time);
  sampler_->look_at_pairs(hosts_, links_, time);
  return sampler_->rows();
}

Samples Simulator::take_samples() { return sampler_ == nullptr ? Samples{} : sampler_->take(); }

}  // namespace genie::twin
