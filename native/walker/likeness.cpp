// Likeness of steps: how often a collective in progress can do again what it has just done.
#include <algorithm>
#include <cassert>
#include <span>
#include <vector>

#include "core/index.hpp"
#include "walker/parts.hpp"
#include "walker/walker.hpp"

namespace genie {

using namespace walker_parts;

namespace {

std::span<const std::int32_t> row_of(const std::vector<std::int32_t>& starts,
                                     const std::vector<std::int32_t>& all, std::int32_t step) {
  const std::int32_t first = starts[index(step)], end = starts[index(step) + 1];
  return std::span(all).subspan(index(first), index(end - first));
}

// True where the rows of a step and of the one `stride` later name the same steps, each `stride` later.
bool is_moved(const std::vector<std::int32_t>& starts, const std::vector<std::int32_t>& all,
              std::int32_t step, std::int32_t stride) {
  return std::ranges::equal(row_of(starts, all, step), row_of(starts, all, step + stride),
                            [stride](std::int32_t one, std::int32_t other) { return one + stride == other; });
}

}  // namespace

// A step and the one `stride` later do the same once they are ready.
bool Walker::does_same(const Instance& at, std::int32_t step, std::int32_t stride) const {
  const StepTemplate& steps = steps_of(at.node);
  const std::size_t one = index(step), other = index(step + stride);
  // A reduction may take longer than a receive: times are compared below.
  return steps.is_send(one) == steps.is_send(other) && steps.peer[one] == steps.peer[other] &&
         steps.channel[one] == steps.channel[other] && steps.credit[one] == steps.credit[other] &&
         block_size(at.node, step) == block_size(at.node, step + stride) &&
         (!steps.has_times() ||
          (steps.delay[one] == steps.delay[other] && steps.delay_per_kib[one] == steps.delay_per_kib[other] &&
           steps.work_per_kib[one] == steps.work_per_kib[other]));
}

// Compares the steps of a collective from `lowest` on with those `stride` after them. Steps that were done
// lately, or are under way, must do the same. Steps that are done in a period must lead to the same.
class Walker::Comparison {
 public:
  Comparison(const Walker& walker, const Progress& earlier, const Progress& later)
      : walker_(walker),
        instance_(later.instance),
        at_(walker.instances_[index(instance_)]),
        steps_(walker.steps_of(at_.node)),
        stays_ready_(later.ready == earlier.ready),
        stride_(later.base - earlier.base),
        lowest_(std::max(later.lowest - stride_, 0)),
        compared_end_(steps_.steps() - stride_),
        furthest_(furthest()),
        furthest_done_(furthest_done()) {
    assert(stride_ > 0 && earlier.instance == later.instance);
  }

  std::int64_t repeats(std::int64_t most) const {
    most = times(furthest_done_, most, [&](std::int32_t step) { return leads_alike(step); });
    return times(furthest_, most, [&](std::int32_t step) { return acts_alike(step); });
  }

  std::int64_t periods_until_alike() const {
    // An unlike step shows in two comparisons: with the one before it, and with the one after it.
    const std::int32_t last_lead =
        last_unlike(furthest_done_ + stride_, [&](std::int32_t step) { return leads_alike(step); });
    const std::int32_t last_work =
        last_unlike(furthest_, [&](std::int32_t step) { return acts_alike(step); });
    const auto until_below = [&](std::int32_t step) { return (step - lowest_ + stride_) / stride_; };
    const std::int32_t until_done = (last_lead - furthest_done_ + 2 * stride_ - 1) / stride_;
    const bool is_below = last_lead < lowest_ || is_known_when_done(last_lead + stride_);
    return std::max({1, is_below ? until_done : until_below(last_lead), until_below(last_work)});
  }

 private:
  // Such a step is done once it is ready and its message is there.
  bool is_known_when_done(std::int32_t step) const {
    return !steps_.has_times() && !steps_.is_send(index(step));
  }
  // Counters and rows of sends that wait have what done steps have led to, and are compared. Where the first
  // step that is not ready stays, a step that is done leads to no other.
  bool leads_alike(std::int32_t step) const {
    const std::int32_t later = step + stride_;
    if (stays_ready_) return successors_of(step).empty() && successors_of(later).empty();
    return (later <= furthest_done_ && is_known_when_done(later) && may_be_done(later)) ||
           (is_moved(steps_.successor_start, steps_.successors, step, stride_) &&
            std::ranges::all_of(successors_of(step),
                                [this](std::int32_t next) { return waits_alike(next); }));
  }
  // A send that is ready may wait long before it acts. Until then its row tells states apart, not its
  // counter.
  bool waits_alike(std::int32_t step) const {
    return !steps_.is_send(index(step)) || !steps_.credit[index(step)] ||
           (walker_.does_same(at_, step, stride_) && needs_as_many(step));
  }
  // States have compared no counter above `last_counted`: it is the number of dependencies, or of a send that
  // waits.
  bool acts_alike(std::int32_t step) const {
    const std::int32_t later = step + stride_;
    if (!walker_.does_same(at_, step, stride_)) return false;
    return stays_ready_ ? later < at_.ready : later <= at_.last_counted || needs_as_many(step);
  }
  bool needs_as_many(std::int32_t step) const {
    return steps_.dependencies(index(step)) == steps_.dependencies(index(step + stride_));
  }
  std::span<const std::int32_t> successors_of(std::int32_t step) const {
    return row_of(steps_.successor_start, steps_.successors, step);
  }

  // The furthest step that counts down, waits first in its row, or is received next. A receive that comes
  // once, at the end, does not count: `stride` steps before it is no other from its peer.
  std::int32_t furthest() const {
    const std::int32_t counted = stays_ready_ ? at_.base : std::max(at_.last_counted, at_.base);
    std::int32_t found = counted;
    walker_.credits_.each([&](std::uint64_t, const CreditMatch& match) {
      for (std::int32_t wait = match.wait_head; wait >= 0; wait = walker_.credit_waits_[index(wait)].next) {
        if (walker_.credit_waits_[index(wait)].instance != instance_) continue;
        found = std::max(found, walker_.credit_waits_[index(wait)].step);
        break;
      }
    });
    walker_.matches_.each([&](std::uint64_t, const Match& match) {
      const std::int32_t step = next_receive(match);
      if (step <= found) return;
      const std::int32_t before = step - stride_;
      const bool may_have_moved = before >= 0 && !steps_.is_send(index(before)) &&
                                  steps_.peer[index(before)] == steps_.peer[index(step)] &&
                                  steps_.channel[index(before)] == steps_.channel[index(step)];
      if (step <= counted + 2 * stride_ || may_have_moved) found = step;
    });
    return found;
  }

  // The furthest step that may be done.
  std::int32_t furthest_done() const {
    if (stays_ready_) return furthest_;
    std::int32_t step = std::min(std::max(at_.last_counted, at_.base), steps_.steps() - 1);
    // A step that waits for no other may be done at any time.
    if (steps_.last_free > step) return furthest_;
    while (step >= at_.ready && !may_be_done(step)) --step;
    return step;
  }

  // False: it waits for another step, or for a message. A send that is ready may be done. An empty block
  // comes in no message.
  bool may_be_done(std::int32_t step) const {
    if (step >= at_.ready && !is_ready(walker_.counters_[at_.counters + index(step)])) return false;
    const bool is_empty = !steps_.empty_messages && walker_.block_size(at_.node, step) == 0;
    if (steps_.is_send(index(step)) || is_empty) return true;
    const std::int32_t peer = walker_.peer_rank(walker_.plan_->bound(at_.node), steps_.peer[index(step)]);
    const std::uint32_t tag = walker_.plan_->tag(at_.node) + steps_.channel[index(step)];
    const Match* match = walker_.matches_.find(key_of(peer, tag));
    const std::int32_t next = match == nullptr ? -1 : next_receive(*match);
    return next < 0 || next > step;
  }

  // The next receive of the collective in this row; -1: none.
  std::int32_t next_receive(const Match& match) const {
    for (std::int32_t lane = match.lane_head; lane >= 0; lane = walker_.lanes_[index(lane)].next) {
      if (walker_.lanes_[index(lane)].instance == instance_) return walker_.lanes_[index(lane)].step;
    }
    return -1;
  }

  template <class IsAlike>
  std::int64_t times(std::int32_t furthest, std::int64_t most, IsAlike is_alike) const {
    // Later steps do not matter, however long the collective is.
    const std::int64_t enough = most < compared_end_ ? furthest + most * stride_ : compared_end_;
    std::int32_t step = lowest_;
    while (step < std::min<std::int64_t>(compared_end_, enough) && is_alike(step)) ++step;
    return std::clamp<std::int64_t>((step + stride_ - 1 - furthest) / stride_, 0, most);
  }
  template <class IsAlike>
  std::int32_t last_unlike(std::int32_t furthest, IsAlike is_alike) const {
    std::int32_t step = std::min(furthest, compared_end_ - 1);
    while (step >= lowest_ && is_alike(step)) --step;
    return step;
  }

  const Walker& walker_;
  std::int32_t instance_;
  const Instance& at_;
  const StepTemplate& steps_;
  bool stays_ready_;  // the first step that is not ready, while the base moves
  std::int32_t stride_, lowest_, compared_end_, furthest_, furthest_done_;
};

std::int64_t Walker::repeats(const Progress& earlier, const Progress& later, std::int64_t most) const {
  return Comparison(*this, earlier, later).repeats(most);
}

std::int64_t Walker::periods_until_alike(const Progress& earlier, const Progress& later) const {
  return Comparison(*this, earlier, later).periods_until_alike();
}

Walker::Loop Walker::loop(std::int32_t instance) const {
  constexpr std::int32_t kTimesLeast = 3;
  constexpr std::int64_t kScansMost = 64;
  const Instance& at = instances_[index(instance)];
  const StepTemplate& steps = steps_of(at.node);
  const std::int32_t end = steps.steps();
  const std::int32_t first = at.base + (end - at.base) / 4;  // the first loop is often another
  Loop best;
  std::int32_t furthest = first;
  std::int64_t compared_most = kScansMost * (end - first);  // steps
  for (std::int32_t length = 1; first + kTimesLeast * length <= end && furthest < end && compared_most > 0;
       ++length) {
    std::int32_t step = first;
    while (step + length < end && does_same(at, step, length) &&
           is_moved(steps.dep_start, steps.deps, step, length))
      ++step;
    compared_most -= step - first;
    const std::int32_t reach = step + length;
    if (reach - first < kTimesLeast * length || reach <= furthest) continue;
    furthest = reach;
    best = {length, 0};
    for (std::int32_t of = first; of < first + length; ++of) best.receives += !steps.is_send(index(of));
  }
  return best;
}

}  // namespace genie
