// What somebody sees who looks at a simulation that stands still for a moment.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "twin/simulator.hpp"

namespace genie::twin {
namespace {

// Packets of one rank's messages in a collective, its clear-to-sends included.
std::uint64_t packets_of(const SharedPlan& shared, const RankPlan& plan, std::size_t row,
                         std::uint32_t mtu_bytes) {
  const StepTemplate& steps = shared.templates[static_cast<std::size_t>(plan.template_id[row])];
  std::uint64_t sum = 0;
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    const std::int64_t size_bytes = shared.block_sizes[static_cast<std::size_t>(
        plan.sizes_start[row] + steps.block_of(step, plan.position[row]))];
    if (size_bytes == 0 && !steps.empty_messages) continue;
    const auto at = static_cast<std::size_t>(step);
    if (steps.action[at] == static_cast<std::uint8_t>(StepAction::kSend)) {
      sum += roce::packets_of(static_cast<std::uint32_t>(size_bytes), mtu_bytes);
    } else if (steps.credit[at]) {
      ++sum;
    }
  }
  return sum;
}

// Of all messages of the plan. Collectives of one shape are counted once.
std::uint64_t packets_of(const SharedPlan& shared, const std::vector<const RankPlan*>& plans,
                         std::uint32_t mtu_bytes) {
  std::map<std::tuple<std::int32_t, std::int64_t, std::int32_t>, std::uint64_t> known;
  std::uint64_t sum = 0;
  for (const RankPlan* plan : plans) {
    for (std::size_t row = 0; row < plan->kind.size(); ++row) {
      const auto kind = static_cast<NodeKind>(plan->kind[row]);
      if (kind == NodeKind::kSend)
        sum += roce::packets_of(static_cast<std::uint32_t>(plan->size_bytes[row]), mtu_bytes);
      if (kind != NodeKind::kColl || plan->template_id[row] < 0) continue;
      const auto [shape, is_new] =
          known.try_emplace({plan->template_id[row], plan->sizes_start[row], plan->position[row]}, 0);
      if (is_new) shape->second = packets_of(shared, *plan, row, mtu_bytes);
      sum += shape->second;
    }
  }
  return sum;
}

}  // namespace

TimePs Simulator::next() {
  TimePs next = next_change_ < network_->changes.size() ? network_->changes[next_change_].time : kNever;
  for (std::uint32_t thread = 0; thread < schedule_.threads(); ++thread) {
    const Calendar& calendar = schedule_.calendar(thread);
    const std::uint64_t window = calendar.next();
    if (window != Calendar::kNone && window > 0) next = std::min(next, calendar.end_of(window - 1));
    if (window == 0) next = 0;
  }
  return next;
}

std::size_t Simulator::sample(TimePs time) {
  constexpr std::int64_t kUnlimited = congestion::Controller::kUnlimited;
  if (sampler_ == nullptr) sampler_ = std::make_unique<Sampler>(*network_);
  sampler_->look(links_, time);
  // A pair's queue pairs follow one another.
  for (std::size_t first = 0; first < connections_.size(); first += spread_.queue_pairs) {
    const Connection* const own = &connections_[first];
    bool busy = false;
    std::int64_t rate_bps = 0, ports_bps = 0;
    for (std::uint32_t number = 0; number < spread_.queue_pairs; ++number) {
      busy |= own[number].queue_pair.pending() > 0;
      const std::int64_t port_bps = links_.rate_bps(nics_[own[number].nic].link);
      const std::int64_t allowed_bps =
          std::min(own[number].queue_pair.allowed_bps(time), port_bps > 0 ? port_bps : kUnlimited);
      rate_bps = allowed_bps < kUnlimited - rate_bps ? rate_bps + allowed_bps : kUnlimited;
      const bool shares_port =
          std::any_of(own, own + number, [&](const Connection& it) { return it.nic == own[number].nic; });
      if (!shares_port)
        ports_bps = port_bps > 0 && ports_bps < kUnlimited ? ports_bps + port_bps : kUnlimited;
    }
    rate_bps = std::min(rate_bps, ports_bps);
    if (busy)
      sampler_->samples.pairs.push_back(
          {time, own->rank, own->peer_rank, rate_bps == kUnlimited ? -1 : rate_bps});
  }
  return sampler_->samples.links.size() + sampler_->samples.pairs.size();
}

Samples Simulator::take_samples() {
  return sampler_ == nullptr ? Samples{} : std::exchange(sampler_->samples, {});
}

double Simulator::share_done() {
  if (done()) return 1;
  if (planned_packets_ == 0)
    planned_packets_ = std::max<std::uint64_t>(packets_of(*shared_plan_, plans_, config_.mtu_bytes), 1);
  // What is sent again counts too: never so much as all.
  return std::min(static_cast<double>(data_packets()) / static_cast<double>(planned_packets_), 0.999);
}

}  // namespace genie::twin
