// The twin's events: each source (a link, a NIC port, a timer) has at most one, taken in the order (time,
// source), never in that of insertion, so that the order is the same however events came in.
//
// A bitmap wheel of buckets; what lies beyond its horizon waits in a heap. A bucket is sorted when its turn
// comes. Measured against heaps by pops and pushes of a hold model it is three to five times as fast.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

struct Event {
  TimePs time;
  std::uint32_t source;

  friend bool operator<(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.source < b.source;
  }
  friend bool operator==(const Event&, const Event&) = default;
};

class EventWheel {
 public:
  // A bucket is 2^bucket_shift ps long; there are 2^bucket_bits of them.
  explicit EventWheel(unsigned bucket_shift = 9, unsigned bucket_bits = 13)
      : shift_(bucket_shift),
        mask_((std::uint64_t{1} << bucket_bits) - 1),
        heads_(mask_ + 1, kNone),
        occupied_((mask_ + 1) / 64) {}

  // Sources are 0 to `count` - 1.
  void resize(std::uint32_t count) { nodes_.resize(count); }

  bool pending(std::uint32_t source) const { return nodes_[source].time != kNever; }
  TimePs time_of(std::uint32_t source) const { return nodes_[source].time; }

  // The source's event is at `time`, not before the last one taken; an earlier wish of it is forgotten.
  void schedule(std::uint32_t source, TimePs time) {
    if (nodes_[source].time != kNever) cancel(source);
    add(source, time);
  }

  // The same for a source that has none.
  void add(std::uint32_t source, TimePs time) {
    nodes_[source].time = time;
    ++count_;
    const std::uint64_t bucket = bucket_of(time);
    if (bucket - now_ - 1 < mask_) {
      link(source, bucket & mask_);
    } else {
      place(source, time);
    }
  }

  void cancel(std::uint32_t source) {
    Node& node = nodes_[source];
    if (node.time == kNever) return;
    const std::uint64_t bucket = bucket_of(node.time);
    if (bucket != now_ && bucket - now_ <= mask_ && unlink(source, bucket & mask_)) --placed_;
    // In the bucket whose turn it is, and in the heap, it is passed over.
    node.time = kNever;
    --count_;
  }

  bool empty() const { return count_ == 0; }

  // The next event; false when there is none. It is the source's no longer.
  bool take(Event& event) {
    while (true) {
      while (at_ < due_.size()) {
        event = due_[at_++];
        if (nodes_[event.source].time != event.time) continue;  // cancelled
        nodes_[event.source].time = kNever;
        --count_;
        return true;
      }
      if (count_ == 0) return false;
      turn();
    }
  }

  // The source of an event that comes soon after the next, for fetching its memory early; kNone if not known.
  std::uint32_t soon(std::size_t after) const {
    return at_ + after < due_.size() ? due_[at_ + after].source : kNone;
  }
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // When the next event is; kNever without one.
  TimePs next_time() {
    while (true) {
      for (; at_ < due_.size(); ++at_) {
        if (nodes_[due_[at_].source].time == due_[at_].time) return due_[at_].time;
      }
      if (count_ == 0) return kNever;
      turn();
    }
  }

 private:
  static constexpr std::uint64_t kNoBucket = ~std::uint64_t{0} >> 1;

  struct Node {
    TimePs time = kNever;
    std::uint32_t next = kNone;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return b < a; }
  };

  std::uint64_t bucket_of(TimePs time) const { return static_cast<std::uint64_t>(time) >> shift_; }

  void place(std::uint32_t source, TimePs time) {
    const std::uint64_t bucket = bucket_of(time);
    if (bucket <= now_) {
      const Event event{time, source};
      due_.insert(std::upper_bound(due_.begin() + static_cast<std::ptrdiff_t>(at_), due_.end(), event), event);
    } else if (bucket - now_ <= mask_) {
      link(source, bucket & mask_);
    } else {
      far_.push_back({time, source});
      std::push_heap(far_.begin(), far_.end(), Later());
      note_far();
    }
  }

  void link(std::uint32_t source, std::uint64_t slot) {
    nodes_[source].next = heads_[slot];
    heads_[slot] = source;
    occupied_[slot / 64] |= std::uint64_t{1} << (slot % 64);
    ++placed_;
  }

  bool unlink(std::uint32_t source, std::uint64_t slot) {
    for (std::uint32_t* at = &heads_[slot]; *at != kNone; at = &nodes_[*at].next) {
      if (*at != source) continue;
      *at = nodes_[source].next;
      if (heads_[slot] == kNone) occupied_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
      return true;
    }
    return false;  // beyond the horizon when it was placed
  }

  // On to the next bucket that has events.
  void turn() {
    due_.clear();
    at_ = 0;
    if (far_bucket_ - now_ <= mask_) bring_near();
    if (placed_ == 0) {  // nothing within the horizon: on to the nearest beyond
      drop_stale();
      now_ = bucket_of(far_.front().time);
      bring_near();
      return;
    }
    const std::uint64_t slot = next_slot((now_ + 1) & mask_);
    now_ += ((slot - now_ - 1) & mask_) + 1;
    for (std::uint32_t source = heads_[slot]; source != kNone; source = nodes_[source].next) {
      due_.push_back({nodes_[source].time, source});
      --placed_;
    }
    heads_[slot] = kNone;
    occupied_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
    sort_due();
    if (far_bucket_ - now_ <= mask_) bring_near();
  }

  void sort_due() {
    if (due_.size() > 24) {
      std::sort(due_.begin(), due_.end());
      return;
    }
    for (std::size_t at = 1; at < due_.size(); ++at) {
      const Event event = due_[at];
      std::size_t hole = at;
      for (; hole > 0 && event < due_[hole - 1]; --hole) due_[hole] = due_[hole - 1];
      due_[hole] = event;
    }
  }

  // The first occupied slot from `slot` on, around the wheel. There is one.
  std::uint64_t next_slot(std::uint64_t slot) const {
    std::uint64_t word = slot / 64;
    std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << (slot % 64));
    while (bits == 0) {
      word = word + 1 == occupied_.size() ? 0 : word + 1;
      bits = occupied_[word];
    }
    return word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
  }

  void drop_stale() {
    while (!far_.empty() && nodes_[far_.front().source].time != far_.front().time) {
      std::pop_heap(far_.begin(), far_.end(), Later());
      far_.pop_back();
    }
  }

  // Events of the heap that the horizon has come to.
  void bring_near() {
    drop_stale();
    while (!far_.empty() && bucket_of(far_.front().time) - now_ <= mask_) {
      const Event event = far_.front();
      std::pop_heap(far_.begin(), far_.end(), Later());
      far_.pop_back();
      while (!far_.empty() && far_.front() == event) {  // wished for, forgotten and wished for again
        std::pop_heap(far_.begin(), far_.end(), Later());
        far_.pop_back();
      }
      place(event.source, event.time);
      drop_stale();
    }
    note_far();
  }

  void note_far() { far_bucket_ = far_.empty() ? kNoBucket : bucket_of(far_.front().time); }

  unsigned shift_;
  std::uint64_t mask_;
  std::vector<std::uint32_t> heads_;      // by bucket: a list through nodes_
  std::vector<std::uint64_t> occupied_;   // a bit for each bucket
  std::vector<Node> nodes_;               // by source
  std::vector<Event> due_;                // the bucket whose turn it is, in order
  std::size_t at_ = 0;                    // of due_
  std::vector<Event> far_;                // a heap, with events that are wanted no more
  std::uint64_t far_bucket_ = kNoBucket;  // of the first of them, wanted or not
  std::uint64_t now_ = 0;                 // bucket whose turn it is
  std::uint64_t count_ = 0, placed_ = 0;  // events; of them in buckets to come
};

}  // namespace genie::twin
