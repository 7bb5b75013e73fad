// The walker without Python, under the sanitizers: what a plan refuses, rings in drawn orders, playing again.
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "walker/alone.hpp"
#include "walker/walker.hpp"

namespace {

using namespace genie;
using Random = std::mt19937_64;

constexpr std::uint32_t kTag = 1u << 30;

// Ring all-gather: round k sends block p - k to p + 1 and receives block p - k - 1 from p - 1.
StepTemplate ring(std::int32_t members, bool credit) {
  StepTemplate it;
  it.members = members;
  it.relative = true;
  it.dep_start.push_back(0);
  for (std::int32_t round = 0; round + 1 < members; ++round) {
    for (const bool send : {true, false}) {
      it.action.push_back(static_cast<std::uint8_t>(send ? StepAction::kSend : StepAction::kRecv));
      it.peer.push_back(send ? 1 : members - 1);
      it.block_base.push_back(0);
      it.block.push_back((2 * members - round - (send ? 0 : 1)) % members);
      it.channel.push_back(0);
      it.credit.push_back(credit ? 1 : 0);
      if (send && round > 0) it.deps.push_back(2 * round - 1);
      it.dep_start.push_back(static_cast<std::int32_t>(it.deps.size()));
    }
  }
  return it;
}

SharedPlan shared_plan(std::int32_t members, bool credit, std::vector<std::int64_t> sizes) {
  SharedPlan shared;
  shared.templates.push_back(ring(members, credit));
  CHECK_EQUAL(shared.templates[0].prepare(), std::string());
  shared.block_sizes = std::move(sizes);
  shared.group_start = {0, members};
  for (std::int32_t rank = 0; rank < members; ++rank) shared.group_members.push_back(rank);
  return shared;
}

void add_node(NodeTable& table, NodeKind kind, std::int32_t slot, std::int64_t duration_ps, std::uint32_t tag,
              std::int32_t dep) {
  table.kind.push_back(static_cast<std::uint8_t>(kind));
  table.slot.push_back(slot);
  table.duration_ps.push_back(duration_ps);
  table.release_ps.push_back(0);
  table.size_bytes.push_back(0);
  table.tag.push_back(tag);
  table.binding.push_back(kind == NodeKind::kColl ? 0 : -1);
  if (table.dep_start.empty()) table.dep_start.push_back(0);
  if (dep >= 0) table.deps.push_back(dep);
  table.dep_start.push_back(static_cast<std::int32_t>(table.deps.size()));
}

// `count` collectives, each after a sleep, two of them at a time.
RankPlan rank_plan(const SharedPlan& shared, std::int32_t rank, std::int32_t count) {
  auto table = std::make_shared<NodeTable>();
  for (std::int32_t at = 0; at < count; ++at) {
    add_node(*table, NodeKind::kComp, 0, 1 + (rank * 7 + at) % 5, 0, at > 1 ? 2 * at - 3 : -1);
    add_node(*table, NodeKind::kColl, at % 2 == 0 ? 1 : 2, 0, kTag + 64u * static_cast<std::uint32_t>(at),
             2 * at);
  }
  CHECK_EQUAL(table->prepare(), std::string());
  RankPlan plan{.rank = rank,
                .table = std::move(table),
                .bindings = {{.template_id = 0, .group = 0, .position = rank}}};
  CHECK_EQUAL(plan.check(shared), std::string());
  return plan;
}

// Messages of one pair of ranks stay in order; everything else is drawn.
class Drawn {
 public:
  Drawn(std::vector<Walker>& walkers, std::uint64_t seed) : walkers_(walkers), random_(seed) {}

  void play() {
    for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
      operations_.clear();
      walkers_[rank].begin(0, operations_);
      take(static_cast<std::int32_t>(rank));
    }
    while (!events_.empty()) {
      const std::size_t at = random_() % events_.size();
      auto [rank, completion] = events_[at];
      events_[at] = events_.back();
      events_.pop_back();
      if (completion.type == Completion::Type::kArrived) {  // the first on its wire instead
        std::deque<Completion>& wire = wire_[{completion.peer, rank}];
        completion = wire.front();
        wire.pop_front();
      }
      if (completion.type != Completion::Type::kTimer) completion.time = now_;
      now_ = std::max(now_, completion.time) + static_cast<TimePs>(random_() % 3);
      operations_.clear();
      walkers_[static_cast<std::size_t>(rank)].advance(now_, {&completion, 1}, operations_);
      take(rank);
    }
  }

 private:
  void take(std::int32_t rank) {
    for (const Operation& operation : operations_) {
      if (operation.type == Operation::Type::kTimer) {
        events_.push_back(
            {rank, {.type = Completion::Type::kTimer, .handle = operation.handle, .time = operation.at}});
        continue;
      }
      const Completion arrived{.type = Completion::Type::kArrived,
                               .peer = rank,
                               .tag = operation.tag,
                               .size_bytes = operation.size_bytes,
                               .first = now_,
                               .time = now_};
      events_.push_back({rank, {.type = Completion::Type::kSent, .handle = operation.handle}});
      events_.push_back({operation.peer, arrived});
      wire_[{rank, operation.peer}].push_back(arrived);
    }
  }

  std::vector<Walker>& walkers_;
  Random random_;
  std::vector<std::pair<std::int32_t, Completion>> events_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::deque<Completion>> wire_;
  std::vector<Operation> operations_;
  TimePs now_ = 0;
};

void check_done(const std::vector<Walker>& walkers, std::int32_t members, std::int64_t bytes_each,
                std::int64_t count, const std::string& context) {
  std::int64_t sent = 0, received = 0;
  for (const Walker& walker : walkers) {
    CHECK_EQUAL_IN(walker.error(), std::string(), context);
    CHECK_IN(walker.done(), context);
    CHECK_IN(walker.waiting(8).empty(), context);
    for (const SendRecord& record : walker.sends()) sent += record.size_bytes;
    for (const ReceiveRecord& record : walker.receives()) received += record.size_bytes;
  }
  CHECK_EQUAL_IN(sent, bytes_each * (members - 1) * count, context);
  CHECK_EQUAL_IN(received, sent, context);
}

void test_rings_in_drawn_orders() {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const auto members = static_cast<std::int32_t>(2 + random() % 6);
    const auto count = static_cast<std::int32_t>(1 + random() % 12);
    std::vector<std::int64_t> sizes;
    std::int64_t total = 0;
    for (std::int32_t block = 0; block < members; ++block) {
      sizes.push_back(random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 5000));
      total += sizes.back();
    }
    const SharedPlan shared = shared_plan(members, seed % 2 == 0, sizes);
    std::vector<RankPlan> plans;
    std::vector<Walker> walkers;
    std::vector<const RankPlan*> pointers;
    for (std::int32_t rank = 0; rank < members; ++rank) plans.push_back(rank_plan(shared, rank, count));
    for (const RankPlan& plan : plans) {
      walkers.emplace_back(shared, plan);
      pointers.push_back(&plan);
    }
    const std::string context = "seed " + std::to_string(seed);
    for (std::uint64_t again = 0; again < 3; ++again) {
      Drawn(walkers, seed * 3 + again).play();
      check_done(walkers, members, total, count, context);
      for (Walker& walker : walkers) {
        walker.reset();
        CHECK_IN(!walker.done() && walker.unfinished() == 2 * count && walker.sends().empty(), context);
      }
    }
    const AloneResult alone = walk_alone(shared, pointers);
    CHECK_IN(alone.problems.empty(), context);
    CHECK_EQUAL_IN(alone.steps, std::int64_t{members} * count * 2 * (members - 1), context);
  }
}

// The same completions at the same times give the same records and operations.
void test_it_is_pure() {
  const SharedPlan shared = shared_plan(4, true, {100, 0, 3, 9000});
  std::vector<RankPlan> plans;
  for (std::int32_t rank = 0; rank < 4; ++rank) plans.push_back(rank_plan(shared, rank, 6));
  std::vector<Walker> first, second;
  for (const RankPlan& plan : plans) {
    first.emplace_back(shared, plan);
    second.emplace_back(shared, plan);
  }
  Drawn(first, 5).play();
  Drawn(second, 5).play();
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::size_t node = 0; node < first[rank].nodes().size(); ++node) {
      const NodeRecord &a = first[rank].nodes()[node], &b = second[rank].nodes()[node];
      CHECK(a.ready == b.ready && a.start == b.start && a.end == b.end && a.overshoot == b.overshoot);
    }
  }
}

template <class Change>
std::string refused_table(Change change) {
  NodeTable table;
  add_node(table, NodeKind::kComp, 0, 1, 0, -1);
  add_node(table, NodeKind::kColl, 1, 0, kTag, 0);
  change(table);
  return table.prepare();
}

template <class Change>
std::string refused(Change change) {
  const SharedPlan shared = shared_plan(3, false, {1, 2, 3});
  auto table = std::make_shared<NodeTable>();
  add_node(*table, NodeKind::kColl, 1, 0, kTag, -1);
  CHECK_EQUAL(table->prepare(), std::string());
  RankPlan plan{
      .rank = 0, .table = std::move(table), .bindings = {{.template_id = 0, .group = 0, .position = 0}}};
  change(plan);
  return plan.check(shared);
}

void test_what_a_plan_refuses() {
  CHECK_EQUAL(refused_table([](NodeTable&) {}), std::string());
  CHECK_EQUAL(refused_table([](NodeTable& t) { t.tag.pop_back(); }),
              std::string("a plan's columns differ in length"));
  CHECK_EQUAL(refused_table([](NodeTable& t) { t.deps[0] = 2; }),
              std::string("a plan's dependencies point outside it"));
  CHECK_EQUAL(refused_table([](NodeTable& t) { t.dep_start = {0, 2, 1}; }),
              std::string("a plan's dependencies point outside it"));
  CHECK_EQUAL(refused_table([](NodeTable& t) { t.duration_ps[0] = -1; }),
              std::string("a node has a negative duration"));
  const std::string unbound = "a message or a collective has no binding, or another node has";
  CHECK_EQUAL(refused_table([](NodeTable& t) { t.binding[1] = -1; }), unbound);
  CHECK_EQUAL(refused_table([](NodeTable& t) { t.binding[0] = 0; }), unbound);
  CHECK_EQUAL(refused_table([](NodeTable& t) { add_node(t, NodeKind::kSend, 0, 0, 0, -1); }), unbound);
  CHECK_EQUAL(refused_table([](NodeTable& t) {
                add_node(t, NodeKind::kSend, 0, 0, 0, -1);
                t.binding[2] = 0;
              }),
              std::string("a message and a collective share a binding"));

  CHECK_EQUAL(refused([](RankPlan&) {}), std::string());
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings.pop_back(); }),
              std::string("a rank has too few bindings, or too many"));
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings[0].template_id = 1; }), std::string("no such template"));
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings[0].group = 1; }), std::string("no such group"));
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings[0].group = -1; }), std::string("no such group"));
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings[0].position = 3; }),
              std::string("a collective's template does not fit its group"));
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings[0].sizes_start = 1; }), std::string("no such block size"));
  CHECK_EQUAL(refused([](RankPlan& p) { p.bindings[0].sizes_start = -1; }),
              std::string("no such block size"));
}

template <class Change>
std::string refused_template(Change change) {
  StepTemplate it = ring(4, false);
  change(it);
  return it.prepare();
}

void test_what_a_template_refuses() {
  CHECK_EQUAL(refused_template([](StepTemplate&) {}), std::string());
  CHECK_EQUAL(refused_template([](StepTemplate& t) { t.credit.pop_back(); }),
              std::string("a template's columns differ in length"));
  CHECK_EQUAL(refused_template([](StepTemplate& t) { t.deps[0] = 6; }),
              std::string("a template's dependencies point outside it"));
  CHECK_EQUAL(refused_template([](StepTemplate& t) { t.deps[0] = 2; }),
              std::string("a template's step depends on a later one"));
  CHECK_EQUAL(refused_template([](StepTemplate& t) { t.peer[0] = 4; }),
              std::string("a template's peer is not a member"));
  CHECK_EQUAL(refused_template([](StepTemplate& t) { t.block[0] = -1; }),
              std::string("a template's block is out of range"));
}

}  // namespace

// Every send of a ring waits for its channel, then for its delay, and every receive for its own.
void test_times_of_gpus() {
  constexpr std::int32_t members = 4;
  constexpr TimePs start = 5'000'000, send = 300'000, receive = 200'000, per_kib = 10'000, work = 20'000;
  SharedPlan shared = shared_plan(members, true, std::vector<std::int64_t>(members, 2048));
  StepTemplate& steps = shared.templates[0];
  std::vector<TimePs> delay, bytes, busy;
  for (const std::uint8_t action : steps.action) {
    const bool sends = action == static_cast<std::uint8_t>(StepAction::kSend);
    delay.push_back(sends ? send : receive);
    bytes.push_back(sends ? per_kib : 0);
    busy.push_back(sends ? work : 0);
  }
  CHECK(!steps.set_times(start, {1}, bytes, busy).empty());
  CHECK(!steps.set_times(-1, delay, bytes, busy).empty());
  CHECK_EQUAL(steps.set_times(start, delay, bytes, busy), std::string());
  std::vector<RankPlan> plans;
  for (std::int32_t rank = 0; rank < members; ++rank) plans.push_back(rank_plan(shared, rank, 3));
  std::vector<const RankPlan*> all;
  for (const RankPlan& plan : plans) all.push_back(&plan);
  const AloneResult result = walk_alone(shared, all);
  CHECK(result.problems.empty());
  // Two collectives at a time, and a third after the first.
  const TimePs one = start + (members - 1) * (send + receive + 2 * (per_kib + work));
  CHECK(result.end >= 2 * one);
  CHECK(result.end < 2 * one + one / 10);
}

// Nodes of given slots and dependencies, after the first has begun: which follow it.
std::vector<std::int32_t> following_first(const std::vector<std::pair<std::int32_t, std::int32_t>>& nodes) {
  const SharedPlan shared = shared_plan(2, false, {8, 8});
  auto table = std::make_shared<NodeTable>();
  for (const auto& [slot, dep] : nodes) add_node(*table, NodeKind::kComp, slot, 5, 0, dep);
  CHECK_EQUAL(table->prepare(), std::string());
  const RankPlan plan{.rank = 0, .table = std::move(table), .bindings = {}};
  Walker walker(shared, plan);
  std::vector<Operation> operations;
  walker.begin(0, operations);
  CHECK(!walker.has_ended(0));
  std::vector<std::int32_t> following;
  Walker::Following after;
  after.follow(walker);
  for (std::int32_t row = after.next(0); row >= 0; row = after.next(row)) following.push_back(row);
  return following;
}

void test_what_begins_when_a_node_ends() {
  using Rows = std::vector<std::int32_t>;
  // 1 waits for the slot of 0; 2 waits for 1, in another slot; 3 for 2, in the first slot.
  CHECK(following_first({{1, -1}, {1, -1}, {2, 1}, {1, 2}}) == (Rows{1, 2, 3}));
  // The lowest row comes first, also where its dependency ends last.
  CHECK(following_first({{1, -1}, {1, 0}, {1, -1}, {1, -1}}) == (Rows{1, 2, 3}));
  // 1 and 2 begin together; the slot of 2 is taken; 2 has no slot.
  CHECK(following_first({{1, -1}, {1, -1}, {2, 0}}).empty());
  CHECK(following_first({{1, -1}, {2, -1}, {2, 0}}).empty());
  CHECK(following_first({{1, -1}, {-1, 0}}).empty());
}

int main() {
  test_what_begins_when_a_node_ends();
  test_rings_in_drawn_orders();
  test_it_is_pure();
  test_what_a_plan_refuses();
  test_what_a_template_refuses();
  test_times_of_gpus();
  return genie::test::check_result("test_walker");
}
