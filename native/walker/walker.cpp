#include "walker/walker.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "core/mix.hpp"
#include "walker/parts.hpp"

namespace genie {

using namespace walker_parts;

Walker::Walker(const SharedPlan& shared, const RankPlan& plan, bool whole, bool keeps_records)
    : shared_(&shared), plan_(&plan), table_(plan.table.get()), whole_(whole), keeps_records_(keeps_records) {
  reset();
}

void Walker::reset() {
  const std::size_t count = index(table_->nodes());
  records_.assign(keeps_records_ ? count : 0, NodeRecord{});
  states_.assign(count, NodeState{});
  for (std::size_t row = 0; row < count; ++row)
    states_[row].waits_for = table_->dep_start[row + 1] - table_->dep_start[row];
  slot_busy_.assign(index(table_->slots), 0);
  slot_listed_.assign(index(table_->slots), 0);
  slot_free_.assign(index(table_->slots), 0);
  slot_queue_.assign(index(table_->slots), RowQueue{});
  runnable_ = RowQueue{};
  free_slots_.clear();
  finished_steps_.clear();
  next_finished_ = 0;
  instances_.clear();
  active_.clear();
  counters_.clear();
  channels_.clear();
  for (auto& places : free_channels_) places.clear();
  for (std::vector<std::size_t>& places : free_counters_) places.clear();
  matches_.clear();
  credits_.clear();
  lanes_.clear();
  arrivals_.clear();
  credit_waits_.clear();
  free_lanes_.clear();
  free_arrivals_.clear();
  free_credit_waits_.clear();
  sends_.clear();
  receives_.clear();
  unfinished_ = table_->nodes();
  steps_done_ = 0;
  last_end_ = 0;
  error_.clear();
}

void Walker::begin(TimePs now, std::vector<Operation>& operations) {
  now_ = logical_ = now;
  out_ = &operations;
  for (std::int32_t node = 0; node < table_->nodes(); ++node) {
    if (states_[index(node)].waits_for == 0) make_ready(node);
  }
  run();
}

void Walker::advance(TimePs now, std::span<const Completion> completions,
                     std::vector<Operation>& operations) {
  now_ = now;
  out_ = &operations;
  for (const Completion& completion : completions) {
    logical_ = completion.type == Completion::Type::kTimer ? completion.time : now;
    switch (completion.type) {
      case Completion::Type::kTimer:
        timer(completion);
        break;
      case Completion::Type::kSent:
        if (completion.handle != kCreditHandle) sent(completion);
        break;
      case Completion::Type::kArrived:
        arrived(completion);
        break;
    }
    run();
  }
}

// Finishes what can be finished and starts what can be started, until only the driver can change anything.
void Walker::run() {
  while (true) {
    if (next_finished_ < finished_steps_.size()) {
      // In the order in which they finished: sends of one channel must go out in step order.
      const auto [instance, step] = finished_steps_[next_finished_++];
      step_done(instance, step);
      if (next_finished_ == finished_steps_.size()) {
        finished_steps_.clear();
        next_finished_ = 0;
      }
    } else {
      const std::int32_t node = take_startable();
      if (node < 0) return;
      start(node);
    }
  }
}

// The lowest row of all that are ready and find their slot free, which it now holds; -1: none.
std::int32_t Walker::take_startable() {
  std::int32_t lowest = runnable_.empty() ? -1 : runnable_.top(), in_slot = -1;
  for (std::size_t at = 0; at < free_slots_.size();) {
    const std::int32_t slot = free_slots_[at];
    const RowQueue& queue = slot_queue_[index(slot)];
    if (slot_busy_[index(slot)] || queue.empty()) {
      slot_listed_[index(slot)] = 0;
      free_slots_[at] = free_slots_.back();
      free_slots_.pop_back();
      continue;
    }
    if (lowest < 0 || queue.top() < lowest) {
      lowest = queue.top();
      in_slot = slot;
    }
    ++at;
  }
  if (in_slot >= 0) {
    slot_queue_[index(in_slot)].pop();
    slot_busy_[index(in_slot)] = 1;
  } else if (lowest >= 0) {
    runnable_.pop();
  }
  return lowest;
}

Walker::RowQueue& Walker::Following::queue_of(std::int32_t slot) {
  const auto end = queues_.begin() + used_;
  const auto known =
      std::find_if(queues_.begin(), end, [slot](const SlotQueue& it) { return it.slot == slot; });
  if (known != end) return known->rows;
  if (end == queues_.end()) queues_.emplace_back();
  SlotQueue& own = queues_[static_cast<std::size_t>(used_++)];
  own.slot = slot;
  own.rows = walker_->slot_queue_[index(slot)];
  return own.rows;
}

std::int32_t Walker::Following::wait_less(std::int32_t row) {
  const auto known = std::ranges::find(waits_for_, row, &Waiting::row);
  if (known != waits_for_.end()) return --known->dependencies;
  const std::int32_t left = walker_->states_[index(row)].waits_for - 1;
  if (left > 0) waits_for_.push_back({row, left});
  return left;
}

std::int32_t Walker::Following::next(std::int32_t last) {
  const NodeTable& table = *walker_->table_;
  const std::int32_t slot = table.slot[index(last)];
  if (slot >= 0) queue_of(slot);
  for (std::int32_t at = table.successor_start[index(last)]; at < table.successor_start[index(last) + 1];
       ++at) {
    const std::int32_t row = table.successors[index(at)], own_slot = table.slot[index(row)];
    if (wait_less(row) > 0) continue;
    if (own_slot < 0 || table.release_ps[index(row)] > walker_->now_) return -1;
    if (!has_queue(own_slot) && walker_->slot_busy_[index(own_slot)] != 0) continue;
    queue_of(own_slot).push(row);
  }
  const auto end = queues_.begin() + used_;
  const auto starts = [](const SlotQueue& it) { return !it.rows.empty(); };
  const auto first = std::find_if(queues_.begin(), end, starts);
  if (first == end || std::find_if(std::next(first), end, starts) != end) return -1;
  const std::int32_t row = first->rows.top();
  first->rows.pop();
  return row;
}

void Walker::timer(const Completion& completion) {
  const auto node = static_cast<std::int32_t>(completion.handle >> 32);
  const auto step = static_cast<std::uint32_t>(completion.handle);
  const NodeState& state = states_[index(node)];
  if (step == kFirstStep) return begin_steps(state.place);
  if (step != kWholeNode) {
    const auto number = static_cast<std::int32_t>(step);
    if (steps_of(node).is_send(step)) return send_step(state.place, number);
    finished_steps_.emplace_back(state.place, number);
    return;
  }
  if (state.waits_for == 0) {
    make_ready(node);  // its release time has come
    return;
  }
  assert(state.waits_for == kStarted);
  if (keeps_records_) records_[index(node)].overshoot = now_ - completion.time;
  end(node);
}

// The node's dependencies are done.
void Walker::make_ready(std::int32_t node) {
  const TimePs release = table_->release_ps[index(node)];
  if (release > now_) {
    out_->push_back({.type = Operation::Type::kTimer, .handle = handle_of(node, kWholeNode), .at = release});
    return;
  }
  NodeState& state = states_[index(node)];
  state.time = std::max({logical_, state.time, release});
  state.waits_for = kReady;
  if (keeps_records_) records_[index(node)].ready = state.time;
  const std::int32_t slot = table_->slot[index(node)];
  if (slot < 0) {
    runnable_.push(node);
    return;
  }
  slot_queue_[index(slot)].push(node);
  look_at(slot);
}

void Walker::look_at(std::int32_t slot) {
  if (slot_listed_[index(slot)]) return;
  slot_listed_[index(slot)] = 1;
  free_slots_.push_back(slot);
}

void Walker::start(std::int32_t node) {
  const std::size_t row = index(node);
  // Sleeps follow one another at the times they were due; messages can only start now.
  const std::int32_t slot = table_->slot[row];
  const auto kind = static_cast<NodeKind>(table_->kind[row]);
  const bool sleeps = kind == NodeKind::kMeta || kind == NodeKind::kComp || kind == NodeKind::kMem;
  const TimePs free = slot >= 0 ? slot_free_[index(slot)] : 0;
  NodeState& state = states_[row];
  state.time = sleeps ? std::max(state.time, free) : now_;
  state.waits_for = kStarted;
  if (keeps_records_) records_[row].start = state.time;
  logical_ = state.time;
  switch (kind) {
    case NodeKind::kMeta:
      end(node);
      break;
    case NodeKind::kComp:
    case NodeKind::kMem:
      if (table_->duration_ps[row] == 0) {
        end(node);
      } else {
        out_->push_back({.type = Operation::Type::kTimer,
                         .handle = handle_of(node, kWholeNode),
                         .at = state.time + table_->duration_ps[row]});
      }
      break;
    case NodeKind::kSend:
      sends_.push_back({.node = node, .peer = plan_->bound(node).peer});
      state.place = static_cast<std::int32_t>(sends_.size()) - 1;
      post(sends_.size() - 1, plan_->bound(node).peer, plan_->tag(node), table_->size_bytes[row],
           handle_of(node, kWholeNode));
      break;
    case NodeKind::kRecv:
      receives_.push_back({.node = node, .peer = plan_->bound(node).peer});
      state.place = static_cast<std::int32_t>(receives_.size()) - 1;
      open_lane(plan_->bound(node).peer, plan_->tag(node), Lane{.instance = -1, .step = node});
      break;
    case NodeKind::kColl:
      if (plan_->bound(node).template_id < 0 || (!whole_ && steps_of(node).steps() == 0)) {
        end(node);
      } else if (whole_ || play_of(node) != Play::kOwn) {
        if (!whole_ && play_of(node) == Play::kHeld && keeps_records_) add_instance(node);
        const bool is_held = whole_ || play_of(node) == Play::kHeld;
        out_->push_back({.type = is_held ? Operation::Type::kMeet : Operation::Type::kBegin,
                         .handle = handle_of(node, kWholeNode),
                         .peer = plan_->bound(node).group,
                         .tag = plan_->tag(node)});
        if (!is_held) start_collective(node);
      } else {
        start_collective(node);
      }
      break;
  }
}

void Walker::end(std::int32_t node) {
  const std::size_t row = index(node);
  states_[row].waits_for = kEnded;
  if (keeps_end_order_) end_order_.push_back(node);
  if (keeps_records_) records_[row].end = logical_;
  last_end_ = std::max(last_end_, logical_);
  --unfinished_;
  for (std::int32_t at = table_->successor_start[row]; at < table_->successor_start[row + 1]; ++at) {
    const std::int32_t next = table_->successors[index(at)];
    NodeState& state = states_[index(next)];
    state.time = std::max(state.time, logical_);
    if (--state.waits_for == 0) make_ready(next);
  }
  const std::int32_t slot = table_->slot[row];
  if (slot < 0) return;
  slot_busy_[index(slot)] = 0;
  slot_free_[index(slot)] = logical_;
  look_at(slot);
}

}  // namespace genie
