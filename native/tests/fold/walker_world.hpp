// Ranks that walk collectives of pairs of steps, over wires of one length and rate. A rank's messages leave
// one after another.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/snapshot.hpp"
#include "tests/check.hpp"
#include "walker/walker.hpp"

namespace genie::test {

constexpr std::uint32_t kTag = 1u << 30;

// A step waits for the send or the receive of the pair so many pairs before. `rank`: only that rank waits;
// -1: all do.
struct Wait {
  std::int32_t back = 1;
  bool is_send = false;
  std::int32_t rank = -1;
};

// A send to the rank `far` after this one, and a receive from the rank so far before it. An empty pair has
// blocks of 0 bytes.
struct Pair {
  std::vector<Wait> send = {}, receive = {};
  std::int32_t channel = 0, far = 1;
  bool reduces = false, is_empty = false;
};

struct Case {
  std::string name = {};
  std::int32_t members = 2, pairs = 0, channels = 1;
  std::function<Pair(std::int32_t)> pair = {};
  bool credit = false;
  std::function<TimePs(std::int32_t)> delay = {};  // by pair: of a GPU; none: GPUs take no time
  TimePs slice_delay = 0;
  std::function<TimePs(std::int32_t)> starts = [](std::int32_t) { return TimePs{0}; };  // by rank
  bool acks_early = false;       // a send is done when it leaves
  bool receives_first = false;   // in a pair
  bool is_chain = false;         // the first rank does not receive, and the last one does not send
  std::int32_t last_window = 0;  // receives of the last rank of a chain wait for that so many before
  double least_share = 0.5;      // of the time that is skipped
  bool jumps = true;             // some jump is possible
};

inline StepTemplate template_of(const Case& each, std::int32_t rank) {
  StepTemplate it;
  it.members = each.members;
  it.relative = true;
  it.channels = each.channels;
  it.dep_start.push_back(0);
  std::vector<TimePs> delays;
  std::vector<std::int32_t> sends, receives;  // steps by pair; -1: none
  for (std::int32_t number = 0; number < each.pairs; ++number) {
    const Pair pair = each.pair(number);
    for (const bool send : {!each.receives_first, each.receives_first}) {
      std::vector<std::int32_t>& own = send ? sends : receives;
      const bool is_last = rank == each.members - 1;
      if (each.is_chain && (send ? is_last : rank == 0)) {
        own.push_back(-1);
        continue;
      }
      own.push_back(it.steps());
      it.action.push_back(static_cast<std::uint8_t>(
          send ? StepAction::kSend : (pair.reduces ? StepAction::kReduce : StepAction::kRecv)));
      it.peer.push_back(send ? pair.far : each.members - pair.far);
      it.block_base.push_back(pair.is_empty ? each.members : 0);  // sizes from `members` on are 0
      it.block.push_back(0);
      it.channel.push_back(static_cast<std::uint8_t>(pair.channel));
      it.credit.push_back(each.credit ? 1 : 0);
      delays.push_back(send || !each.delay ? 0 : each.delay(number));
      std::vector<Wait> waits = send ? pair.send : pair.receive;
      if (each.is_chain && is_last && each.last_window > 0) waits.push_back({each.last_window});
      std::vector<std::int32_t> steps;
      for (const Wait& wait : waits) {
        if (wait.back > number || (wait.rank >= 0 && wait.rank != rank)) continue;
        const std::vector<std::int32_t>& of = wait.is_send ? sends : receives;
        const auto at = static_cast<std::size_t>(number - wait.back);
        if (at < of.size() && of[at] >= 0) steps.push_back(of[at]);
      }
      std::sort(steps.begin(), steps.end());
      it.deps.insert(it.deps.end(), steps.begin(), std::unique(steps.begin(), steps.end()));
      it.dep_start.push_back(static_cast<std::int32_t>(it.deps.size()));
    }
  }
  CHECK_EQUAL_IN(it.prepare(), std::string(), each.name);
  if (each.delay) {
    const std::vector<TimePs> none(it.action.size(), 0);
    CHECK_EQUAL_IN(it.set_times(1'000, delays, none, none), std::string(), each.name);
  }
  return it;
}

// Ranks on wires of one length and rate; messages of a pair stay in order.
class World {
 public:
  explicit World(const Case& each) : each_(each) {
    for (std::int32_t rank = 0; rank < each.members; ++rank)
      shared_.templates.push_back(template_of(each, rank));
    for (const std::int64_t size_bytes : {10'000, 0})
      shared_.block_sizes.insert(shared_.block_sizes.end(), static_cast<std::size_t>(each.members),
                                 size_bytes);
    shared_.group_start = {0, each.members};
    for (std::int32_t rank = 0; rank < each.members; ++rank) shared_.group_members.push_back(rank);
    shared_.slice_delay = each.slice_delay;
    plans_.reserve(static_cast<std::size_t>(each.members));
    walkers_.reserve(static_cast<std::size_t>(each.members));
    free_.assign(static_cast<std::size_t>(each.members), 0);
    for (std::int32_t rank = 0; rank < each.members; ++rank) {
      auto table = std::make_shared<NodeTable>();
      for (const NodeKind kind : {NodeKind::kComp, NodeKind::kColl, NodeKind::kComp}) {
        table->kind.push_back(static_cast<std::uint8_t>(kind));
        table->slot.push_back(-1);
        table->duration_ps.push_back(kind == NodeKind::kComp ? 1'000 + each.starts(rank) : 0);
        table->release_ps.push_back(0);
        table->size_bytes.push_back(0);
        table->tag.push_back(kTag);
        table->binding.push_back(kind == NodeKind::kColl ? 0 : -1);
      }
      table->dep_start = {0, 0, 1, 2};
      table->deps = {0, 1};
      CHECK_EQUAL_IN(table->prepare(), std::string(), each.name);
      plans_.push_back(
          {.rank = rank, .table = table, .bindings = {{.template_id = rank, .group = 0, .position = rank}}});
      walkers_.emplace_back(shared_, plans_.back());
    }
    for (std::int32_t rank = 0; rank < each.members; ++rank) {
      operations_.clear();
      walkers_[static_cast<std::size_t>(rank)].begin(0, operations_);
      perform(rank);
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  bool is_over() const { return events_.empty(); }
  // Time of the next event.
  TimePs next() const {
    TimePs first = kNever;
    for (const Event& event : events_) first = std::min(first, event.time);
    return first;
  }
  std::vector<Walker>& walkers() { return walkers_; }

  // Plays all before `until`, and comes to that time.
  void play(TimePs until) {
    while (!events_.empty()) {
      const auto first = std::min_element(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
        return std::tie(a.time, a.rank, a.number) < std::tie(b.time, b.rank, b.number);
      });
      if (first->time >= until) break;
      const Event event = *first;
      events_.erase(first);
      now_ = event.time;
      operations_.clear();
      walkers_[static_cast<std::size_t>(event.rank)].advance(now_, {&event.completion, 1}, operations_);
      perform(event.rank);
    }
    now_ = until;
  }

  void fold(Fold& fold) {
    for (Walker& walker : walkers_) walker.fold(fold);
    for (TimePs& free : free_) fold.not_before(free);
    std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return std::tie(a.time, a.rank, a.number) < std::tie(b.time, b.rank, b.number);
    });
    fold.exact(events_.size());
    for (Event& event : events_) {
      Completion& it = event.completion;
      fold.exact(event.rank, it.type, it.peer, it.tag, it.size_bytes);
      fold.moment(event.time);
      if (it.type == Completion::Type::kArrived) {
        fold.moment(it.first);
      } else {
        fold.set_handles(&walkers_[static_cast<std::size_t>(event.rank)]);
        fold.handle(it.handle);
      }
      fold.moment(it.time);
    }
  }

  Snapshot snapshot() {
    Observe found(now_);
    fold(found);
    return found.take();
  }
  void move_to(TimePs time) { now_ = time; }

 private:
  struct Event {
    TimePs time = 0;
    std::uint64_t number = 0;  // of those at one time
    std::int32_t rank = 0;
    Completion completion;
  };

  void perform(std::int32_t rank) {
    constexpr TimePs kDelay = 1'000'000;
    for (const Operation& operation : operations_) {
      if (operation.type == Operation::Type::kTimer) {
        events_.push_back(
            {operation.at,
             ++number_,
             rank,
             {.type = Completion::Type::kTimer, .handle = operation.handle, .time = operation.at}});
        continue;
      }
      TimePs& free = free_[static_cast<std::size_t>(rank)];
      free = std::max(free, now_) + operation.size_bytes * 100;
      const TimePs acked = each_.acks_early ? free : free + 2 * kDelay;
      events_.push_back({free + kDelay,
                         ++number_,
                         operation.peer,
                         {.type = Completion::Type::kArrived,
                          .peer = rank,
                          .tag = operation.tag,
                          .size_bytes = operation.size_bytes,
                          .first = free + kDelay,
                          .time = free + kDelay}});
      events_.push_back({acked,
                         ++number_,
                         rank,
                         {.type = Completion::Type::kSent, .handle = operation.handle, .time = acked}});
    }
  }

  Case each_;
  SharedPlan shared_;
  std::vector<RankPlan> plans_;
  std::vector<Walker> walkers_;
  std::vector<Event> events_;
  std::vector<Operation> operations_;
  std::vector<TimePs> free_;  // by rank: its wire
  std::uint64_t number_ = 0;
  TimePs now_ = 0;
};

}  // namespace genie::test
