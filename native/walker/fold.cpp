// Fold of a walker: the progress of its collectives, in steps from the first that is not ready or still
// waits.
#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "walker/parts.hpp"
#include "walker/walker.hpp"

namespace genie {

using namespace walker_parts;

void Walker::fold(Fold& fold) {
  static_assert(has_size<Walker>(2288));
  static_assert(has_size<Instance>(64));
  static_assert(has_size<SendRecord>(72));
  static_assert(has_size<ReceiveRecord>(40));
  static_assert(has_size<Channel>(24));
  static_assert(has_size<Match>(16));
  static_assert(has_size<Lane>(12));
  static_assert(has_size<Arrival>(32));
  static_assert(has_size<CreditMatch>(16));
  static_assert(has_size<CreditWait>(12));
  assert(finished_steps_.empty());
  fold.exact(unfinished_, instances_.size(), sends_.size(), receives_.size(), matches_.size(),
             credits_.size());
  for (const std::uint8_t busy : slot_busy_) fold.exact(busy);
  fold.base(steps_done_);  // no estimate moves a walker
  fold.exact(active_.size());
  for (const std::int32_t own : active_) this->fold(fold, instances_[index(own)]);
  matches_.each([&](std::uint64_t key, Match& match) {
    fold.exact(key);
    for (std::int32_t at = match.lane_head; at >= 0; at = lanes_[index(at)].next) {
      Lane& lane = lanes_[index(at)];
      if (lane.instance >= 0) {
        // A message that comes once, at the end, is waited for all along.
        Instance& own = instances_[index(lane.instance)];
        const auto base = static_cast<std::uint64_t>(own.base - own.shifted);
        own.lowest = std::min(own.lowest, lane.step);
        fold.exact(lane.instance);
        fold.either({base, base + static_cast<std::uint64_t>(own.shifted)}, lane.step);
      } else {
        fold.exact(lane.instance, lane.step);
      }
    }
    for (std::int32_t at = match.arrival_head; at >= 0; at = arrivals_[index(at)].next) {
      Arrival& arrival = arrivals_[index(at)];
      fold.exact(arrival.size_bytes);
      fold.latest(arrival.first);
      fold.latest(arrival.time);
    }
  });
  credits_.each([&](std::uint64_t key, CreditMatch& match) {
    fold.exact(key, match.credits);
    for (std::int32_t* at = &match.wait_head; *at >= 0;) at = fold_waits(fold, *at);
    if (match.wait_head < 0) match.wait_tail = -1;
  });
}

// A row of waiting steps that are equally far apart. What a collective sends without receiving is ready from
// its beginning: the end of such a row stays, and its first steps go. Returns the link to the next row, as a
// row may lose its head.
std::int32_t* Walker::fold_waits(Fold& fold, std::int32_t& head) {
  CreditWait& first = credit_waits_[index(head)];
  Instance& own = instances_[index(first.instance)];
  CreditWait* last = &first;
  std::int32_t apart = 0;
  std::uint64_t length = 1;
  while (last->next >= 0) {
    CreditWait& next = credit_waits_[index(last->next)];
    if (next.instance != first.instance || (length > 1 && next.step - last->step != apart)) break;
    apart = next.step - last->step;
    last = &next;
    ++length;
  }
  own.lowest = std::min(own.lowest, first.step);
  fold.exact(first.instance, apart, first.step - own.base + own.shifted);
  fold.left(length, 2);
  const std::int32_t end = last->step;
  const auto base = static_cast<std::uint64_t>(own.base - own.shifted);
  std::int32_t new_end = end;
  fold.either({base, base + static_cast<std::uint64_t>(own.shifted)}, new_end);
  if (new_end != end) {
    for (std::int32_t at = head; at != last->next; at = credit_waits_[index(at)].next) {
      std::int32_t& step = credit_waits_[index(at)].step;
      step += own.shifted;
      counters_[own.counters + index(step)] = 0;
    }
    own.top = std::max(own.top, new_end);
  } else {
    const std::int32_t begin = first.step + own.shifted;
    while (credit_waits_[index(head)].step < begin) {
      free_credit_waits_.push_back(head);
      head = credit_waits_[index(head)].next;
    }
  }
  return &last->next;
}

// The last step whose counter tells states apart. Those after it are as at the beginning, or are sends that
// wait, in ascending order in `waiting`. It is the top where a step that waits for no other leads on beyond
// it. Only what such a step has led to tells whether it is done.
std::int32_t Walker::find_last_counted(const Instance& at, const std::vector<std::int32_t>& waiting) const {
  const StepTemplate& steps = steps_of(at.node);
  std::int32_t step = at.top;
  for (std::size_t left = waiting.size(); step >= at.ready; --step) {
    while (left > 0 && waiting[left - 1] > step) --left;
    const bool is_waiting = left > 0 && waiting[left - 1] == step;
    const std::int32_t counter = counters_[at.counters + index(step)];
    if (!is_waiting && counter != steps.dependencies(index(step))) break;
  }
  return std::max(steps.last_free_lead > step ? at.top : step, at.ready - 1);
}

// Counters of steps that are ready mean nothing any more, and most late ones are as at the beginning. The
// first step that is not ready moves with the base or stays: where only sends that wait are left before it,
// these get fewer.
void Walker::fold(Fold& fold, Instance& at) {
  const StepTemplate& steps = steps_of(at.node);
  const auto counter = [&](std::int32_t step) -> std::int32_t& {
    return counters_[at.counters + index(step)];
  };
  while (at.ready < steps.steps() && is_ready(counter(at.ready))) ++at.ready;
  at.base = at.ready;
  std::vector<std::int32_t> waiting;
  credits_.each([&](std::uint64_t, const CreditMatch& match) {
    bool is_first = true;
    for (std::int32_t wait = match.wait_head; wait >= 0; wait = credit_waits_[index(wait)].next) {
      const CreditWait& own = credit_waits_[index(wait)];
      if (&instances_[index(own.instance)] != &at) continue;
      if (std::exchange(is_first, false)) at.base = std::min(at.base, own.step);
      waiting.push_back(own.step);
    }
  });
  std::ranges::sort(waiting);
  const std::int32_t first = at.lowest = at.base, begin = at.ready,
                     last = at.last_counted = find_last_counted(at, waiting);
  fold.exact(at.node, last - begin);
  for (std::int32_t step = begin; step <= last; ++step) fold.exact(counter(step));
  const Fold::Base base = fold.base(at.base, ~std::uint32_t{0});
  at.shifted = at.base - first;
  fold.either(base, at.ready);
  std::int64_t remaining = at.remaining_steps;
  fold.base(remaining);
  at.remaining_steps = static_cast<std::int32_t>(remaining);
  if (at.ready > begin) {
    at.top = std::max(at.top, last + at.shifted);
    at.last_counted += at.shifted;
    for (std::int32_t step = last; step >= begin; --step) counter(step + at.shifted) = counter(step);
    for (std::int32_t step = begin; step < at.ready; ++step) counter(step) = 0;
  }
  for (std::int32_t channel = 0; steps.has_times() && channel < steps.channels; ++channel) {
    Channel& own = channels_[at.first_channel + index(channel)];
    fold.not_before(own.free);
    fold.not_before(own.left, Channel::kApart);
    fold.not_before(own.received, Channel::kApart);
  }
  for (std::size_t peer = 0; peer < steps.send_peers.size(); ++peer) {
    SendRecord& send = sends_[at.first_send + peer];
    fold.exact(send.outstanding);
    fold.base(send.messages);
    fold.base(send.size_bytes);
    auto retransmits = static_cast<std::uint64_t>(send.retransmits);
    fold.rare(retransmits);
    send.retransmits = static_cast<std::int64_t>(retransmits);
    fold.latest(send.acked);
    fold.base(send.busy);
    fold.latest(send.busy_since);
  }
  for (std::size_t peer = 0; peer < steps.receive_peers.size(); ++peer) {
    ReceiveRecord& receive = receives_[at.first_receive + peer];
    fold.base(receive.messages);
    fold.base(receive.size_bytes);
    fold.latest(receive.last);
  }
}

std::uint64_t Walker::handle_of_node(std::int32_t node) { return handle_of(node, kWholeNode); }

bool Walker::is_of_node(std::uint64_t handle) {
  const auto step = static_cast<std::uint32_t>(handle);
  return step == kWholeNode || step == kFirstStep;
}

std::uint64_t Walker::relative(std::uint64_t handle) {
  const auto node = static_cast<std::int32_t>(handle >> 32);
  const auto step = static_cast<std::uint32_t>(handle);
  if (handle == kCreditHandle || is_of_node(handle)) return handle;
  Instance& own = instances_[index(states_[index(node)].place)];
  own.lowest = std::min(own.lowest, static_cast<std::int32_t>(step));
  return handle_of(node, step - static_cast<std::uint32_t>(own.base));
}

std::uint64_t Walker::moved(std::uint64_t handle) const {
  const auto node = static_cast<std::int32_t>(handle >> 32);
  const auto step = static_cast<std::uint32_t>(handle);
  if (handle == kCreditHandle || is_of_node(handle)) return handle;
  const Instance& own = instances_[index(states_[index(node)].place)];
  return handle_of(node, step + static_cast<std::uint32_t>(own.shifted));
}

std::vector<Walker::Progress> Walker::in_progress() const {
  std::vector<Progress> found;
  for (const std::int32_t own : active_)
    found.push_back(
        {own, instances_[index(own)].base, instances_[index(own)].lowest, instances_[index(own)].ready});
  return found;
}

std::int64_t Walker::steps_left() const {
  std::int64_t sum = 0;
  for (const std::int32_t own : active_) sum += instances_[index(own)].remaining_steps;
  return sum;
}

}  // namespace genie
