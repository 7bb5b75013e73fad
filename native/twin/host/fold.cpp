// Fold of hosts: ranks, queue pairs and NIC ports.
#include "twin/host/hosts.hpp"

namespace genie::twin {

bool Hosts::can_fold() const {
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    if (!queue_pairs_[id].queue_pair.can_fold()) return false;
  }
  return true;
}

// Ranks come first: handles are relative to their progress.
void Hosts::fold(Fold& fold, PacketBases& bases) {
  for (std::uint32_t rank = 0; rank < ranks_.ranks(); ++rank)
    ranks_.fold(fold, static_cast<std::int32_t>(rank));
  bases.resize(queue_pairs_.size());
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) fold_queue_pair(fold, id, bases);
  fold.set_handles(nullptr);
  for (std::uint32_t number = 0; number < nics_.size(); ++number) nics_[number].fold(fold);
}

void Hosts::fold_queue_pair(Fold& fold, std::uint32_t id, PacketBases& bases) {
  queue_pairs_.fold(fold, id, ranks_, bases);
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
