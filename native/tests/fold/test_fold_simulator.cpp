// Fold of a whole simulation: ports, switches, buffers and hosts. A ring that has come to the same state
// twice may be moved by whole periods. Each field of a shift that is left out shows, or
// makes the simulation crash. Timers are not judged, as they only set themselves again.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fold.hpp"
#include "tests/check.hpp"
#include "tests/fold/incomplete.hpp"
#include "twin/packet_level/simulator.hpp"

using namespace genie;
using twin::Network;
using twin::Simulator;

namespace {

constexpr std::int32_t kHosts = 4, kLeaves = 2;
constexpr std::int64_t kRateBps = 100'000'000'000;

struct Case {
  std::string name;
  bool shares_buffers = false, has_buckets = false, has_weights = false, marks = false;
  congestion::Control control = congestion::Control::kNone;
  std::int64_t size_bytes = 12'000;  // of a message
  TimePs apart = 0;                  // between the starts of two ranks
};

void cable(Network& network, std::int32_t a, std::int32_t b) {
  for (const bool back : {false, true}) {
    network.link_source.push_back(back ? b : a);
    network.link_target.push_back(back ? a : b);
    network.link_rate_bps.push_back(kRateBps);
    network.link_delay_ps.push_back(300 * kPsPerNs);
  }
}

// Two leaves with two hosts each, and a cable between them.
Network network_of(const Case& each) {
  Network it;
  it.hosts = kHosts;
  it.nodes = kHosts + kLeaves;
  it.frame_overhead_bytes = 38;
  for (std::int32_t host = 0; host < kHosts; ++host) cable(it, host, kHosts + host / 2);
  cable(it, kHosts, kHosts + 1);
  const auto links = static_cast<std::size_t>(it.links());
  it.link_buffer_bytes.assign(links, -1);
  it.link_ecn.assign(links, {});
  if (each.marks) it.link_ecn.assign(links, {1 << 20, 1 << 21, 0.5});
  it.link_headroom_bytes.assign(links, 60'000);
  it.link_burst_bytes.assign(links, each.has_buckets ? 9'000 : 0);
  it.shared_bytes.assign(static_cast<std::size_t>(it.nodes), 0);
  if (each.shares_buffers) {
    for (std::int32_t leaf = 0; leaf < kLeaves; ++leaf) it.shared_bytes[kHosts + leaf] = 400'000;
    it.buffer = {.reserve_bytes = 4096, .resume_bytes = 4096, .lossless = 1};
  }
  it.control_class = 1;
  if (each.has_weights) {
    it.strict_classes = 1u << twin::kPauseClass;
    it.weight_bytes = {8000, 8000, 0, 0};
  }
  it.packet_latency_ps.assign(kHosts, 100 * kPsPerNs);
  it.message_latency_ps.assign(kHosts, 0);
  it.routes.push_back({.group_of_host = std::vector<std::int32_t>(kHosts, 0),
                       .hops = twin::NextHops::none(static_cast<std::size_t>(it.nodes)),
                       .last_hop_start = std::vector<std::int64_t>(kHosts + 1, 0),
                       .last_hops = {}});
  for (std::int32_t from = 0; from < kHosts; ++from) {
    for (std::int32_t to = 0; to < kHosts; ++to) {
      if (from == to) continue;
      twin::Pinned path{.from = from, .to = to, .links = {static_cast<std::uint32_t>(2 * from)}, .port = -1};
      if (from / 2 != to / 2) path.links.push_back(2 * kHosts + (from / 2 == 0 ? 0 : 1));
      path.links.push_back(static_cast<std::uint32_t>(2 * to + 1));
      it.pinned.push_back(path);
    }
  }
  CHECK_EQUAL_IN(it.check(), std::string(), each.name);
  return it;
}

// Rounds of a ring of equal blocks. A rank sends the block that it received in the round before.
StepTemplate ring() {
  constexpr std::int32_t kRounds = 600;
  StepTemplate it;
  it.members = kHosts;
  it.relative = true;
  it.dep_start.push_back(0);
  for (std::int32_t round = 0; round < kRounds; ++round) {
    for (const bool send : {true, false}) {
      const auto step = static_cast<std::int32_t>(it.action.size());
      it.action.push_back(static_cast<std::uint8_t>(send ? StepAction::kSend : StepAction::kRecv));
      it.peer.push_back(send ? 1 : kHosts - 1);
      it.block_base.push_back(0);
      it.block.push_back(0);
      it.channel.push_back(0);
      it.credit.push_back(1);
      if (round > 0) it.deps.push_back(step - 2 + (send ? 1 : 0));
      it.dep_start.push_back(static_cast<std::int32_t>(it.deps.size()));
    }
  }
  CHECK_EQUAL(it.prepare(), std::string());
  return it;
}

class World {
 public:
  explicit World(const Case& each) : network_(network_of(each)) {
    shared_.templates.push_back(ring());
    shared_.block_sizes.assign(kHosts, each.size_bytes);
    shared_.group_start = {0, kHosts};
    shared_.slice_delay = 2'000;
    std::vector<const RankPlan*> plans;
    std::vector<std::int32_t> hosts;
    for (std::int32_t rank = 0; rank < kHosts; ++rank) {
      shared_.group_members.push_back(rank);
      hosts.push_back(rank);
      plans_.push_back(plan(rank, each));
      plans.push_back(plans_.back().get());
    }
    roce::QueuePairConfig config;
    config.window_packets = 64;
    config.congestion.control = each.control;
    config.congestion.line_rate_bps = kRateBps;
    config.congestion.base_round_trip = 4 * kPsPerUs;
    simulator_ = std::make_unique<Simulator>(network_, config, shared_, plans, hosts, 1);
    simulator_->hosts().ranks().see(0, true);
    simulator_->start();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void play(TimePs until) {
    while (simulator_->run(1 << 16, until)) {
    }
    now_ = until;
  }
  Snapshot snapshot() {
    Observe found(now_);
    simulator_->fold(found);
    return found.take();
  }
  void shift(Shift& by, TimePs now) {
    simulator_->fold(by);
    now_ = now + by.by();
    simulator_->move(by.by(), now_);
  }
  // Times of what has come to rank 0.
  std::vector<TimePs> take_seen() {
    std::vector<TimePs> times;
    for (const auto& [rank, time] : simulator_->hosts().ranks().take_seen()) times.push_back(time);
    return times;
  }
  TimePs now() const { return now_; }
  Simulator& simulator() { return *simulator_; }

 private:
  static std::unique_ptr<RankPlan> plan(std::int32_t rank, const Case& each) {
    auto table = std::make_shared<NodeTable>();
    for (const NodeKind kind : {NodeKind::kComp, NodeKind::kColl}) {
      table->kind.push_back(static_cast<std::uint8_t>(kind));
      table->slot.push_back(-1);
      table->duration_ps.push_back(kind == NodeKind::kComp ? 1'000 + rank * each.apart : 0);
      table->release_ps.push_back(0);
      table->size_bytes.push_back(0);
      table->tag.push_back(1u << 30);
      table->binding.push_back(kind == NodeKind::kColl ? 0 : -1);
    }
    table->dep_start = {0, 0, 1};
    table->deps = {0};
    CHECK_EQUAL(table->prepare(), std::string());
    auto own = std::make_unique<RankPlan>();
    own->rank = rank;
    own->table = std::move(table);
    own->bindings = {{.template_id = 0, .group = 0, .position = rank}};
    return own;
  }

  Network network_;
  SharedPlan shared_;
  std::vector<std::unique_ptr<RankPlan>> plans_;
  std::unique_ptr<Simulator> simulator_;
  TimePs now_ = 0;
};

// Two times at which the state is the same.
struct Period {
  TimePs from = 0, to = 0;
};
std::optional<Period> period_of(const Case& each) {
  constexpr std::size_t kWarm = 40, kMost = 400;
  constexpr TimePs kStep = 50 * kPsPerNs, kAfter = 400 * kPsPerNs;
  World world(each);
  std::vector<Snapshot> before;
  std::size_t seen = 0;
  while (before.size() < kMost && !world.simulator().over()) {
    world.play(world.now() + kStep);
    const std::vector<TimePs> came = world.take_seen();
    seen += came.size();
    if (came.empty() || seen < kWarm) continue;
    world.play(came.front() + kAfter);
    Snapshot now = world.snapshot();
    for (const Snapshot& earlier : before) {
      if (earlier.recurs_in(now)) return Period{earlier.now, now.now};
    }
    before.push_back(std::move(now));
  }
  return std::nullopt;
}

constexpr std::int64_t kPeriods = 3;
constexpr std::size_t kNone = ~std::size_t{0};

enum class Mutant : std::uint8_t { kMeansNothing, kLives, kCaught };

// A state that lacks a field may be none that its owner can work with: a crash catches the mutant too.
template <class Function>
Mutant in_a_process_of_its_own(Function function) {
  constexpr int kFirst = 40;  // apart from the exit codes of sanitizers
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    _exit(kFirst + static_cast<int>(function()));
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) - kFirst : -1;
  return code < 0 || code > static_cast<int>(Mutant::kCaught) ? Mutant::kCaught : static_cast<Mutant>(code);
}

// Its events are later, and then where they were; nothing else moves.
void check_displacement(const Case& each, TimePs now) {
  constexpr TimePs kBy = 70 * kPsPerUs;
  World world(each);
  world.play(now);
  const Snapshot before = world.snapshot();
  Displacement away(now, kBy), back(now, -kBy);
  world.simulator().fold(away);
  Observe later(now + kBy);
  world.simulator().fold(later);
  CHECK_IN(later.found().words == before.words && later.found().counters == before.counters, each.name);
  world.simulator().fold(back);
  CHECK_IN(world.snapshot() == before, each.name);
}

// The number of fields without which a shift is wrong.
std::size_t check(const Case& each) {
  const std::optional<Period> period = period_of(each);
  CHECK_IN(period.has_value(), each.name);
  if (!period) return 0;
  World played(each);
  played.play(period->from);
  const Snapshot earlier = played.snapshot();
  played.play(period->to);
  const Snapshot later = played.snapshot();
  CHECK_IN(earlier.recurs_in(later), each.name);
  const TimePs target = period->to + kPeriods * (period->to - period->from);
  played.play(target);
  const Snapshot expected = played.snapshot();
  World whole(each);
  whole.play(period->to);
  CHECK_IN(whole.snapshot() == later, each.name);  // and a walker's steps count from here
  test::Incomplete nothing(earlier, later, kPeriods, kNone);
  whole.shift(nothing, period->to);
  CHECK_IN(whole.snapshot() == expected && whole.now() == target, each.name);
  check_displacement(each, period->to);
  std::size_t caught = 0;
  for (std::size_t without = 0; without < nothing.fields(); ++without) {
    const Mutant found = in_a_process_of_its_own([&] {
      World jumped(each);
      jumped.play(period->to);
      jumped.snapshot();
      test::Incomplete shift(earlier, later, kPeriods, without);
      jumped.shift(shift, period->to);
      if (shift.means_nothing()) return Mutant::kMeansNothing;
      return jumped.snapshot() == expected ? Mutant::kLives : Mutant::kCaught;
    });
    CHECK_IN(found != Mutant::kLives, each.name + ", without field " + std::to_string(without));
    caught += found == Mutant::kCaught ? 1 : 0;
  }
  return caught;
}

}  // namespace

int main() {
  for (const Case& each : {
           Case{.name = "a ring"},
           Case{.name = "other starts", .apart = 300 * kPsPerNs},
           Case{.name = "shared buffers", .shares_buffers = true},
           Case{.name = "token buckets", .has_buckets = true},
           Case{.name = "weighted classes", .has_weights = true, .size_bytes = 4096},
           Case{.name = "DCQCN, thresholds that are not reached",
                .marks = true,
                .control = congestion::Control::kDcqcn},
       }) {
    const std::size_t caught = check(each);
    std::printf("%s: %zu fields caught\n", each.name.c_str(), caught);
    CHECK_IN(caught > 50, each.name);
  }
  return test::check_result("test_fold_simulator");
}
