#include "twin/levels/analytic_simulator.hpp"

#include <algorithm>
#include <cassert>

#include "core/index.hpp"
#include "core/mix.hpp"
#include "walker/parts.hpp"

namespace genie::twin {
namespace {

constexpr std::size_t kAhead = 8;  // ranks whose walkers are fetched early: with many, none is in the cache

}  // namespace

AnalyticSimulator::AnalyticSimulator(const SharedPlan& shared, const std::vector<const RankPlan*>& plans,
                                     std::vector<std::vector<std::int32_t>> keys, std::vector<TimePs> costs,
                                     std::vector<TimePs> acknowledgements,
                                     const std::vector<bool>& keeps_records)
    : shared_(&shared),
      plans_(plans),
      keys_(std::move(keys)),
      costs_(std::move(costs)),
      acknowledgements_(std::move(acknowledgements)) {
  walkers_.reserve(plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    walkers_.emplace_back(shared, *plans[rank], true, keeps_records[rank]);
  ready_.resize(plans.size());
}

void AnalyticSimulator::push(TimePs time, Kind kind, std::uint32_t place, std::uint64_t handle) {
  assert(time >= now_);
  pending_.push(time, {kind, place, handle});
}

void AnalyticSimulator::start() {
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    operations_.clear();
    walkers_[rank].begin(0, operations_);
    perform(static_cast<std::int32_t>(rank));
  }
}

bool AnalyticSimulator::run(std::uint64_t events) {
  const std::uint64_t until = events_ + events;
  while (events_ < until && !failed_) {
    if (pending_.empty()) return false;
    failed_ = too_long_ = pending_.next_time() > kLastTime;
    if (failed_) break;
    now_ = pending_.next_time();
    pending_.pop(current_);
    for (std::size_t at = 0; at < current_.size(); ++at) {
      if (at + kAhead < current_.size() && current_[at + kAhead].kind == Kind::kSleep)
        __builtin_prefetch(&ready_[current_[at + kAhead].place], 1);
      handle(current_[at]);
    }
    std::swap(walked_, to_walk_);
    to_walk_.clear();
    for (std::size_t at = 0; at < walked_.size(); ++at) {
      const std::int32_t rank = walked_[at];
      if (at + 2 * kAhead < walked_.size()) {
        const std::size_t next = index(walked_[at + 2 * kAhead]);
        walkers_[next].fetch();
        __builtin_prefetch(ready_[next].data());
      }
      if (at + kAhead < walked_.size()) {
        const std::size_t next = index(walked_[at + kAhead]);
        walkers_[next].fetch_for(ready_[next].front());
      }
      operations_.clear();
      walkers_[index(rank)].advance(now_, ready_[index(rank)], operations_);
      ready_[index(rank)].clear();
      failed_ |= !walkers_[index(rank)].error().empty();
      perform(rank);
    }
  }
  return !failed_;
}

void AnalyticSimulator::handle(const Event& event) {
  ++events_;
  switch (event.kind) {
    case Kind::kSleep:
      return deliver(static_cast<std::int32_t>(event.place),
                     {.type = Completion::Type::kTimer, .handle = event.handle, .time = now_});
    case Kind::kMeeting:
      over(meetings_[event.place]);
      free_meetings_.push_back(event.place);
      return;
    case Kind::kArrive: {
      const Message& message = messages_[event.place];
      return deliver(message.to, {.type = Completion::Type::kArrived,
                                  .peer = message.from,
                                  .tag = message.tag,
                                  .size_bytes = message.size_bytes,
                                  .first = message.first,
                                  .time = now_});
    }
    case Kind::kAck: {
      const Message& message = messages_[event.place];
      free_messages_.push_back(event.place);
      return deliver(message.from, {.type = Completion::Type::kSent, .handle = message.handle, .time = now_});
    }
  }
}

// Of a collective all members hear at once. Their messages are recorded as if all took from its begin to its
// end.
void AnalyticSimulator::over(Meeting& meeting) {
  for (const auto& [rank, node] : meeting.members) {
    deliver(rank, {.type = Completion::Type::kTimer,
                   .handle = walker_parts::handle_of(node, walker_parts::kWholeNode),
                   .time = now_});
    Walker& walker = walkers_[index(rank)];
    if (walker.keeps_records()) walker.record_whole(node, meeting.begin, now_);
  }
  meeting.members.clear();
}

std::size_t AnalyticSimulator::key_of(std::int32_t rank, std::uint64_t handle) const {
  const auto node = static_cast<std::size_t>(handle >> 32);
  const std::int32_t binding = plans_[index(rank)]->table->binding[node];
  assert(index(binding) < keys_[index(rank)].size());
  const std::size_t key = index(keys_[index(rank)][index(binding)]);
  assert(key < costs_.size() && key < acknowledgements_.size());
  return key;
}

void AnalyticSimulator::deliver(std::int32_t rank, const Completion& completion) {
  if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

void AnalyticSimulator::perform(std::int32_t rank) {
  for (const Operation& operation : operations_) {
    switch (operation.type) {
      case Operation::Type::kTimer:
        push(operation.at, Kind::kSleep, static_cast<std::uint32_t>(rank), operation.handle);
        break;
      case Operation::Type::kSend:
        send(rank, operation);
        break;
      case Operation::Type::kMeet:
        meet(rank, operation);
        break;
      case Operation::Type::kBegin:
        break;
    }
  }
}

void AnalyticSimulator::meet(std::int32_t rank, const Operation& operation) {
  const auto group = static_cast<std::uint32_t>(operation.peer);
  std::uint32_t& place = meeting_of_[pair_key(group, operation.tag)];
  if (place == 0) {
    if (free_meetings_.empty()) {
      free_meetings_.push_back(static_cast<std::uint32_t>(meetings_.size()));
      meetings_.emplace_back();
    }
    place = free_meetings_.back() + 1;
    free_meetings_.pop_back();
    meetings_[place - 1].cost = 0;
  }
  Meeting& own = meetings_[place - 1];
  own.members.emplace_back(rank, static_cast<std::int32_t>(operation.handle >> 32));
  own.cost = std::max(own.cost, costs_[key_of(rank, operation.handle)]);
  const std::int64_t members = shared_->group_start[group + 1] - shared_->group_start[group];
  if (static_cast<std::int64_t>(own.members.size()) < members) return;
  own.begin = now_;
  push(now_ + own.cost, Kind::kMeeting, place - 1, 0);
  meeting_of_.erase(pair_key(group, operation.tag));
}

void AnalyticSimulator::send(std::int32_t rank, const Operation& operation) {
  TimePs& last =
      last_of_[pair_key(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(operation.peer))];
  const std::size_t key = key_of(rank, operation.handle);
  last = std::max(last, now_ + costs_[key]);
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<std::uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const std::uint32_t place = free_messages_.back();
  free_messages_.pop_back();
  // The path there takes as long as the path back.
  const TimePs first = std::min(last, now_ + acknowledgements_[key]);
  messages_[place] = {rank, operation.peer, operation.handle, operation.tag, operation.size_bytes, first};
  push(last, Kind::kArrive, place, 0);
  push(std::min(last, kLastTime) + acknowledgements_[key], Kind::kAck, place, 0);
}

}  // namespace genie::twin
