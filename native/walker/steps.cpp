// The walker's messages: collectives step by step, matching of arrivals, clear-to-sends.
#include <algorithm>
#include <bit>
#include <utility>

#include "walker/parts.hpp"
#include "walker/walker.hpp"

namespace genie {

using namespace walker_parts;

std::int64_t Walker::block_size(std::int32_t node, std::int32_t step) const {
  const Binding& own = plan_->bound(node);
  const StepTemplate& steps = shared_->templates[index(own.template_id)];
  return shared_->block_sizes[static_cast<std::size_t>(own.sizes_start + steps.block_of(step, own.position))];
}

// A collective's instance, with its records.
std::int32_t Walker::add_instance(std::int32_t node) {
  const StepTemplate& steps = steps_of(node);
  const auto id = static_cast<std::int32_t>(instances_.size());
  states_[index(node)].place = id;
  instances_.push_back({.node = node,
                        .remaining_steps = steps.steps(),
                        .first_send = sends_.size(),
                        .first_receive = receives_.size()});
  for (std::int32_t peer : steps.send_peers)
    sends_.push_back({.node = node, .peer = peer_rank(plan_->bound(node), peer)});
  for (std::int32_t peer : steps.receive_peers)
    receives_.push_back({.node = node, .peer = peer_rank(plan_->bound(node), peer)});
  return id;
}

void Walker::start_collective(std::int32_t node) {
  const StepTemplate& steps = steps_of(node);
  const std::int32_t id = add_instance(node);
  const std::size_t counters = take_counters(steps.steps());
  instances_[index(id)].counters = counters;
  for (std::int32_t step = 0; step < steps.steps(); ++step)
    counters_[counters + index(step)] = steps.dep_start[index(step) + 1] - steps.dep_start[index(step)];
  active_.push_back(id);
  if (steps.has_times()) {
    instances_.back().first_channel = take_channels(steps.channels);
    if (steps.start_delay > 0) {
      out_->push_back({.type = Operation::Type::kTimer,
                       .handle = handle_of(node, kFirstStep),
                       .at = now_ + steps.start_delay});
      return;
    }
  }
  begin_steps(id);
}

void Walker::begin_steps(std::int32_t id) {
  const std::int32_t node = instances_[index(id)].node;
  const StepTemplate& steps = steps_of(node);
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    if (steps.dep_start[index(step)] == steps.dep_start[index(step) + 1]) step_ready(id, step);
  }
  for (std::int32_t first : steps.first_receives) {
    Lane lane{.instance = id, .step = first};
    skip_empty(lane);
    if (lane.step >= 0)
      open_lane(peer_rank(plan_->bound(node), steps.peer[index(first)]),
                plan_->tag(node) + steps.channel[index(first)], lane);
  }
}

void Walker::take_held(std::int32_t node, std::span<const SendRecord> sends,
                       std::span<const ReceiveRecord> receives, TimePs from) {
  if (!keeps_records_) {
    steps_done_ += steps_of(node).steps();
    return;
  }
  Instance& at = instances_[index(states_[index(node)].place)];
  const auto moved = [from](TimePs time) { return time < 0 ? time : time + from; };
  for (std::size_t place = 0; place < sends.size(); ++place) {
    SendRecord& own = sends_[at.first_send + place];
    const std::int32_t peer = own.peer;
    own = sends[place];
    own.node = node;
    own.peer = peer;
    own.post = moved(own.post);
    own.acked = moved(own.acked);
    own.busy_since = moved(own.busy_since);
  }
  for (std::size_t place = 0; place < receives.size(); ++place) {
    ReceiveRecord& own = receives_[at.first_receive + place];
    const std::int32_t peer = own.peer;
    own = receives[place];
    own.node = node;
    own.peer = peer;
    own.first = moved(own.first);
    own.last = moved(own.last);
  }
  steps_done_ += std::exchange(at.remaining_steps, 0);
}

void Walker::record_whole(std::int32_t node, TimePs from, TimePs to) {
  const StepTemplate& steps = steps_of(node);
  const std::size_t first_send = sends_.size(), first_receive = receives_.size();
  for (std::int32_t peer : steps.send_peers)
    sends_.push_back({.node = node,
                      .peer = peer_rank(plan_->bound(node), peer),
                      .post = from,
                      .acked = to,
                      .busy = to - from});
  for (std::int32_t peer : steps.receive_peers)
    receives_.push_back(
        {.node = node, .peer = peer_rank(plan_->bound(node), peer), .first = from, .last = to});
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    const std::int64_t size = block_size(node, step);
    if (size == 0 && !steps.empty_messages) continue;
    const std::size_t at = index(steps.transfer[index(step)]);
    if (steps.is_send(index(step))) {
      ++sends_[first_send + at].messages;
      sends_[first_send + at].size_bytes += size;
    } else {
      ++receives_[first_receive + at].messages;
      receives_[first_receive + at].size_bytes += size;
    }
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
  if (steps.is_send(index(step))) {
    if (steps.has_times()) {
      const TimePs at = leaves_at(instances_[index(instance)], step, size);
      if (at <= now_) return send_step(instance, step);
      out_->push_back({.type = Operation::Type::kTimer,
                       .handle = handle_of(node, static_cast<std::uint32_t>(step)),
                       .at = at});
      return;
    }
    if (shared_->slice_delay == 0 || !steps.credit[index(step)]) return send_step(instance, step);
    // All of a lane take equally long, so that they keep their order.
    out_->push_back({.type = Operation::Type::kTimer,
                     .handle = handle_of(node, static_cast<std::uint32_t>(step)),
                     .at = now_ + shared_->slice_delay});
    return;
  }
  if (steps.credit[index(step)]) {
    const std::uint32_t tag = plan_->tag(node) + steps.channel[index(step)];
    out_->push_back({.type = Operation::Type::kSend,
                     .handle = kCreditHandle,
                     .peer = peer_rank(plan_->bound(node), steps.peer[index(step)]),
                     .tag = tag | kCreditTag,
                     .size_bytes = kCreditBytes});
  }
  std::int32_t& counter = counters_[instances_[index(instance)].counters + index(step)];
  if (counter >= kArrivedEarly) receive_done(instance, step);
}

// A message has come and its receive is ready: the GPU takes it over.
void Walker::receive_done(std::int32_t instance, std::int32_t step) {
  const std::int32_t node = instances_[index(instance)].node;
  const StepTemplate& steps = steps_of(node);
  const TimePs delay = steps.has_times() ? steps.delay[index(step)] : 0;
  if (delay == 0) {
    finished_steps_.emplace_back(instance, step);
    return;
  }
  Channel& channel = channels_[instances_[index(instance)].first_channel + steps.channel[index(step)]];
  channel.received = std::max(channel.received + Channel::kApart, now_ + delay);
  out_->push_back({.type = Operation::Type::kTimer,
                   .handle = handle_of(node, static_cast<std::uint32_t>(step)),
                   .at = channel.received});
}

// When a send that is ready now leaves its GPU: its channel works on one send after another, in step order.
TimePs Walker::leaves_at(const Instance& at, std::int32_t step, std::int64_t size) {
  const StepTemplate& steps = steps_of(at.node);
  Channel& channel = channels_[at.first_channel + steps.channel[index(step)]];
  const auto of_bytes = [size](TimePs per_kib) { return size * per_kib / 1024; };
  channel.free = std::max(channel.free, now_) + of_bytes(steps.work_per_kib[index(step)]);
  TimePs leaves = channel.free + steps.delay[index(step)] + of_bytes(steps.delay_per_kib[index(step)]);
  if (steps.credit[index(step)]) leaves += shared_->slice_delay;
  channel.left = std::max(channel.left + Channel::kApart, leaves);
  return channel.left;
}

void Walker::send_step(std::int32_t instance, std::int32_t step) {
  const Instance& at = instances_[index(instance)];
  const StepTemplate& steps = steps_of(at.node);
  const std::int32_t peer = peer_rank(plan_->bound(at.node), steps.peer[index(step)]);
  const std::uint32_t tag = plan_->tag(at.node) + steps.channel[index(step)];
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
  const std::int32_t instance = states_[index(node)].place;
  const std::size_t record =
      step == kWholeNode ? index(states_[index(node)].place)
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
    at.top = std::max(at.top, next);
    if (is_ready(counter)) step_ready(instance, next);
  }
  if (--instances_[index(instance)].remaining_steps > 0) return;
  const auto own = std::find(active_.begin(), active_.end(), instance);
  *own = active_.back();
  active_.pop_back();
  give_counters(instances_[index(instance)]);
  if (steps.has_times()) give_channels(instances_[index(instance)]);
  end(instances_[index(instance)].node);
}

// Room for `count` entries of `all`; that of ended collectives is used again, so a long trace needs no more
// than its collectives in progress. `free`: places by the logarithm of their room.
template <typename Entry>
std::size_t take_room(std::vector<Entry>& all, std::array<std::vector<std::size_t>, 32>& free,
                      std::int32_t count) {
  const auto room = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(count - 1)));
  std::vector<std::size_t>& places = free[room];
  if (places.empty()) {
    places.push_back(all.size());
    all.resize(all.size() + (std::size_t{1} << room));
  }
  const std::size_t place = places.back();
  places.pop_back();
  return place;
}

std::size_t Walker::take_counters(std::int32_t steps) { return take_room(counters_, free_counters_, steps); }

void Walker::give_counters(const Instance& instance) {
  const auto steps = static_cast<std::uint32_t>(steps_of(instance.node).steps());
  free_counters_[static_cast<std::size_t>(std::bit_width(steps - 1))].push_back(instance.counters);
}

std::size_t Walker::take_channels(std::int32_t channels) {
  const std::size_t place = take_room(channels_, free_channels_, channels);
  std::fill_n(channels_.begin() + static_cast<std::ptrdiff_t>(place), channels, Channel{});
  return place;
}

void Walker::give_channels(const Instance& instance) {
  const auto channels = static_cast<std::uint32_t>(steps_of(instance.node).channels);
  free_channels_[static_cast<std::size_t>(std::bit_width(channels - 1))].push_back(instance.first_channel);
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
  const std::int64_t expected = whole ? table_->size_bytes[index(node)] : block_size(node, lane.step);
  if (expected != arrival.size_bytes && error_.empty()) {
    error_ = "rank " + std::to_string(plan_->rank) + ", node row " + std::to_string(node) + ": expected " +
             std::to_string(expected) + " bytes from rank " + std::to_string(peer) + " and got " +
             std::to_string(arrival.size_bytes) + ": the two ranks' graphs disagree";
  }
  const std::size_t record = whole ? index(states_[index(node)].place)
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
    receive_done(lane.instance, step);
  } else {
    counter += kArrivedEarly;
    Instance& instance = instances_[index(lane.instance)];
    instance.top = std::max(instance.top, step);
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

}  // namespace genie
