#include "twin/skip/packet_rhythm.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace genie::twin {

PeriodFinder::Period PacketRhythm::look(std::uint32_t times) {
  Hosts& hosts = simulator_.hosts();
  if (is_over()) stop();
  if (queue_pair_ == Hosts::kNone) choose();
  if (queue_pair_ == Hosts::kNone) return {};
  left_ = hosts.queue_pairs()[queue_pair_].queue_pair.message_left();
  for (const TimePs time : hosts.take_departures()) finder_.add(time);
  return finder_.shortest(times);
}

bool PacketRhythm::is_over() const {
  if (queue_pair_ == Hosts::kNone) return true;
  const std::uint32_t left = simulator_.hosts().queue_pairs()[queue_pair_].queue_pair.message_left();
  return left < kLongPackets || left > left_;
}

std::int32_t PacketRhythm::rank() const {
  return queue_pair_ == Hosts::kNone ? -1 : simulator_.hosts().queue_pairs()[queue_pair_].rank;
}

void PacketRhythm::stop() {
  if (queue_pair_ == Hosts::kNone) return;
  queue_pair_ = Hosts::kNone;
  finder_.clear();
  simulator_.hosts().watch(Hosts::kNone);
}

void PacketRhythm::choose() {
  if (wait_ > 0) {
    --wait_;
    return;
  }
  const QueuePairs& queue_pairs = simulator_.hosts().queue_pairs();
  std::uint32_t most = kLongPackets - 1;
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    const std::uint32_t left = queue_pairs[id].queue_pair.message_left();
    if (left <= most || ahead_.rest().ranks[index(queue_pairs[id].rank)] == 0) continue;
    most = left;
    queue_pair_ = id;
  }
  if (queue_pair_ == Hosts::kNone) {
    wait_ = next_wait_;
    next_wait_ = std::min(2 * next_wait_, kWaitMost);
    return;
  }
  next_wait_ = 1;
  left_ = most;
  simulator_.hosts().watch(queue_pair_);
}

}  // namespace genie::twin
