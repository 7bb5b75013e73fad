#include "twin/episodes/episodes.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace genie::twin {
namespace {

constexpr std::uint64_t kBeginningsMost = 8;

}  // namespace

Episodes::Episodes(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                   std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
                   const roce::SpreadConfig& spread, std::uint64_t memory_bytes,
                   std::uint64_t checkpoint_packets, std::uint64_t free_packets)
    : memo_({network, config, shared, std::move(plans), std::move(host_of_rank)}, spread, memory_bytes,
            free_packets),
      checkpoint_packets_(checkpoint_packets) {
  assert(checkpoint_packets > 0);
}

Episodes::Report Episodes::report() const {
  return {.distinct = memo_.known.distinct(),
          .plays = memo_.costs.counts(),
          .beginnings = beginnings_,
          .needs_one_thread = needs_one_thread_,
          .is_too_costly = memo_.refusals.is_too_costly(),
          .reasons = memo_.refusals.reasons()};
}

void Episodes::attach(Simulator& simulator) {
  end();
  ++beginnings_;
  Refusals& refusals = memo_.refusals;
  if (!simulator.is_divided()) refusals.give_up("links without any time join nodes");
  if (unusable().empty()) refusals.give_up(simulator.unfoldable());
  needs_one_thread_ = unusable().empty() && simulator.threads() > 1;
  if (needs_one_thread_) refusals.give_up("several threads play");
  if (!unusable().empty()) return;
  refusals.begin(simulator);
  memo_.costs.begin();
  simulator_ = &simulator;
  run_.emplace(memo_, simulator, checkpoint_packets_);
  for (std::size_t rank = 0; rank < memo_.job.plans.size(); ++rank)
    simulator.hosts()
        .ranks()
        .walker(static_cast<std::int32_t>(rank))
        .set_plays(memo_.kinds.plays_of(*memo_.job.plans[rank]));
  simulator.set_listener(*this);
}

void Episodes::began(std::vector<RankStart> starts, TimePs now) {
  if (simulator_ == nullptr) return;  // the run was stopped
  std::ranges::stable_sort(starts, {}, [](const RankStart& it) { return std::pair(it.time, it.rank); });
  run_->began(starts, now);
}

bool Episodes::begins_again(const Simulator& simulator, std::uint64_t skipped_packets) {
  if (simulator_ == nullptr) return false;
  if (is_interrupted()) {
    stop();
    return false;
  }
  Refusals& refusals = memo_.refusals;
  if (!simulator.is_abandoned()) run_->check_live();
  if (!simulator.is_abandoned() && simulator.done()) {
    run_->finish_until(kNever);
    end();
    return false;
  }
  if (!simulator.is_abandoned()) refusals.give_up("ranks wait for ever");
  const bool is_vain = beginnings_ >= kBeginningsMost || !memo_.kinds.any_left();
  if (unusable().empty() && is_vain) refusals.give_up(refusals.latest());
  PlayCosts& costs = memo_.costs;
  const std::uint64_t gained = costs.counts().replaced + skipped_packets;
  costs.add_lost(simulator.data_packets() - std::min(gained, simulator.data_packets()));
  if (unusable().empty() && costs.have_lost_too_much())
    refusals.give_up_for_costs("the job has begun again too often");
  end();
  costs.begin();
  return true;
}

void Episodes::stop() {
  if (simulator_ == nullptr) return;
  run_->finish_until(simulator_->now());
  end();
}

void Episodes::end() {
  memo_.refusals.end();
  simulator_ = nullptr;
  run_.reset();
}

}  // namespace genie::twin
