// The analytic level: the walkers of all ranks, and for each collective and each message a time that a closed
// form has given. A collective takes it from when all of its group are there; nothing shares anything.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/flat_map.hpp"
#include "twin/kernel/time_buckets.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

class AnalyticSimulator {
 public:
  // `acknowledgements`: by key, from a message's arrival until its sender hears of it.
  // `keys`: of each rank's bindings the place of its cost, -1 of a receive's.
  // `keeps_records`: by rank, see the walker.
  AnalyticSimulator(const SharedPlan& shared, const std::vector<const RankPlan*>& plans,
                    std::vector<std::vector<std::int32_t>> keys, std::vector<TimePs> costs,
                    std::vector<TimePs> acknowledgements, const std::vector<bool>& keeps_records);
  AnalyticSimulator(const AnalyticSimulator&) = delete;
  AnalyticSimulator& operator=(const AnalyticSimulator&) = delete;

  void start();
  bool run(std::uint64_t events);
  bool done() const { return !failed_ && all_done(walkers_); }
  std::vector<std::string> problems() const {
    return too_long_ ? std::vector<std::string>{kPastLastTime} : problems_of(walkers_);
  }
  TimePs now() const { return now_; }
  std::uint64_t events() const { return events_; }
  const std::vector<Walker>& walkers() const { return walkers_; }

 private:
  struct Meeting {
    std::vector<std::pair<std::int32_t, std::int32_t>> members;  // rank, node
    TimePs begin = 0;
    TimePs cost = 0;  // the longest that a member has
  };
  struct Message {
    std::int32_t from = 0, to = 0;
    std::uint64_t handle = 0;
    std::uint32_t tag = 0;
    std::int64_t size_bytes = 0;
    TimePs first = 0;
  };
  enum class Kind : std::uint8_t { kSleep, kMeeting, kArrive, kAck };
  struct Event {
    Kind kind = Kind::kSleep;
    std::uint32_t place = 0;   // rank of a sleep, meeting, message
    std::uint64_t handle = 0;  // of a sleep
  };

  void push(TimePs time, Kind kind, std::uint32_t place, std::uint64_t handle);
  void handle(const Event& event);
  void perform(std::int32_t rank);
  void meet(std::int32_t rank, const Operation& operation);
  void send(std::int32_t rank, const Operation& operation);
  void deliver(std::int32_t rank, const Completion& completion);
  std::size_t key_of(std::int32_t rank, std::uint64_t handle) const;
  void over(Meeting& meeting);

  const SharedPlan* shared_;
  std::vector<const RankPlan*> plans_;
  std::vector<std::vector<std::int32_t>> keys_;
  std::vector<TimePs> costs_, acknowledgements_;
  std::vector<Walker> walkers_;
  std::vector<Meeting> meetings_;
  std::vector<std::uint32_t> free_meetings_;
  FlatMap<std::uint32_t> meeting_of_;  // (group, tag) -> its place + 1, while members are awaited
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_messages_;
  FlatMap<TimePs> last_of_;  // (sender, receiver) -> its last message's arrival: they keep their order
  TimeBuckets<Event> pending_;
  std::vector<Event> current_;
  std::uint64_t events_ = 0;
  std::vector<std::vector<Completion>> ready_;
  std::vector<std::int32_t> to_walk_, walked_;
  std::vector<Operation> operations_;
  TimePs now_ = 0;
  bool failed_ = false, too_long_ = false;
};

}  // namespace genie::twin
