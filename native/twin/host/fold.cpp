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
  queue_pairs_.fold(fold, ranks_, bases);
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    ranks_.set_handles(fold, queue_pairs_[id].rank);
    message_queues_.fold(fold, id);
  }
  fold.set_handles(nullptr);
  for (std::uint32_t number = 0; number < nics_.size(); ++number) nics_[number].fold(fold);
}

}  // namespace genie::twin
