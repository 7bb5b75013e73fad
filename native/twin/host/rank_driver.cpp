#include "twin/host/rank_driver.hpp"

#include <utility>

namespace genie::twin {

RankDriver::RankDriver(const Network& network, const SharedPlan& shared,
                       const std::vector<const RankPlan*>& plans, std::vector<std::int32_t> host_of_rank,
                       const std::vector<bool>& keeps_records)
    : network_(&network),
      host_of_rank_(std::move(host_of_rank)),
      ready_(plans.size()),
      events_(plans.size()),
      is_seen_(plans.size(), 0) {
  assert(host_of_rank_.size() == plans.size());
  walkers_.reserve(plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    walkers_.emplace_back(shared, *plans[rank], false, keeps_records.empty() || keeps_records[rank]);
}

void RankDriver::take_over(const RankDriver& earlier, const Renumbering& to) {
  has_tie_ |= earlier.has_tie_;
  for (std::size_t rank = 0; rank < earlier.walkers_.size(); ++rank) {
    const std::size_t own = index(to.ranks[rank]);
    assert(earlier.ready_[rank].empty());
    std::vector<std::uint32_t> link_of(walkers_[own].nodes().size(), kNoLink);
    for (std::size_t at = 0; at < end_links_[own].size(); ++at)
      link_of[index(walkers_[own].end_order()[at])] = end_links_[own][at];
    for (std::size_t at = 0; at < earlier.end_links_[rank].size(); ++at) {
      const std::uint32_t link = earlier.end_links_[rank][at];
      const std::int32_t row = to.rows[rank][index(earlier.walkers_[rank].end_order()[at])];
      link_of[index(row)] = link == kNoLink ? kNoLink : to.links[link];
    }
    walkers_[own].take_over(earlier.walkers_[rank], to.rows[rank], to.ranks);
    events_[own].take_over(earlier.events_[rank], to.rows[rank]);
    end_links_[own].clear();
    for (const std::int32_t row : walkers_[own].end_order()) end_links_[own].push_back(link_of[index(row)]);
  }
}

void RankDriver::deliver(Process& process, std::int32_t rank, const Completion& completion) {
  if (is_seen_[index(rank)] != 0 && completion.type == Completion::Type::kArrived &&
      !is_credit(completion.tag))
    seen_.emplace_back(rank, process.now);
  const TimePs latency = network_->message_latency_ps[index(host_of(rank))];
  if (latency == 0) return make_ready(process, rank, completion);
  events_of(rank).add_completion(process.now + latency, completion);
  set_event(rank);
}

void RankDriver::make_ready(Process& process, std::int32_t rank, const Completion& completion) {
  if (ready_[index(rank)].empty()) process.to_walk.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

// True if the operation is not to be performed: it is held, or only tells.
bool RankDriver::take_start(const Process& process, std::int32_t rank, const Operation& operation) {
  const bool is_message = operation.type == Operation::Type::kSend;
  if (is_message && (operation.handle == kCreditHandle || !Walker::is_of_node(operation.handle)))
    return false;
  const Walker::Play play = walkers_[index(rank)].play_of(static_cast<std::int32_t>(operation.handle >> 32));
  if (play == Walker::Play::kOwn) return false;
  const bool is_held = play == Walker::Play::kHeld;
  starts_.push_back({.time = process.now,
                     .rank = rank,
                     .operation = operation,
                     .kind = is_held ? RankStart::Kind::kHeld : RankStart::Kind::kTold,
                     .is_by_timer = process.played_at != process.now &&
                                    (process.source >= first_source_ || process.now == 0)});
  return is_held || !is_message;
}

void RankDriver::advance(Process& process, std::int32_t rank) {
  std::vector<Completion>& ready = ready_[index(rank)];
  assert(!ready.empty());
  Walker& walker = walkers_[index(rank)];
  process.operations.clear();
  walker.advance(process.now, ready, process.operations);
  ready.clear();
  if (!end_links_.empty()) [[unlikely]]
    end_links_[index(rank)].resize(walker.end_order().size(),
                                   process.source < first_source_ ? process.source : kNoLink);
  if (!walker.error().empty()) process.errors.push_back(walker.error());
}

}  // namespace genie::twin
