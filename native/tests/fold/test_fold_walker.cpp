// Fold of a walker: a ring that has come to the same state twice is moved by whole rounds. It ends with the
// records that playing these rounds gives.
#include <algorithm>
#include <cstdio>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/fold.hpp"
#include "tests/check.hpp"
#include "walker/walker.hpp"

using namespace genie;

namespace {

constexpr std::uint32_t kTag = 1u << 30;

struct Case {
  std::string name;
  std::int32_t members = 4, rounds = 400, channels = 1;
  bool credit = false, has_times = false;
  TimePs apart = 0;  // between the starts of two ranks
  // A block is so many slices, of which `window` may be received ahead. A loop of rounds, whose second half
  // does not reduce, begins once all slices of the loop before it are there. 0: there is one loop.
  std::int32_t slices = 1, window = 1, loop = 0;
  bool waits_for_both = false;  // the first slices of a loop wait for the round before, too
  bool sends_wait = false;      // for those a window before
  bool sends_first = false;     // sends wait for nothing
  bool turns = false;           // the second half goes to other ranks
  bool acks_early = false;      // a send is done when it leaves
  TimePs delay = 3'000;         // of GPUs
  double least_share = 0.5;     // of the time, that is skipped
};

// Rounds of a ring of equal blocks, on channels that take turns. In each round and channel a rank sends the
// block that it received in the round before.
StepTemplate ring(const Case& each) {
  StepTemplate it;
  it.members = each.members;
  it.relative = true;
  it.channels = each.channels;
  it.dep_start.push_back(0);
  const std::int32_t loop = each.loop > 0 ? each.loop : each.rounds;
  const auto receive = [&](std::int32_t unit, std::int32_t channel) {
    return 2 * (unit * each.channels + channel) + 1;
  };
  for (std::int32_t unit = 0; unit < each.rounds * each.slices; ++unit) {
    const std::int32_t round = unit / each.slices % loop;
    for (std::int32_t channel = 0; channel < each.channels; ++channel) {
      for (const bool send : {true, false}) {
        it.action.push_back(static_cast<std::uint8_t>(
            send ? StepAction::kSend
                 : (each.loop > 0 && round < loop / 2 ? StepAction::kReduce : StepAction::kRecv)));
        const std::int32_t far = each.turns && 2 * unit >= each.rounds * each.slices ? 2 : 1;
        it.peer.push_back(send ? far : each.members - far);
        it.block_base.push_back(0);
        it.block.push_back(0);
        it.channel.push_back(static_cast<std::uint8_t>(channel));
        it.credit.push_back(each.credit ? 1 : 0);
        const auto wait = [&](std::int32_t other, bool is_send) {
          if (other >= 0) it.deps.push_back(receive(other, channel) - is_send);
        };
        if (!send) {
          wait(unit - each.window, false);
        } else if (!each.sends_first) {
          if (each.sends_wait) wait(unit - each.window, true);
          if (round > 0 || each.waits_for_both) wait(unit - each.slices, false);
          if (round == 0 && unit % each.slices < each.slices - 1)
            wait(unit - unit % each.slices - 1, false);
          else if (round == 0 && !each.waits_for_both)
            wait(unit - each.slices, false);
        }
        it.dep_start.push_back(static_cast<std::int32_t>(it.deps.size()));
      }
    }
  }
  CHECK_EQUAL_IN(it.prepare(), std::string(), each.name);
  if (each.has_times) {
    const std::vector<TimePs> of_delay(it.action.size(), each.delay), none(it.action.size(), 0);
    CHECK_EQUAL_IN(it.set_times(1'000, of_delay, none, none), std::string(), each.name);
  }
  return it;
}

// Ranks on wires of one length and rate; messages of a pair stay in order.
class World {
 public:
  explicit World(const Case& each) : each_(each) {
    shared_.templates.push_back(ring(each));
    shared_.block_sizes.assign(static_cast<std::size_t>(each.members), 10'000);
    shared_.group_start = {0, each.members};
    for (std::int32_t rank = 0; rank < each.members; ++rank) shared_.group_members.push_back(rank);
    if (each.credit) shared_.slice_delay = 2'000;
    plans_.reserve(static_cast<std::size_t>(each.members));
    walkers_.reserve(static_cast<std::size_t>(each.members));
    free_.assign(static_cast<std::size_t>(each.members), 0);
    for (std::int32_t rank = 0; rank < each.members; ++rank) {
      auto table = std::make_shared<NodeTable>();
      for (const NodeKind kind : {NodeKind::kComp, NodeKind::kColl, NodeKind::kComp}) {
        table->kind.push_back(static_cast<std::uint8_t>(kind));
        table->slot.push_back(-1);
        table->duration_ps.push_back(kind == NodeKind::kComp ? 1'000 + rank * each.apart : 0);
        table->release_ps.push_back(0);
        table->size_bytes.push_back(0);
        table->tag.push_back(kTag);
        table->binding.push_back(kind == NodeKind::kColl ? 0 : -1);
      }
      table->dep_start = {0, 0, 1, 2};
      table->deps = {0, 1};
      CHECK_EQUAL_IN(table->prepare(), std::string(), each.name);
      plans_.push_back(
          {.rank = rank, .table = table, .bindings = {{.template_id = 0, .group = 0, .position = rank}}});
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

std::string records_of(World& world) {
  std::string text;
  const auto add = [&](auto... values) { ((text += std::to_string(values) + " "), ...); };
  for (const Walker& walker : world.walkers()) {
    for (const NodeRecord& it : walker.nodes()) add(it.ready, it.start, it.end);
    for (const SendRecord& it : walker.sends())
      add(it.peer, it.messages, it.size_bytes, it.post, it.acked, it.busy, it.outstanding);
    for (const ReceiveRecord& it : walker.receives())
      add(it.peer, it.messages, it.size_bytes, it.first, it.last);
    add(walker.steps_done(), walker.last_end());
    text += walker.done() ? "done" : "not done";
  }
  return text;
}

// The first steps that are not ready, of all collectives in progress.
std::vector<std::int32_t> bases_of(World& world) {
  std::vector<std::int32_t> found;
  for (const Walker& walker : world.walkers()) {
    for (const Walker::Progress& own : walker.in_progress()) found.push_back(own.base);
  }
  return found;
}

// Looks for the period at each instant, and returns the share of the time that was skipped.
double check(const Case& each) {
  World played(each), jumped(each);
  played.play(kNever);
  TimePs skipped = 0;
  std::vector<std::pair<Snapshot, std::vector<std::int32_t>>> before;
  while (!jumped.is_over()) {
    jumped.play(jumped.next() + 1);
    Snapshot now = jumped.snapshot();
    const std::vector<std::int32_t> bases = bases_of(jumped);
    const auto same = std::find_if(before.begin(), before.end(), [&](const auto& it) {
      return it.first.recurs_in(now) && it.second.size() == bases.size();
    });
    if (same == before.end() || same->second == bases) {
      before.emplace_back(std::move(now), bases);
      continue;
    }
    std::int64_t periods = 1'000'000;
    std::size_t at = 0;
    for (const Walker& walker : jumped.walkers()) {
      for (const Walker::Progress& own : walker.in_progress()) {
        const std::int32_t stride = own.base - same->second[at++];
        CHECK_IN(stride > 0, each.name);
        periods = walker.repeats(own.instance, stride, own.lowest - stride, periods);
      }
    }
    if (periods < 1) continue;  // the first round waits for nothing and is like no other
    Shift shift(same->first, now, periods);
    jumped.fold(shift);
    CHECK_IN(shift.is_over(), each.name);
    jumped.move_to(now.now + shift.by());
    skipped += shift.by();
    before.clear();
  }
  CHECK_IN(skipped > 0, each.name);
  CHECK_EQUAL_IN(records_of(jumped), records_of(played), each.name);
  TimePs end = 1;
  for (const Walker& walker : jumped.walkers()) end = std::max(end, walker.last_end());
  return static_cast<double>(skipped) / static_cast<double>(end);
}

}  // namespace

int main() {
  for (const Case& each : {
           Case{.name = "equal starts"},
           Case{.name = "two channels", .channels = 2},
           Case{.name = "clear-to-sends", .credit = true},
           Case{.name = "clear-to-sends on two channels", .channels = 2, .credit = true},
           Case{.name = "GPU times", .channels = 2, .credit = true, .has_times = true},
           Case{.name = "other starts", .apart = 90'000},
           Case{.name = "other starts, clear-to-sends",
                .members = 8,
                .channels = 2,
                .credit = true,
                .apart = 7'000},
           Case{.name = "loops", .slices = 2, .window = 8, .loop = 40},
           Case{.name = "loops on two channels", .channels = 2, .slices = 2, .window = 8, .loop = 40},
           Case{.name = "loops, clear-to-sends",
                .channels = 2,
                .credit = true,
                .apart = 11'000,
                .slices = 2,
                .window = 8,
                .loop = 100,
                .least_share = 0.4},
           Case{.name = "loops that wait for two",
                .slices = 2,
                .window = 8,
                .loop = 40,
                .waits_for_both = true},
           Case{.name = "sends that wait",
                .slices = 2,
                .window = 4,
                .loop = 100,
                .sends_wait = true,
                .least_share = 0.4},
           Case{.name = "sends that wait for nothing",
                .credit = true,
                .slices = 2,
                .window = 8,
                .sends_first = true},
           Case{.name = "other ranks later", .slices = 2, .window = 8, .turns = true},
           Case{.name = "acknowledgements first", .slices = 2, .window = 8, .loop = 40, .acks_early = true},
           Case{.name = "slow GPUs",
                .has_times = true,
                .slices = 2,
                .window = 8,
                .loop = 40,
                .delay = 2'100'000},
           Case{.name = "loops, GPU times",
                .has_times = true,
                .slices = 4,
                .window = 16,
                .loop = 100,
                .least_share = 0.4},
       }) {
    const double share = check(each);
    std::printf("%s: %.1f %% of the time skipped\n", each.name.c_str(), 100 * share);
    CHECK_IN(share > each.least_share, each.name);
  }
  return test::check_result("test_fold_walker");
}
