#include "walker/alone.hpp"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>
#include <utility>

namespace genie {
namespace {

class Alone {
 public:
  Alone(const SharedPlan& shared, const std::vector<const RankPlan*>& plans) {
    walkers_.reserve(plans.size());
    for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  }

  AloneResult play() {
    for (std::int32_t rank = 0; rank < ranks(); ++rank) {
      operations_.clear();
      walkers_[static_cast<std::size_t>(rank)].begin(0, operations_);
      perform(rank);
    }
    while (step()) {
    }
    for (const Walker& walker : walkers_) {
      result_.steps += walker.steps_done();
      result_.end = std::max(result_.end, walker.last_end());
      if (!walker.error().empty()) result_.problems.push_back(walker.error());
      if (walker.done() || result_.problems.size() >= 8) continue;
      for (std::string& line : walker.waiting(2)) result_.problems.push_back(std::move(line));
    }
    return std::move(result_);
  }

 private:
  using Timer = std::tuple<TimePs, std::int32_t, std::uint64_t>;  // when, rank, handle

  std::int32_t ranks() const { return static_cast<std::int32_t>(walkers_.size()); }

  // One completion: a message's while there is one, else the next timer's.
  bool step() {
    if (!completions_.empty()) {
      const auto [rank, completion] = completions_.front();
      completions_.pop_front();
      advance(rank, completion);
      return true;
    }
    if (timers_.empty()) return false;
    const auto [at, rank, handle] = timers_.top();
    timers_.pop();
    now_ = at;
    advance(rank, {.type = Completion::Type::kTimer, .handle = handle, .time = at});
    return true;
  }

  void advance(std::int32_t rank, const Completion& completion) {
    operations_.clear();
    walkers_[static_cast<std::size_t>(rank)].advance(now_, {&completion, 1}, operations_);
    perform(rank);
  }

  void perform(std::int32_t rank) {
    for (const Operation& operation : operations_) {
      if (operation.type == Operation::Type::kTimer) {
        timers_.emplace(operation.at, rank, operation.handle);
        continue;
      }
      ++result_.messages;
      completions_.push_back(
          {rank, {.type = Completion::Type::kSent, .handle = operation.handle, .time = now_}});
      if (operation.peer < 0 || operation.peer >= ranks()) continue;  // no such rank: never received
      completions_.push_back({operation.peer,
                              {.type = Completion::Type::kArrived,
                               .peer = rank,
                               .tag = operation.tag,
                               .size_bytes = operation.size_bytes,
                               .first = now_,
                               .time = now_}});
    }
  }

  std::vector<Walker> walkers_;
  std::vector<Operation> operations_;
  std::deque<std::pair<std::int32_t, Completion>> completions_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  TimePs now_ = 0;
  AloneResult result_;
};

}  // namespace

AloneResult walk_alone(const SharedPlan& shared, const std::vector<const RankPlan*>& plans) {
  return Alone(shared, plans).play();
}

}  // namespace genie
