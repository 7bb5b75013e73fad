// Buffers that the ports of a switch share, with dynamic thresholds (Choudhury and Hahne, 1998), and the
// sources that these have told to pause, by priority (IEEE 802.1Qbb). Frames are the caller's to send.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fold.hpp"
#include "core/index.hpp"
#include "core/time.hpp"
#include "twin/fabric/network.hpp"
#include "twin/kernel/huge_pages.hpp"

namespace genie::twin {

class SharedBuffers {
 public:
  enum class Admission : std::uint8_t { kNoRoom, kTaken, kTakenAndPause };

  // `links`: the network's, and one from each host to itself.
  SharedBuffers(const Network& network, std::uint32_t links);

  bool is_shared(std::int32_t node) const { return pools_[index(node)].shared_bytes > 0; }
  // True if a switch has told any source to pause.
  bool is_pausing(std::int32_t node) const { return pools_[index(node)].pausing > 0; }
  bool is_pausing(std::uint32_t ingress, std::uint32_t priority) const {
    return use_of(ingress, priority).pausing;
  }

  // Takes a packet that is far from every threshold by upper bounds: packets that have left and are not
  // drained still count. False says nothing.
  [[gnu::always_inline]] bool admit_far(std::int32_t node, std::uint32_t ingress, std::uint32_t priority,
                                        std::uint32_t wire_bytes) {
    Pool& pool = pools_[index(node)];
    Use& use = use_of(ingress, priority);
    assert(pool.shared_bytes > 0 && priority < kPauseClass);
    if (pool.pausing > 0) return false;
    if (pool.reserved_bytes > 0 && !has_reserve(pool)) [[unlikely]]
      return false;
    const std::int64_t most = use.bytes + wire_bytes - config_->reserve_bytes;
    if (most >= threshold(pool) - wire_bytes) return false;
    take(pool, use, wire_bytes);
    return true;
  }
  // Room for packets that are played apart, while they are: it counts as used. One input may take all of it.
  // True if none of these come near a threshold.
  bool reserve(std::int32_t node, std::int64_t bytes);
  void give_back(std::int32_t node, std::int64_t bytes) {
    pools_[index(node)].used_bytes -= bytes;
    pools_[index(node)].reserved_bytes -= bytes;
  }
  // A packet has been near a threshold of any switch.
  bool was_near() const {
    return std::ranges::any_of(pools_, [](const Pool& pool) { return pool.was_near; });
  }
  // Asks early for what the packets of a link and priority will take.
  void fetch(std::uint32_t ingress, std::uint32_t priority) const {
    __builtin_prefetch(&use_of(ingress, priority), 1);
  }
  // By exact numbers: all that has left the switch before `now` has been released.
  Admission admit(std::int32_t node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes,
                  TimePs now);
  // A packet has left; true: its source, which has been told to pause, may send again.
  [[gnu::always_inline]] bool release(std::int32_t node, std::uint32_t ingress, std::uint32_t priority,
                                      std::uint32_t wire_bytes, TimePs now) {
    Pool& pool = pools_[index(node)];
    Use& use = use_of(ingress, priority);
    if (use.headroom_bytes != 0 || use.pausing) return release_pausing(pool, use, ingress, wire_bytes, now);
    const std::int64_t reserve = config_->reserve_bytes, before = use.bytes;
    use.bytes -= wire_bytes;
    assert(use.bytes >= 0);
    pool.used_bytes -= std::max(before, reserve) - std::max(use.bytes, reserve);
    return false;
  }
  // The cable of `ingress` is cut: no source is paused by it any more, as far as its target `node` knows.
  void forget_pauses(std::int32_t node, std::uint32_t ingress, TimePs now);

  // Time for which the source of a link has been told to pause, pauses that have not ended left out.
  TimePs paused_ps(std::uint32_t ingress) const { return paused_ps_[ingress]; }
  // Those alone, at `now`.
  TimePs pausing_ps(std::uint32_t ingress, TimePs now) const;
  // Goes on from the state of another's switch, beside what has been taken over, and of a link's packets in
  // its target. Nothing is paused, and nothing is reserved.
  void take_over_node(const SharedBuffers& earlier, std::int32_t from, std::int32_t node) {
    const Pool& other = earlier.pools_[index(from)];
    Pool& own = pools_[index(node)];
    assert(other.pausing == 0 && other.reserved_bytes == 0);
    own.used_bytes += other.used_bytes;
    own.was_near |= other.was_near;
  }
  void take_over_ingress(const SharedBuffers& earlier, std::uint32_t from, std::uint32_t link) {
    for (std::uint32_t priority = 0; priority < kClasses; ++priority)
      use_of(link, priority).bytes += earlier.use_of(from, priority).bytes;
  }
  // All that has left has been released.
  void fold_node(Fold& fold, std::int32_t node) {
    fold.exact(pools_[index(node)].used_bytes, pools_[index(node)].pausing);
  }
  void fold_ingress(Fold& fold, std::uint32_t ingress);

 private:
  struct alignas(64) Pool {         // of a switch
    std::int64_t shared_bytes = 0;  // for all; 0: no shared buffer
    std::int64_t used_bytes = 0;    // of it
    std::int64_t reserved_bytes = 0, most_reserved_bytes = 0;
    std::uint32_t pausing = 0;  // (ingress, priority) that have been told to pause
    bool was_near = false;      // a packet has been near a threshold
  };
  struct Use {  // by link and priority: what has come by it and waits in its target
    std::int64_t bytes = 0, headroom_bytes = 0;
    TimePs paused_since = 0;
    bool pausing = false;  // its source has been told to pause
  };

  Use& use_of(std::uint32_t ingress, std::uint32_t priority) {
    return uses_[std::size_t{ingress} * kClasses + priority];
  }
  const Use& use_of(std::uint32_t ingress, std::uint32_t priority) const {
    return uses_[std::size_t{ingress} * kClasses + priority];
  }
  // The bytes of a use beyond its reserve.
  std::int64_t taken(const Use& use) const {
    return std::max<std::int64_t>(use.bytes - config_->reserve_bytes, 0);
  }
  std::int64_t threshold(const Pool& pool) const {
    return config_->threshold_bytes(pool.shared_bytes - pool.used_bytes);
  }
  // Those that are played apart are far from the threshold.
  bool has_reserve(const Pool& pool) const {
    constexpr std::int64_t kFrames = 1 << 17;  // two of the largest
    return pool.most_reserved_bytes + kFrames < threshold(pool);
  }
  void take(Pool& pool, Use& use, std::uint32_t wire_bytes) const {
    const std::int64_t before = taken(use);
    use.bytes += wire_bytes;
    pool.used_bytes += taken(use) - before;
  }
  bool release_pausing(Pool& pool, Use& use, std::uint32_t ingress, std::uint32_t wire_bytes, TimePs now);

  const BufferConfig* config_;
  const std::vector<std::int64_t>* headroom_bytes_;  // by link
  std::vector<Pool> pools_;                          // by node
  std::vector<Use, HugeAllocator<Use>> uses_;        // by link and priority
  std::vector<TimePs> paused_ps_;                    // by link
};

}  // namespace genie::twin
