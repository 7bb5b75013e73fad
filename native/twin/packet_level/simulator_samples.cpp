// Time-series sampling.
#include <algorithm>
#include <limits>
#include <utility>

#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

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
  sampler_->look(links_, time);
  // A pair's queue pairs follow one another.
  for (std::size_t first = 0; first < queue_pairs_.size(); first += spread_.queue_pairs) {
    const HostQueuePair *const own = &queue_pairs_[first], *const end = own + spread_.queue_pairs;
    if (std::none_of(own, end, [](const HostQueuePair& it) { return it.queue_pair.pending() > 0; })) continue;
    const std::int64_t rate_bps = allowed_bps(own, end, time);
    sampler_->samples.pairs.push_back(
        {time, own->rank, own->peer_rank, rate_bps == congestion::Controller::kUnlimited ? -1 : rate_bps});
  }
  return sampler_->samples.links.size() + sampler_->samples.pairs.size();
}

// What congestion control lets queue pairs send together, at most what their ports can.
std::int64_t Simulator::allowed_bps(const HostQueuePair* begin, const HostQueuePair* end, TimePs now) const {
  constexpr std::int64_t kUnlimited = congestion::Controller::kUnlimited;
  const auto sum = [](std::int64_t a, std::int64_t b) { return b < kUnlimited - a ? a + b : kUnlimited; };
  std::int64_t pairs_bps = 0, ports_bps = 0;
  for (const HostQueuePair* it = begin; it != end; ++it) {
    const std::int64_t rate_bps = links_.rate_bps(nics_[it->nic].link);
    const std::int64_t port_bps = rate_bps > 0 ? rate_bps : kUnlimited;
    pairs_bps = sum(pairs_bps, std::min(it->queue_pair.allowed_bps(now), port_bps));
    if (std::none_of(begin, it, [&](const HostQueuePair& other) { return other.nic == it->nic; }))
      ports_bps = sum(ports_bps, port_bps);
  }
  return std::min(pairs_bps, ports_bps);
}

Samples Simulator::take_samples() {
  return sampler_ == nullptr ? Samples{} : std::exchange(sampler_->samples, {});
}

double Simulator::share_done() { return done() ? 1 : planned_.share(data_packets()); }

}  // namespace genie::twin
