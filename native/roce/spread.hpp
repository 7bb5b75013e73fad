// Distribution of a connection's messages over its queue pairs, and restoration of their order. Pure, the
// same in both worlds; one at each end.
//
// Round robin: message n goes whole to queue pair n mod N. Split: each message goes in N parts, multiples of
// 128 bytes but the last, some of them empty. NCCL has both modes (NCCL_IB_QPS_PER_CONNECTION,
// NCCL_IB_SPLIT_DATA_ON_QPS). A queue pair keeps the order of its messages, so that the receiver knows by the
// same rule which comes next.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/clear_to_send.hpp"
#include "core/fold.hpp"
#include "core/time.hpp"

namespace genie::roce {

struct SpreadConfig {
  std::uint32_t queue_pairs = 1;
  bool split = false;

  // Each message goes in parts, one on each queue pair.
  bool is_parted() const { return split && queue_pairs > 1; }
};

class Spread {
 public:
  static constexpr std::uint64_t kPartAlignment = 128;

  // A message, or its part on one queue pair, that has arrived.
  struct Arrival {
    std::uint64_t size_bytes = 0;
    std::uint32_t tag = 0;
    TimePs first = 0, time = 0;
  };

  explicit Spread(const SpreadConfig& config)
      : config_(config), waiting_(config.queue_pairs > 1 ? config.queue_pairs : 0) {}

  // post(queue pair, handle, offset, bytes) for each part.
  template <class Post>
  void send(std::uint64_t handle, std::uint64_t size_bytes, Post post) {
    if (config_.queue_pairs == 1) return post(0u, handle, std::uint64_t{0}, size_bytes);
    if (!config_.split) return post(turn(next_out_), handle, std::uint64_t{0}, size_bytes);
    const std::uint64_t whole = open_whole(handle);
    const std::uint64_t share = (size_bytes + config_.queue_pairs - 1) / config_.queue_pairs;
    const std::uint64_t part = (share + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    for (std::uint32_t at = 0; at < config_.queue_pairs; ++at) {
      const std::uint64_t offset = std::min(at * part, size_bytes);
      post(at, whole, offset, std::min(part, size_bytes - offset));
    }
  }

  struct Sent {
    bool whole = false;  // all parts are
    std::uint64_t handle = 0;
    std::uint32_t retransmits = 0;
  };
  Sent sent(std::uint64_t handle, std::uint32_t retransmits) {
    if (!config_.is_parted()) return {true, handle, retransmits};
    assert(handle >= first_whole_ && handle - first_whole_ < wholes_.size());
    Whole& whole = wholes_[static_cast<std::size_t>(handle - first_whole_)];
    whole.retransmits += retransmits;
    if (--whole.left > 0) return {};
    const Sent all{true, whole.handle, whole.retransmits};
    while (!wholes_.empty() && wholes_.front().left == 0) {
      wholes_.pop_front();
      ++first_whole_;
    }
    return all;
  }

  // deliver(arrival) for each message that is complete and in its turn.
  template <class Deliver>
  void arrived(std::uint32_t queue_pair, const Arrival& arrival, Deliver deliver) {
    if (config_.queue_pairs == 1) return deliver(arrival);
    waiting_[queue_pair].push_back(arrival);
    if (config_.split) {
      while (std::none_of(waiting_.begin(), waiting_.end(), [](const auto& part) { return part.empty(); }))
        deliver(take_parts());
      return;
    }
    while (!waiting_[next_in_].empty()) {
      const Arrival message = waiting_[next_in_].front();
      waiting_[next_in_].pop_front();
      turn(next_in_);
      deliver(message);
    }
  }
  // Before the queue pairs of the connection, whose handles are relative to it.
  void fold_base(Fold& fold) { part_handles_.base = fold.base(first_whole_); }
  // A part has the number of its message as its handle.
  Fold::Handles& part_handles() { return part_handles_; }
  void fold(Fold& fold) {
    static_assert(has_size<Spread>(152));
    static_assert(has_size<Arrival>(32));
    static_assert(has_size<Whole>(16));
    fold.exact(next_out_, next_in_);
    for (std::deque<Arrival>& parts : waiting_) {
      fold.exact(parts.size());
      for (Arrival& part : parts) {
        fold.exact(part.size_bytes, part.tag);
        fold.latest(part.first);
        fold.latest(part.time);
      }
    }
    fold.exact(wholes_.size());
    for (Whole& whole : wholes_) {
      fold.exact(whole.left);
      if (whole.left == 0) continue;
      fold.exact(whole.retransmits);
      fold.handle(whole.handle);
    }
  }

 private:
  struct Whole {
    std::uint64_t handle = 0;
    std::uint32_t left = 0, retransmits = 0;
  };
  class PartHandles final : public Fold::Handles {
   public:
    std::uint64_t relative(std::uint64_t handle) override {
      return handle == kCreditHandle ? handle : handle - base.before;
    }
    std::uint64_t moved(std::uint64_t handle) const override {
      return handle == kCreditHandle ? handle : handle - base.before + base.after;
    }

    Fold::Base base{};
  };

  std::uint32_t turn(std::uint32_t& next) const {
    const std::uint32_t now = next;
    next = next + 1 == config_.queue_pairs ? 0 : next + 1;
    return now;
  }

  std::uint64_t open_whole(std::uint64_t handle) {
    wholes_.push_back({handle, config_.queue_pairs, 0});
    return first_whole_ + wholes_.size() - 1;
  }

  Arrival take_parts() {
    Arrival message = waiting_[0].front();
    message.size_bytes = 0;
    for (std::deque<Arrival>& parts : waiting_) {
      const Arrival& part = parts.front();
      message.size_bytes += part.size_bytes;
      message.first = std::min(message.first, part.first);
      message.time = std::max(message.time, part.time);
      parts.pop_front();
    }
    return message;
  }

  SpreadConfig config_;
  std::uint32_t next_out_ = 0, next_in_ = 0;
  std::vector<std::deque<Arrival>> waiting_;  // by queue pair, in the order of its messages
  // Messages that are not over, in the order in which they were sent, and the number of the first.
  std::deque<Whole> wholes_;
  std::uint64_t first_whole_ = 0;
  PartHandles part_handles_;
};

}  // namespace genie::roce
