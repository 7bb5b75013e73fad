// Likeness of steps: how often a collective in progress can do again what it has just done.
#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/index.hpp"
#include "walker/parts.hpp"
#include "walker/walker.hpp"

namespace genie {

using namespace walker_parts;

// A step and the one `stride` later do the same once they are ready. Those after `touched`, for which no
// other is done, wait for equally many.
bool Walker::does_alike(const Instance& at, std::int32_t step, std::int32_t stride,
                        std::int32_t touched) const {
  const StepTemplate& steps = steps_of(at.node);
  const std::size_t one = index(step), other = index(step + stride);
  const auto dependencies = [&](std::size_t of) { return steps.dep_start[of + 1] - steps.dep_start[of]; };
  // A reduction may take longer than a receive: times are compared below.
  return steps.is_send(one) == steps.is_send(other) && steps.peer[one] == steps.peer[other] &&
         steps.channel[one] == steps.channel[other] && steps.credit[one] == steps.credit[other] &&
         (step <= touched || dependencies(one) == dependencies(other)) &&
         block_size(at.node, step) == block_size(at.node, step + stride) &&
         (!steps.has_times() ||
          (steps.delay[one] == steps.delay[other] && steps.delay_per_kib[one] == steps.delay_per_kib[other] &&
           steps.work_per_kib[one] == steps.work_per_kib[other]));
}

// True where the rows of a step and of the one `stride` later name the same steps, each `stride` later.
bool Walker::is_moved(const std::vector<std::int32_t>& starts, const std::vector<std::int32_t>& all,
                      std::int32_t step, std::int32_t stride) {
  const auto row = [&](std::int32_t of) {
    return std::span(all).subspan(index(starts[index(of)]), index(starts[index(of) + 1] - starts[index(of)]));
  };
  return std::ranges::equal(row(step), row(step + stride),
                            [stride](std::int32_t one, std::int32_t other) { return one + stride == other; });
}

// The furthest step that counts down, waits first in its row, or is received next. A receive that comes once,
// at the end, does not count: `stride` steps before it is no other from its peer.
std::int32_t Walker::furthest_step(std::int32_t instance, std::int32_t stride) const {
  const Instance& at = instances_[index(instance)];
  const StepTemplate& steps = steps_of(at.node);
  const std::int32_t counted = std::max(at.top, at.base);
  std::int32_t furthest = counted;
  credits_.each([&](std::uint64_t, const CreditMatch& match) {
    for (std::int32_t wait = match.wait_head; wait >= 0; wait = credit_waits_[index(wait)].next) {
      if (credit_waits_[index(wait)].instance != instance) continue;
      furthest = std::max(furthest, credit_waits_[index(wait)].step);
      break;
    }
  });
  matches_.each([&](std::uint64_t, const Match& match) {
    for (std::int32_t lane = match.lane_head; lane >= 0; lane = lanes_[index(lane)].next) {
      const Lane& own = lanes_[index(lane)];
      if (own.instance != instance || own.step <= furthest) continue;
      const std::int32_t before = own.step - stride;
      const bool may_have_moved = before >= 0 && before < steps.steps() && !steps.is_send(index(before)) &&
                                  steps.peer[index(before)] == steps.peer[index(own.step)] &&
                                  steps.channel[index(before)] == steps.channel[index(own.step)];
      if (own.step <= counted + 2 * stride || may_have_moved) furthest = own.step;
    }
  });
  return furthest;
}

Walker::NextReceives Walker::next_receives(std::int32_t instance) const {
  NextReceives found;
  const StepTemplate& steps = steps_of(instances_[index(instance)].node);
  matches_.each([&](std::uint64_t, const Match& match) {
    for (std::int32_t lane = match.lane_head; lane >= 0; lane = lanes_[index(lane)].next) {
      const Lane& own = lanes_[index(lane)];
      if (own.instance == instance)
        found[{steps.peer[index(own.step)], steps.channel[index(own.step)]}] = own.step;
    }
  });
  return found;
}

// False: it waits for another step, or for a message. A send that is ready may be done. An empty block comes
// in no message.
bool Walker::may_be_done(const Instance& at, std::int32_t step, const NextReceives& next_receives) const {
  if (step >= at.ready && !is_ready(counters_[at.counters + index(step)])) return false;
  const StepTemplate& steps = steps_of(at.node);
  const bool is_empty = !steps.empty_messages && block_size(at.node, step) == 0;
  if (steps.is_send(index(step)) || is_empty) return true;
  const auto next = next_receives.find({steps.peer[index(step)], steps.channel[index(step)]});
  return next == next_receives.end() || next->second > step;
}

// The furthest step that may be done.
std::int32_t Walker::furthest_done(std::int32_t instance, std::int32_t stride,
                                   const NextReceives& next_receives) const {
  const Instance& at = instances_[index(instance)];
  const StepTemplate& steps = steps_of(at.node);
  std::int32_t step = std::min(std::max(at.top, at.base), steps.steps() - 1);
  // A step that waits for no other may be done at any time.
  if (steps.last_free > step) return furthest_step(instance, stride);
  while (step >= at.ready && !may_be_done(at, step, next_receives)) --step;
  return step;
}

// Compares steps from `lowest` on with those `stride` after them. A step under way must do the same. A step
// that is done in one of the periods must lead to the same steps.
class Walker::Comparison {
 public:
  Comparison(const Walker& walker, std::int32_t instance, std::int32_t stride, std::int32_t lowest)
      : walker_(walker),
        at_(walker.instances_[index(instance)]),
        next_receives_(walker.next_receives(instance)),
        furthest_done_(walker.furthest_done(instance, stride, next_receives_)),
        furthest_(walker.furthest_step(instance, stride)),
        stride_(stride),
        lowest_(std::max(lowest, 0)),
        end_(walker.steps_of(at_.node).steps() - stride) {}

  std::int64_t repeats(std::int64_t most) const {
    const std::int64_t done = times(furthest_done_, most, [&](std::int32_t step) { return leads(step); });
    return times(furthest_, done, [&](std::int32_t step) { return does(step); });
  }
  std::int64_t periods_until_alike() const {
    // A step is unlike the one before it, and unlike the one after it.
    const std::int32_t led = last_unlike(furthest_done_ + stride_, [&](auto step) { return leads(step); });
    const std::int32_t done = last_unlike(furthest_, [&](auto step) { return does(step); });
    return std::max(
        {1, (led - furthest_done_ + 2 * stride_ - 1) / stride_, (done - lowest_ + stride_) / stride_});
  }

 private:
  // That a step is done before both states has led to what these have in common.
  bool leads(std::int32_t step) const {
    const StepTemplate& steps = walker_.steps_of(at_.node);
    const std::int32_t later = step + stride_;
    if (later <= furthest_done_ && !steps.has_times() && !steps.is_send(index(later)) &&
        walker_.may_be_done(at_, later, next_receives_))
      return true;
    return is_moved(steps.successor_start, steps.successors, step, stride_);
  }
  bool does(std::int32_t step) const { return walker_.does_alike(at_, step, stride_, at_.top - stride_); }

  template <class IsAlike>
  std::int64_t times(std::int32_t furthest, std::int64_t most, IsAlike is_alike) const {
    // Later steps do not matter, however long the collective is.
    const std::int64_t enough = most < end_ ? furthest + most * stride_ : end_;
    std::int32_t step = lowest_;
    while (step < std::min<std::int64_t>(end_, enough) && is_alike(step)) ++step;
    return std::clamp<std::int64_t>((step + stride_ - 1 - furthest) / stride_, 0, most);
  }
  template <class IsAlike>
  std::int32_t last_unlike(std::int32_t furthest, IsAlike is_alike) const {
    std::int32_t step = std::min(furthest, end_ - 1);
    while (step >= lowest_ && is_alike(step)) --step;
    return step;
  }

  const Walker& walker_;
  const Instance& at_;
  NextReceives next_receives_;
  std::int32_t furthest_done_, furthest_, stride_, lowest_, end_;
};

std::int64_t Walker::repeats(std::int32_t instance, std::int32_t stride, std::int32_t lowest,
                             std::int64_t most) const {
  return Comparison(*this, instance, stride, lowest).repeats(most);
}

std::int64_t Walker::periods_until_alike(std::int32_t instance, std::int32_t stride,
                                         std::int32_t lowest) const {
  return Comparison(*this, instance, stride, lowest).periods_until_alike();
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
    while (step + length < end && does_alike(at, step, length, step) &&
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
