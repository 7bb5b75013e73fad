#include "twin/network/shared_buffers.hpp"

#include <cassert>

namespace genie::twin {

SharedBuffers::SharedBuffers(const Network& network, std::uint32_t links)
    : config_(&network.buffer),
      headroom_bytes_(&network.link_headroom_bytes),
      pools_(index(network.nodes)),
      uses_(std::size_t{links} * kClasses),
      paused_ps_(links) {
  for (std::size_t node = index(network.hosts); node < pools_.size(); ++node)
    pools_[node].shared_bytes = network.shared_bytes[node];
}

SharedBuffers::Admission SharedBuffers::admit(std::int32_t node, std::uint32_t ingress,
                                              std::uint32_t priority, std::uint32_t wire_bytes, TimePs now) {
  Pool& pool = pools_[index(node)];
  pool.was_near = true;
  Use& use = use_of(ingress, priority);
  const bool lossless = (config_->lossless >> priority & 1) != 0;
  const std::int64_t wanted = use.bytes + wire_bytes;
  if (wanted > config_->reserve_bytes && wanted - config_->reserve_bytes > threshold(pool)) {
    if (!lossless || use.headroom_bytes + wire_bytes > (*headroom_bytes_)[ingress]) return Admission::kNoRoom;
    use.headroom_bytes += wire_bytes;
  } else {
    take(pool, use, wire_bytes);
  }
  if (!lossless || use.pausing || (use.headroom_bytes == 0 && taken(use) < threshold(pool)))
    return Admission::kTaken;
  use.pausing = true;
  use.paused_since = now;
  ++pool.pausing;
  return Admission::kTakenAndPause;
}

bool SharedBuffers::reserve(std::int32_t node, std::int64_t bytes) {
  Pool& pool = pools_[index(node)];
  pool.used_bytes += bytes;
  pool.reserved_bytes += bytes;
  pool.most_reserved_bytes = std::max(pool.most_reserved_bytes, bytes);
  return pool.pausing == 0 && has_reserve(pool);
}

bool SharedBuffers::release_pausing(Pool& pool, Use& use, std::uint32_t ingress, std::uint32_t wire_bytes,
                                    TimePs now) {
  const std::int64_t of_headroom = std::min<std::int64_t>(use.headroom_bytes, wire_bytes);
  use.headroom_bytes -= of_headroom;
  const std::int64_t before = taken(use);
  use.bytes -= wire_bytes - of_headroom;
  assert(use.bytes >= 0);
  pool.used_bytes += taken(use) - before;
  if (!use.pausing || use.headroom_bytes > 0) return false;
  if (taken(use) > 0 && taken(use) + config_->resume_bytes > threshold(pool)) return false;
  use.pausing = false;
  paused_ps_[ingress] += now - use.paused_since;
  --pool.pausing;
  return true;
}

void SharedBuffers::forget_pauses(std::int32_t node, std::uint32_t ingress, TimePs now) {
  for (std::uint32_t priority = 0; priority < kClasses; ++priority) {
    Use& use = use_of(ingress, priority);
    if (!use.pausing) continue;
    use.pausing = false;
    paused_ps_[ingress] += now - use.paused_since;
    --pools_[index(node)].pausing;
  }
}

void SharedBuffers::fold_ingress(Fold& fold, std::uint32_t ingress) {
  static_assert(has_size<SharedBuffers>(88));
  static_assert(has_size<Pool>(64));
  static_assert(has_size<Use>(32));
  for (std::uint32_t priority = 0; priority < kPauseClass; ++priority) {
    Use& use = use_of(ingress, priority);
    fold.exact(use.bytes, use.headroom_bytes, use.pausing);
    if (use.pausing) fold.since(use.paused_since);
  }
  fold.total(paused_ps_[ingress]);
}

TimePs SharedBuffers::pausing_ps(std::uint32_t ingress, TimePs now) const {
  TimePs sum = 0;
  for (std::uint32_t priority = 0; priority < kPauseClass; ++priority) {
    const Use& use = use_of(ingress, priority);
    if (use.pausing) sum += now - use.paused_since;
  }
  return sum;
}

}  // namespace genie::twin
