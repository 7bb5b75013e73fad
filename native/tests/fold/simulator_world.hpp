// A ring of ranks on two leaves, in the packet level.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/snapshot.hpp"
#include "tests/check.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::test {

using twin::Network;
using twin::Simulator;

constexpr std::int32_t kHosts = 4, kLeaves = 2;
constexpr std::int64_t kRateBps = 100'000'000'000;

struct Case {
  std::string name;
  bool shares_buffers = false, has_buckets = false, has_weights = false, marks = false;
  congestion::Control control = congestion::Control::kNone;
  std::int64_t size_bytes = 12'000;  // of a message
  TimePs apart = 0;                  // between the starts of two ranks
  bool is_episode = false;           // services of inputs and the order of ends are kept
  bool has_gpus = false;             // their work on a message takes time
  bool has_retries = false;          // of links
  bool has_nic_costs = false;
  bool has_flowlets = false;  // a leaf chooses one of two cables for each
  roce::SpreadConfig spread = {};
  std::string visits = {};  // of each kind of field, in a fold of the state that recurs
};

inline void cable(Network& network, std::int32_t a, std::int32_t b) {
  for (const bool back : {false, true}) {
    network.link_source.push_back(back ? b : a);
    network.link_target.push_back(back ? a : b);
    network.link_rate_bps.push_back(kRateBps);
    network.link_delay_ps.push_back(300 * kPsPerNs);
  }
}

// Hosts send to their leaf, and a leaf by either of two cables to the other.
inline twin::Routes routes_by_flowlets() {
  twin::Routes it{.group_of_host = {}, .hops = {}, .last_hop_start = {0}, .last_hops = {}};
  it.hops = {.run_start = {0}, .run_group = {}, .run_row = {}, .row_start = {0}, .links = {}};
  const auto add = [&](std::int32_t group, const std::vector<std::int32_t>& links) {
    it.hops.run_group.push_back(group);
    it.hops.run_row.push_back(static_cast<std::int32_t>(it.hops.run_row.size()));
    it.hops.links.insert(it.hops.links.end(), links.begin(), links.end());
    it.hops.row_start.push_back(static_cast<std::int64_t>(it.hops.links.size()));
    it.hops.run_start.push_back(static_cast<std::int64_t>(it.hops.run_group.size()));
  };
  for (std::int32_t host = 0; host < kHosts; ++host) {
    it.group_of_host.push_back(host / 2);
    it.last_hops.push_back(2 * host + 1);
    it.last_hop_start.push_back(host + 1);
    add(0, {2 * host});
  }
  add(1, {2 * kHosts, 2 * kHosts + 2});
  add(0, {2 * kHosts + 1, 2 * kHosts + 3});
  return it;
}

// Two leaves with two hosts each, and a cable between them.
inline Network network_of(const Case& each) {
  Network it;
  it.hosts = kHosts;
  it.nodes = kHosts + kLeaves;
  it.frame_overhead_bytes = 38;
  for (std::int32_t host = 0; host < kHosts; ++host) cable(it, host, kHosts + host / 2);
  for (int cables = each.has_flowlets ? 2 : 1; cables > 0; --cables) cable(it, kHosts, kHosts + 1);
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
  if (each.has_retries) it.link_errors.assign(links, {.chance = 0, .round_trip = 900 * kPsPerNs});
  if (each.has_nic_costs) {
    it.nic = {.message_time = 150 * kPsPerNs,
              .packet_time = 20 * kPsPerNs,
              .pcie_rate_bps = 2 * kRateBps,
              .prefetch_bytes = 4096,
              .on_link = std::vector<std::uint8_t>(links, 0)};
    for (std::int32_t host = 0; host < kHosts; ++host) it.nic.on_link[2 * host] = 1;
  }
  if (each.has_flowlets) {
    it.balance = twin::Balance::kFlowlet;
    it.flowlet_gap = 1000 * kPsPerUs;
    it.routes.push_back(routes_by_flowlets());
    CHECK_EQUAL_IN(it.check(), std::string(), each.name);
    return it;
  }
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
inline StepTemplate ring(bool has_gpus) {
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
  if (has_gpus) {
    std::vector<TimePs> of_delay;
    for (const std::uint8_t action : it.action)
      of_delay.push_back(action == static_cast<std::uint8_t>(StepAction::kSend) ? 0 : 700 * kPsPerNs);
    const std::vector<TimePs> none(it.action.size(), 0);
    CHECK_EQUAL(it.set_times(kPsPerUs, of_delay, none, none), std::string());
  }
  return it;
}

class World {
 public:
  // kTaken: with numbers of its own.
  enum class State : std::uint8_t { kNew, kTaken, kRestored };
  explicit World(const Case& each) : World(each, State::kNew, nullptr) {}
  // `from`: of another world of the case, from whose state this one goes on.
  World(const Case& each, State state, const twin::Checkpoint* from) : network_(network_of(each)) {
    shared_.templates.push_back(ring(each.has_gpus));
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
    config.congestion.hpcc.additive_bps = kRateBps;  // its rate stays at the line's
    simulator_ = std::make_unique<Simulator>(network_, config, shared_, plans, hosts, 1, each.spread);
    simulator_->hosts().ranks().see(0, true);
    if (each.is_episode) simulator_->hosts().ranks().watch({});
    if (from != nullptr) simulator_->share_config(from->hosts.queue_pairs.config);
    simulator_->connect();
    if (each.is_episode) simulator_->links().inputs().keep_services();
    if (state == State::kRestored) simulator_->restore(*from);
    if (state == State::kTaken) simulator_->take_over(*from, same_numbers(*from), true);
    if (state != State::kRestored) simulator_->begin(from != nullptr ? from->now : 0);
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
  twin::Renumbering same_numbers(const twin::Checkpoint& from) const {
    twin::Renumbering to;
    for (std::int32_t node = 0; node < network_.nodes; ++node) to.nodes.push_back(node);
    for (std::int32_t rank = 0; rank < kHosts; ++rank) to.ranks.push_back(rank);
    for (std::int32_t link = 0; link < network_.links(); ++link)
      to.links.push_back(static_cast<std::uint32_t>(link));
    for (const Walker& walker : from.hosts.ranks.walkers())
      to.rows.push_back({0, walker.has_begun(1) ? 1 : -1});
    return to;
  }
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

}  // namespace genie::test
