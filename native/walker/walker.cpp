#include "walker/walker.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace genie {
namespace {

// A receive step whose message has arrived before its dependencies were done has this added to its counter.
constexpr std::int32_t kArrivedEarly = 1 << 30;
constexpr std::uint32_t kWholeNode = 0xFFFFFFFFu;  // the step half of a handle that is a node's own
constexpr std::uint64_t kCreditHandle = ~std::uint64_t{0};

std::uint64_t key_of(std::int32_t peer, std::uint32_t tag) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(peer)) << 32) | tag;
}

std::uint64_t handle_of(std::int32_t node, std::uint32_t step) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32) | step;
}

template <class T>
std::int32_t take(std::vector<T>& pool, std::vector<std::int32_t>& free, const T& value) {
  if (free.empty()) {
    pool.push_back(value);
    return static_cast<std::int32_t>(pool.size()) - 1;
  }
  const std::int32_t at = free.back();
  free.pop_back();
  pool[static_cast<std::size_t>(at)] = value;
  return at;
}

// Appends pool entry `at` to the list (head, tail).
template <class T>
void append(std::vector<T>& pool, std::int32_t& head, std::int32_t& tail, std::int32_t at) {
  if (head < 0) {
    head = at;
  } else {
    pool[static_cast<std::size_t>(tail)].next = at;
  }
  tail = at;
}

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

}  // namespace

Walker::Walker(const SharedPlan& shared, const RankPlan& plan) : shared_(&shared), plan_(&plan) { reset(); }

void Walker::reset() {
  const std::size_t count = index(plan_->nodes());
  records_.assign(count, NodeRecord{});
  remaining_deps_.resize(count);
  for (std::size_t row = 0; row < count; ++row)
    remaining_deps_[row] = plan_->dep_start[row + 1] - plan_->dep_start[row];
  send_record_of_.assign(count, -1);
  instance_of_.assign(count, -1);
  slot_busy_.assign(index(plan_->slots), 0);
  slot_listed_.assign(index(plan_->slots), 0);
  slot_free_.assign(index(plan_->slots), 0);
  ready_floor_.assign(count, 0);
  slot_queue_.assign(index(plan_->slots), RowQueue{});
  runnable_ = RowQueue{};
  free_slots_.clear();
  finished_steps_.clear();
  next_finished_ = 0;
  instances_.clear();
  counters_.clear();
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
  unfinished_ = plan_->nodes();
  steps_done_ = 0;
  error_.clear();
}

void Walker::begin(TimePs now, std::vector<Operation>& operations) {
  now_ = logical_ = now;
  out_ = &operations;
  for (std::int32_t node = 0; node < plan_->nodes(); ++node) {
    if (remaining_deps_[index(node)] == 0) make_ready(node);
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

void Walker::timer(const Completion& completion) {
  const auto node = static_cast<std::int32_t>(completion.handle >> 32);
  NodeRecord& record = records_[index(node)];
  if (record.start < 0) {
    make_ready(node);  // its release time has come
    return;
  }
  record.overshoot = now_ - completion.time;
  end(node);
}

// The node's dependencies are done.
void Walker::make_ready(std::int32_t node) {
  const TimePs release = plan_->release_ps[index(node)];
  if (release > now_) {
    out_->push_back({.type = Operation::Type::kTimer, .handle = handle_of(node, kWholeNode), .at = release});
    return;
  }
  records_[index(node)].ready = std::max({logical_, ready_floor_[index(node)], release});
  const std::int32_t slot = plan_->slot[index(node)];
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
  const std::int32_t slot = plan_->slot[row];
  const auto kind = static_cast<NodeKind>(plan_->kind[row]);
  const bool sleeps = kind == NodeKind::kMeta || kind == NodeKind::kComp || kind == NodeKind::kMem;
  const TimePs free = slot >= 0 ? slot_free_[index(slot)] : 0;
  records_[row].start = sleeps ? std::max(records_[row].ready, free) : now_;
  logical_ = records_[row].start;
  switch (kind) {
    case NodeKind::kMeta:
      end(node);
      break;
    case NodeKind::kComp:
    case NodeKind::kMem:
      if (plan_->duration_ps[row] == 0) {
        end(node);
      } else {
        out_->push_back({.type = Operation::Type::kTimer,
                         .handle = handle_of(node, kWholeNode),
                         .at = records_[row].start + plan_->duration_ps[row]});
      }
      break;
    case NodeKind::kSend:
      sends_.push_back({.node = node, .peer = plan_->peer[row]});
      send_record_of_[row] = static_cast<std::int32_t>(sends_.size()) - 1;
      post(sends_.size() - 1, plan_->peer[row], plan_->tag[row], plan_->size_bytes[row],
           handle_of(node, kWholeNode));
      break;
    case NodeKind::kRecv:
      receives_.push_back({.node = node, .peer = plan_->peer[row]});
      send_record_of_[row] = static_cast<std::int32_t>(receives_.size()) - 1;
      open_lane(plan_->peer[row], plan_->tag[row], Lane{.instance = -1, .step = node});
      break;
    case NodeKind::kColl:
      if (plan_->template_id[row] < 0 || steps_of(node).steps() == 0) {
        end(node);
      } else {
        start_collective(node);
      }
      break;
  }
}

void Walker::end(std::int32_t node) {
  const std::size_t row = index(node);
  records_[row].end = logical_;
  --unfinished_;
  for (std::int32_t at = plan_->successor_start[row]; at < plan_->successor_start[row + 1]; ++at) {
    const std::int32_t next = plan_->successors[index(at)];
    ready_floor_[index(next)] = std::max(ready_floor_[index(next)], logical_);
    if (--remaining_deps_[index(next)] == 0) make_ready(next);
  }
  const std::int32_t slot = plan_->slot[row];
  if (slot < 0) return;
  slot_busy_[index(slot)] = 0;
  slot_free_[index(slot)] = logical_;
  look_at(slot);
}

std::int64_t Walker::block_size(std::int32_t node, std::int32_t step) const {
  const std::size_t row = index(node);
  return shared_->block_sizes[static_cast<std::size_t>(plan_->sizes_start[row] +
                                                       steps_of(node).block_of(step, plan_->position[row]))];
}

std::int32_t Walker::peer_rank(std::int32_t node, std::int32_t peer_value) const {
  const std::size_t row = index(node);
  const std::int64_t first = shared_->group_start[index(plan_->group[row])];
  const std::int32_t position = steps_of(node).position_of_peer(peer_value, plan_->position[row]);
  return shared_->group_members[static_cast<std::size_t>(first + position)];
}

void Walker::start_collective(std::int32_t node) {
  const StepTemplate& steps = steps_of(node);
  const std::size_t row = index(node);
  Instance instance{.node = node,
                    .remaining_steps = steps.steps(),
                    .counters = take_counters(steps.steps()),
                    .first_send = sends_.size(),
                    .first_receive = receives_.size()};
  for (std::int32_t step = 0; step < steps.steps(); ++step)
    counters_[instance.counters + index(step)] =
        steps.dep_start[index(step) + 1] - steps.dep_start[index(step)];
  for (std::int32_t peer : steps.send_peers) sends_.push_back({.node = node, .peer = peer_rank(node, peer)});
  for (std::int32_t peer : steps.receive_peers)
    receives_.push_back({.node = node, .peer = peer_rank(node, peer)});
  const auto id = static_cast<std::int32_t>(instances_.size());
  instance_of_[row] = id;
  instances_.push_back(instance);
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    if (steps.dep_start[index(step)] == steps.dep_start[index(step) + 1]) step_ready(id, step);
  }
  for (std::int32_t first : steps.first_receives) {
    Lane lane{.instance = id, .step = first};
    skip_empty(lane);
    if (lane.step >= 0)
      open_lane(peer_rank(node, steps.peer[index(first)]), plan_->tag[row] + steps.channel[index(first)],
                lane);
  }
}

// A step's dependencies are done: a send is posted, a receive may complete.
void Walker::step_ready(std::int32_t instance, std::int32_t step) {
  const std::int32_t node = instances_[index(instance)].node;
  const StepTemplate& steps = steps_of(node);
  const std::int64_t size = block_size(node, step);
  if (size == 0 && !steps.empty_messages) {
    finished_steps_.emplace_back(instance, step);
    return;
  }
  if (steps.action[index(step)] == static_cast<std::uint8_t>(StepAction::kSend)) {
    send_step(instance, step);
    return;
  }
  if (steps.credit[index(step)]) {
    const std::uint32_t tag = plan_->tag[index(node)] + steps.channel[index(step)];
    out_->push_back({.type = Operation::Type::kSend,
                     .handle = kCreditHandle,
                     .peer = peer_rank(node, steps.peer[index(step)]),
                     .tag = tag | kCreditTag,
                     .size_bytes = 0});
  }
  std::int32_t& counter = counters_[instances_[index(instance)].counters + index(step)];
  if (counter >= kArrivedEarly) finished_steps_.emplace_back(instance, step);
}

void Walker::send_step(std::int32_t instance, std::int32_t step) {
  const Instance& at = instances_[index(instance)];
  const StepTemplate& steps = steps_of(at.node);
  const std::int32_t peer = peer_rank(at.node, steps.peer[index(step)]);
  const std::uint32_t tag = plan_->tag[index(at.node)] + steps.channel[index(step)];
  if (steps.credit[index(step)]) {
    CreditMatch& match = credits_[key_of(peer, tag)];
    if (match.credits == 0 || match.wait_head >= 0) {
      const std::int32_t wait = take(credit_waits_, free_credit_waits_, CreditWait{instance, step, -1});
      append(credit_waits_, match.wait_head, match.wait_tail, wait);
      return;
    }
    if (--match.credits == 0) credits_.erase(key_of(peer, tag));
  }
  post(at.first_send + index(steps.transfer[index(step)]), peer, tag, block_size(at.node, step),
       handle_of(at.node, static_cast<std::uint32_t>(step)));
}

void Walker::post(std::size_t record, std::int32_t peer, std::uint32_t tag, std::int64_t size_bytes,
                  std::uint64_t handle) {
  SendRecord& send = sends_[record];
  if (send.post < 0) send.post = now_;
  if (send.outstanding++ == 0) send.busy_since = now_;
  ++send.messages;
  send.size_bytes += size_bytes;
  out_->push_back(
      {.type = Operation::Type::kSend, .handle = handle, .peer = peer, .tag = tag, .size_bytes = size_bytes});
}

void Walker::sent(const Completion& completion) {
  const auto node = static_cast<std::int32_t>(completion.handle >> 32);
  const auto step = static_cast<std::uint32_t>(completion.handle);
  const std::int32_t instance = instance_of_[index(node)];
  const std::size_t record =
      step == kWholeNode ? index(send_record_of_[index(node)])
                         : instances_[index(instance)].first_send + index(steps_of(node).transfer[step]);
  SendRecord& send = sends_[record];
  send.acked = completion.time;
  send.retransmits += completion.retransmits;
  if (--send.outstanding == 0) send.busy += completion.time - send.busy_since;
  if (step == kWholeNode) {
    end(node);
  } else {
    finished_steps_.emplace_back(instance, static_cast<std::int32_t>(step));
  }
}

void Walker::step_done(std::int32_t instance, std::int32_t step) {
  Instance& at = instances_[index(instance)];
  const StepTemplate& steps = steps_of(at.node);
  ++steps_done_;
  const std::int32_t first = steps.successor_start[index(step)],
                     last = steps.successor_start[index(step) + 1];
  for (std::int32_t entry = first; entry < last; ++entry) {
    const std::int32_t next = steps.successors[index(entry)];
    const std::int32_t counter = --counters_[at.counters + index(next)];
    if (counter == 0 || counter == kArrivedEarly) step_ready(instance, next);
  }
  if (--instances_[index(instance)].remaining_steps > 0) return;
  give_counters(instances_[index(instance)]);
  end(instances_[index(instance)].node);
}

// Room for the counters of `steps` steps; that of ended collectives is used again, so a long trace needs no
// more than its collectives in progress.
std::size_t Walker::take_counters(std::int32_t steps) {
  const auto room = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(steps - 1)));
  std::vector<std::size_t>& places = free_counters_[room];
  if (places.empty()) {
    places.push_back(counters_.size());
    counters_.resize(counters_.size() + (std::size_t{1} << room));
  }
  const std::size_t place = places.back();
  places.pop_back();
  return place;
}

void Walker::give_counters(const Instance& instance) {
  const auto steps = static_cast<std::uint32_t>(steps_of(instance.node).steps());
  free_counters_[static_cast<std::size_t>(std::bit_width(steps - 1))].push_back(instance.counters);
}

void Walker::skip_empty(Lane& lane) const {
  if (lane.instance < 0) return;
  const std::int32_t node = instances_[index(lane.instance)].node;
  const StepTemplate& steps = steps_of(node);
  if (steps.empty_messages) return;
  while (lane.step >= 0 && block_size(node, lane.step) == 0) lane.step = steps.next_receive[index(lane.step)];
}

void Walker::open_lane(std::int32_t peer, std::uint32_t tag, Lane lane) {
  const std::uint64_t key = key_of(peer, tag);
  Match& match = matches_[key];
  if (match.lane_head < 0) {
    while (match.arrival_head >= 0) {  // messages that came before anyone waited for them
      const std::int32_t at = match.arrival_head;
      const Arrival arrival = arrivals_[index(at)];
      match.arrival_head = arrival.next;
      free_arrivals_.push_back(at);
      if (!deliver(lane, arrival, peer)) {
        if (match.arrival_head < 0) matches_.erase(key);
        return;
      }
    }
  }
  append(lanes_, match.lane_head, match.lane_tail, take(lanes_, free_lanes_, lane));
}

void Walker::arrived(const Completion& completion) {
  if (completion.tag & kCreditTag) {
    credit_arrived(key_of(completion.peer, completion.tag & ~kCreditTag));
    return;
  }
  const std::uint64_t key = key_of(completion.peer, completion.tag);
  Match& match = matches_[key];
  const Arrival arrival{
      .size_bytes = completion.size_bytes, .first = completion.first, .time = completion.time};
  if (match.lane_head < 0) {
    append(arrivals_, match.arrival_head, match.arrival_tail, take(arrivals_, free_arrivals_, arrival));
    return;
  }
  const std::int32_t at = match.lane_head;
  Lane lane = lanes_[index(at)];
  const bool more = deliver(lane, arrival, completion.peer);
  lanes_[index(at)] = lane;
  if (more) return;
  match.lane_head = lane.next;
  free_lanes_.push_back(at);
  if (match.lane_head < 0 && match.arrival_head < 0) matches_.erase(key);
}

// Gives a message to the lane's next receive; false when the lane has no further one.
bool Walker::deliver(Lane& lane, const Arrival& arrival, std::int32_t peer) {
  const bool whole = lane.instance < 0;
  const std::int32_t node = whole ? lane.step : instances_[index(lane.instance)].node;
  const std::int64_t expected = whole ? plan_->size_bytes[index(node)] : block_size(node, lane.step);
  if (expected != arrival.size_bytes && error_.empty()) {
    error_ = "rank " + std::to_string(plan_->rank) + ", node row " + std::to_string(node) + ": expected " +
             std::to_string(expected) + " bytes from rank " + std::to_string(peer) + " and got " +
             std::to_string(arrival.size_bytes) + ": the two ranks' graphs disagree";
  }
  const std::size_t record = whole ? index(send_record_of_[index(node)])
                                   : instances_[index(lane.instance)].first_receive +
                                         index(steps_of(node).transfer[index(lane.step)]);
  ReceiveRecord& receive = receives_[record];
  if (receive.first < 0) receive.first = arrival.first;
  receive.last = arrival.time;
  ++receive.messages;
  receive.size_bytes += arrival.size_bytes;
  if (whole) {
    end(node);
    return false;
  }
  const std::int32_t step = lane.step;
  lane.step = steps_of(node).next_receive[index(step)];
  skip_empty(lane);
  std::int32_t& counter = counters_[instances_[index(lane.instance)].counters + index(step)];
  if (counter == 0) {
    finished_steps_.emplace_back(lane.instance, step);
  } else {
    counter += kArrivedEarly;
  }
  return lane.step >= 0;
}

void Walker::credit_arrived(std::uint64_t key) {
  CreditMatch& match = credits_[key];
  if (match.wait_head < 0) {
    ++match.credits;
    return;
  }
  const std::int32_t at = match.wait_head;
  const CreditWait wait = credit_waits_[index(at)];
  match.wait_head = wait.next;
  free_credit_waits_.push_back(at);
  if (match.wait_head < 0) credits_.erase(key);
  const Instance& instance = instances_[index(wait.instance)];
  const StepTemplate& steps = steps_of(instance.node);
  post(instance.first_send + index(steps.transfer[index(wait.step)]), static_cast<std::int32_t>(key >> 32),
       static_cast<std::uint32_t>(key), block_size(instance.node, wait.step),
       handle_of(instance.node, static_cast<std::uint32_t>(wait.step)));
}

// What a collective in progress lacks: the first peer of which it does, receives before sends.
std::string Walker::missing_steps(std::int32_t node) const {
  const Instance& instance = instances_[index(instance_of_[index(node)])];
  const StepTemplate& steps = steps_of(node);
  std::vector<std::int64_t> receives(steps.receive_peers.size(), 0), sends(steps.send_peers.size(), 0);
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    if (block_size(node, step) == 0 && !steps.empty_messages) continue;
    const bool send = steps.action[index(step)] == static_cast<std::uint8_t>(StepAction::kSend);
    ++(send ? sends : receives)[index(steps.transfer[index(step)])];
  }
  std::string text = "collective with " + std::to_string(instance.remaining_steps) + " steps left";
  for (std::size_t at = 0; at < receives.size(); ++at) {
    const ReceiveRecord& record = receives_[instance.first_receive + at];
    if (record.messages < receives[at])
      return text + ", " + std::to_string(record.messages) + " of " + std::to_string(receives[at]) +
             " messages received from rank " + std::to_string(record.peer);
  }
  for (std::size_t at = 0; at < sends.size(); ++at) {
    const SendRecord& record = sends_[instance.first_send + at];
    const std::int64_t acknowledged = record.messages - record.outstanding;
    if (acknowledged < sends[at])
      return text + ", " + std::to_string(acknowledged) + " of " + std::to_string(sends[at]) +
             " messages acknowledged by rank " + std::to_string(record.peer);
  }
  return text;
}

std::vector<std::string> Walker::waiting(std::size_t limit) const {
  std::vector<std::string> lines;
  std::int32_t not_ready = -1;
  for (std::int32_t node = 0; node < plan_->nodes() && lines.size() < limit; ++node) {
    const std::size_t row = index(node);
    if (records_[row].ready < 0 && not_ready < 0) not_ready = node;
    if (records_[row].start < 0 || records_[row].end >= 0) continue;
    std::string line = "rank " + std::to_string(plan_->rank) + ", node row " + std::to_string(node) + ": ";
    switch (static_cast<NodeKind>(plan_->kind[row])) {
      case NodeKind::kRecv:
        line += "receive of " + std::to_string(plan_->size_bytes[row]) + " bytes from rank " +
                std::to_string(plan_->peer[row]) + ", tag " + std::to_string(plan_->tag[row]);
        break;
      case NodeKind::kSend:
        line += "send of " + std::to_string(plan_->size_bytes[row]) + " bytes to rank " +
                std::to_string(plan_->peer[row]) + ", tag " + std::to_string(plan_->tag[row]);
        break;
      case NodeKind::kColl:
        line += missing_steps(node);
        break;
      default:
        line += "sleep";
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty() && not_ready >= 0 && limit > 0)
    lines.push_back("rank " + std::to_string(plan_->rank) + ", node row " + std::to_string(not_ready) +
                    ": not started: what it depends on or its release time has not come");
  return lines;
}

}  // namespace genie
