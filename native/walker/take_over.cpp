// A walker that goes on from the state of another.
#include <algorithm>
#include <cassert>

#include "core/index.hpp"
#include "walker/parts.hpp"
#include "walker/walker.hpp"

namespace genie {

using namespace walker_parts;

std::size_t Walker::memory_bytes() const {
  constexpr std::size_t kVectors = 20, kEachVector = 32;  // of the allocator
  const auto of = [](const auto& own) { return own.size() * sizeof(*own.data()); };
  return sizeof(Walker) + of(states_) + of(records_) + of(instances_) + of(channels_) + of(counters_) +
         of(lanes_) + of(arrivals_) + of(credit_waits_) + of(sends_) + of(receives_) + of(active_) +
         of(end_order_) + of(free_lanes_) + of(free_arrivals_) + of(free_credit_waits_) +
         matches_.memory_bytes() + credits_.memory_bytes() + kVectors * kEachVector;
}

std::uint64_t Walker::renumbered(std::uint64_t handle, std::span<const std::int32_t> rows) {
  if (handle == kCreditHandle) return handle;
  return handle_of(rows[static_cast<std::size_t>(handle >> 32)], static_cast<std::uint32_t>(handle));
}

void Walker::take_over(const Walker& earlier, std::span<const std::int32_t> rows,
                       std::span<const std::int32_t> ranks) {
  assert(earlier.finished_steps_.empty() && earlier.runnable_.empty() && table_->slots == 0);
  assert(keeps_records_ && earlier.keeps_records_ && keeps_end_order_);
  now_ = std::max(now_, earlier.now_);
  logical_ = std::max(logical_, earlier.logical_);
  last_end_ = std::max(last_end_, earlier.last_end_);
  steps_done_ += earlier.steps_done_;
  if (error_.empty()) error_ = earlier.error_;
  take_over_records(earlier, rows, ranks);
  take_over_nodes(earlier, rows);
  take_over_matches(earlier, rows, ranks);
}

void Walker::take_over_records(const Walker& earlier, std::span<const std::int32_t> rows,
                               std::span<const std::int32_t> ranks) {
  const std::size_t first_send = sends_.size(), first_receive = receives_.size(),
                    first_counter = counters_.size(), first_channel = channels_.size();
  const auto first_instance = static_cast<std::int32_t>(instances_.size());
  for (SendRecord record : earlier.sends_) {
    record.node = rows[index(record.node)];
    record.peer = ranks[index(record.peer)];
    sends_.push_back(record);
  }
  for (ReceiveRecord record : earlier.receives_) {
    record.node = rows[index(record.node)];
    record.peer = ranks[index(record.peer)];
    receives_.push_back(record);
  }
  for (Instance instance : earlier.instances_) {
    instance.node = rows[index(instance.node)];
    instance.counters += first_counter;
    instance.first_send += first_send;
    instance.first_receive += first_receive;
    instance.first_channel += first_channel;
    instances_.push_back(instance);
  }
  for (const std::int32_t own : earlier.active_) active_.push_back(own + first_instance);
  counters_.insert(counters_.end(), earlier.counters_.begin(), earlier.counters_.end());
  channels_.insert(channels_.end(), earlier.channels_.begin(), earlier.channels_.end());
  for (std::size_t room = 0; room < free_counters_.size(); ++room) {
    for (const std::size_t place : earlier.free_counters_[room])
      free_counters_[room].push_back(place + first_counter);
    for (const std::size_t place : earlier.free_channels_[room])
      free_channels_[room].push_back(place + first_channel);
  }
}

// Records have been taken over: those of a node are the last.
void Walker::take_over_nodes(const Walker& earlier, std::span<const std::int32_t> rows) {
  const auto moved_by = [](const auto& own, const auto& others) {
    return static_cast<std::int32_t>(own.size() - others.size());
  };
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] < 0) continue;
    assert(earlier.states_[row].waits_for < 0);
    NodeState& own = states_[index(rows[row])] = earlier.states_[row];
    const auto kind = static_cast<NodeKind>(table_->kind[index(rows[row])]);
    if (own.place >= 0)
      own.place += kind == NodeKind::kColl   ? moved_by(instances_, earlier.instances_)
                   : kind == NodeKind::kSend ? moved_by(sends_, earlier.sends_)
                                             : moved_by(receives_, earlier.receives_);
    records_[index(rows[row])] = earlier.records_[row];
  }
  for (const std::int32_t row : earlier.end_order_) {
    const std::int32_t own = rows[index(row)];
    const auto end_of = [&](std::int32_t it) { return records_[index(it)].end; };
    end_order_.insert(std::ranges::upper_bound(end_order_, end_of(own), {}, end_of), own);
    --unfinished_;
    for (std::int32_t at = table_->successor_start[index(own)]; at < table_->successor_start[index(own) + 1];
         ++at) {
      NodeState& state = states_[index(table_->successors[index(at)])];
      if (state.waits_for > 0) --state.waits_for;
    }
  }
}

// Tags are of one act, so that no match is in two states.
void Walker::take_over_matches(const Walker& earlier, std::span<const std::int32_t> rows,
                               std::span<const std::int32_t> ranks) {
  const auto first_instance = static_cast<std::int32_t>(instances_.size() - earlier.instances_.size()),
             first_lane = static_cast<std::int32_t>(lanes_.size()),
             first_arrival = static_cast<std::int32_t>(arrivals_.size()),
             first_wait = static_cast<std::int32_t>(credit_waits_.size());
  const auto moved = [](std::int32_t place, std::int32_t by) { return place < 0 ? place : place + by; };
  const auto own_key = [&](std::uint64_t key) {
    return key_of(ranks[static_cast<std::size_t>(key >> 32)], static_cast<std::uint32_t>(key));
  };
  earlier.matches_.each([&](std::uint64_t key, const Match& match) {
    matches_[own_key(key)] = {moved(match.lane_head, first_lane), moved(match.lane_tail, first_lane),
                              moved(match.arrival_head, first_arrival),
                              moved(match.arrival_tail, first_arrival)};
  });
  earlier.credits_.each([&](std::uint64_t key, const CreditMatch& match) {
    credits_[own_key(key)] = {match.credits, moved(match.wait_head, first_wait),
                              moved(match.wait_tail, first_wait)};
  });
  for (Lane lane : earlier.lanes_) {
    if (lane.instance < 0) lane.step = rows[index(lane.step)];
    lane.instance = moved(lane.instance, first_instance);
    lane.next = moved(lane.next, first_lane);
    lanes_.push_back(lane);
  }
  for (Arrival arrival : earlier.arrivals_) {
    arrival.next = moved(arrival.next, first_arrival);
    arrivals_.push_back(arrival);
  }
  for (CreditWait wait : earlier.credit_waits_) {
    wait.instance += first_instance;
    wait.next = moved(wait.next, first_wait);
    credit_waits_.push_back(wait);
  }
  for (const std::int32_t own : earlier.free_lanes_) free_lanes_.push_back(own + first_lane);
  for (const std::int32_t own : earlier.free_arrivals_) free_arrivals_.push_back(own + first_arrival);
  for (const std::int32_t own : earlier.free_credit_waits_) free_credit_waits_.push_back(own + first_wait);
}

}  // namespace genie
