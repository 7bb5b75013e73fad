#include "twin/host/sampler.hpp"

#include <algorithm>
#include <utility>

namespace genie::twin {

Sampler::Sampler(const Network& network) : network_(&network), last_(network.link_rate_bps.size()) {
  for (std::size_t link = 0; link < last_.size(); ++link) last_[link].rate_bps = network.link_rate_bps[link];
}

void Sampler::look_at_links(Links& links, TimePs now) {
  const auto count_bits = [](Last& last, TimePs until) {
    last.could_bits += static_cast<double>(last.rate_bps) *
                       static_cast<double>(until - std::exchange(last.rate_since, until));
  };
  const std::vector<Change>& changes = network_->changes;
  for (; next_change_ < changes.size() && changes[next_change_].time < now; ++next_change_) {
    const Change& change = changes[next_change_];
    if (change.kind != Change::Kind::kRate) continue;
    count_bits(last_[change.number], change.time);
    last_[change.number].rate_bps = change.rate_bps;
  }
  for (std::uint32_t link = 0; link < last_.size(); ++link) {
    Last& last = last_[link];
    count_bits(last, now);
    const double could_bits = std::exchange(last.could_bits, 0);
    const LinkCounters all = links.look(link, now);
    const auto since = [](std::uint64_t& before, std::uint64_t value) {
      return value - std::exchange(before, value);
    };
    LinkSample it{.time = now, .link = link, .queue_bytes = all.queue_bytes};
    it.longest_queue_bytes = std::max({last.queue_bytes, all.queue_bytes, all.longest_queue_bytes});
    last.queue_bytes = all.queue_bytes;
    // Where the rate or a rounded time lets a packet seem longer than it is, nothing is taken back.
    it.sent_bytes = since(last.sent_bytes, std::max(last.sent_bytes, all.bytes));
    it.marked = since(last.marked, all.marked);
    it.dropped = since(last.dropped, all.dropped);
    it.pauses = since(last.pauses, all.pauses);
    const TimePs paused_ns = all.paused_ps / kPsPerNs;
    it.paused_ns = paused_ns - std::exchange(last.paused_ns, paused_ns);
    if (could_bits > 0) it.utilisation = static_cast<double>(it.sent_bytes) * 8e12 / could_bits;
    const bool still = it.longest_queue_bytes == 0 && it.sent_bytes == 0 && it.marked == 0 &&
                       it.dropped == 0 && it.pauses == 0 && it.paused_ns == 0;
    if (!still) samples_.links.push_back(it);
  }
}

void Sampler::look_at_pairs(const Hosts& hosts, const Links& links, TimePs now) {
  const QueuePairs& queue_pairs = hosts.queue_pairs();
  for (std::uint32_t first = 0; first < queue_pairs.size(); first += queue_pairs.per_pair()) {
    bool is_busy = false;
    for (std::uint32_t id = first; id < first + queue_pairs.per_pair(); ++id)
      is_busy |= queue_pairs[id].queue_pair.pending() > 0;
    if (!is_busy) continue;
    const HostQueuePair& own = queue_pairs[first];
    const std::int64_t rate_bps = queue_pairs.allowed_bps(first, hosts.nics(), links, now);
    samples_.pairs.push_back(
        {now, own.rank, own.peer_rank, rate_bps == congestion::Controller::kUnlimited ? -1 : rate_bps});
  }
}

}  // namespace genie::twin
