// Fold of hosts: ranks, queue pairs and NIC ports.
#include "twin/host/hosts.hpp"

namespace genie::twin {

bool Hosts::can_fold(const Scope& scope) const {
  return all_queue_pairs(scope, [&](std::uint32_t id) { return queue_pairs_[id].queue_pair.can_fold(); });
}

// Ranks come first: handles are relative to their progress.
void Hosts::fold(Fold& fold, PacketBases& bases, const Scope& scope) {
  static_assert(has_size<Hosts>(808));
  static_assert(has_size<Process>(152));
  for (std::uint32_t rank = 0; rank < ranks_.ranks(); ++rank) {
    if (scope.ranks[rank] == 0) continue;
    fold.part(Fold::Part::kRank, rank);
    ranks_.fold(fold, static_cast<std::int32_t>(rank));
  }
  bases.resize(queue_pairs_.size());
  all_queue_pairs(scope, [&](std::uint32_t id) {
    fold.part(Fold::Part::kQueuePair, id);
    fold_queue_pair(fold, id, bases);
    return true;
  });
  fold.set_handles(nullptr);
  for (std::uint32_t number = 0; number < nics_.size(); ++number) {
    if (scope.links[nics_[number].link()] == 0) continue;
    fold.part(Fold::Part::kNic, number);
    nics_[number].fold(fold);
  }
}

bool Hosts::is_quiet(std::uint32_t id, const Scope& scope) const {
  const roce::QueuePair& own = queue_pairs_[id].queue_pair;
  if (own.has_data() || own.has_control()) return false;
  return queue_pairs_.all_routes(id, [&](std::uint32_t route) {
    return links_.all_on_path(route, [&](std::uint32_t link) {
      return scope.links[link] != 0 || !links_.has_packets_of(link, id, queue_pairs_[id].peer);
    });
  });
}

bool Hosts::sleeps(std::int32_t rank) const {
  if (!ranks_.sleeps(rank)) return false;
  for (std::uint32_t id = queue_pairs_.first_of(rank); id < queue_pairs_.size(); ++id) {
    const HostQueuePair& own = queue_pairs_[id];
    if (own.rank != rank) break;
    if (schedule_.time_of(timer_source_ + id) != kNever ||
        schedule_.time_of(nic_source_ + nics_[own.nic].link()) != kNever)
      return false;
  }
  return true;
}

void Hosts::fold_queue_pair(Fold& fold, std::uint32_t id, PacketBases& bases) {
  queue_pairs_.fold(fold, id, ranks_, bases);
  if (const std::uint32_t place = queue_pairs_[id].telemetry; place != 0) [[unlikely]]
    links_.fold_telemetry(fold, place);
  queue_pairs_.set_part_handles(fold, id, ranks_);
  message_queues_.fold(fold, id);
}

void Hosts::fold_rank(Fold& fold, std::int32_t rank, PacketBases& bases) {
  bases.resize(queue_pairs_.size());
  ranks_.fold(fold, rank);
  for (std::uint32_t id = queue_pairs_.first_of(rank); id < queue_pairs_.size(); ++id) {
    if (queue_pairs_[id].rank != rank) break;
    fold_queue_pair(fold, id, bases);
  }
  fold.set_handles(nullptr);
}

}  // namespace genie::twin
