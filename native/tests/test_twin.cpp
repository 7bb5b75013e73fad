// The twin without Python, under the sanitizers. The test draws networks with everything that links, switches
// and hosts do. It plays them in one thread and in several, with the same outcome.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "twin/packet_level/simulator.hpp"

namespace {

using namespace genie;
using namespace genie::twin;

constexpr std::int32_t kLeaves = 3, kSpines = 2, kHostsOfLeaf = 2, kHosts = kLeaves * kHostsOfLeaf;
constexpr std::int64_t kGbps = 1'000'000'000;

void cable(Network& network, std::int32_t a, std::int32_t b, std::int64_t rate_bps, TimePs delay) {
  for (const bool back : {false, true}) {
    network.link_source.push_back(back ? b : a);
    network.link_target.push_back(back ? a : b);
    network.link_rate_bps.push_back(rate_bps);
    network.link_delay_ps.push_back(delay);
  }
}

// Without links of a dead spine, if it is one.
Routes routes(const Network& network, std::int32_t dead) {
  Routes it;
  it.last_hop_start.push_back(0);
  for (std::int32_t host = 0; host < kHosts; ++host) {
    it.group_of_host.push_back(host / kHostsOfLeaf);
    it.last_hops.push_back(2 * host + 1);
    it.last_hop_start.push_back(host + 1);
  }
  NextHops& hops = it.hops;
  hops.run_start.push_back(0);
  hops.row_start.push_back(0);
  for (std::int32_t node = 0; node < network.nodes; ++node) {
    for (std::int32_t leaf = 0; leaf < kLeaves; ++leaf) {
      for (std::int32_t link = 0; link < network.links(); ++link) {
        const std::int32_t target = network.link_target[static_cast<std::size_t>(link)];
        if (network.link_source[static_cast<std::size_t>(link)] != node || target < kHosts) continue;
        const bool is_host = node < kHosts, is_spine = node >= kHosts + kLeaves;
        const bool leads = is_host    ? node / kHostsOfLeaf != leaf || target == kHosts + leaf
                           : is_spine ? target == kHosts + leaf
                                      : node != kHosts + leaf && target != dead;
        if (leads && node != dead) hops.links.push_back(link);
      }
      hops.run_group.push_back(leaf);
      hops.run_row.push_back(static_cast<std::int32_t>(hops.row_start.size()) - 1);
      hops.row_start.push_back(static_cast<std::int64_t>(hops.links.size()));
    }
    hops.run_start.push_back(static_cast<std::int64_t>(hops.run_group.size()));
  }
  return it;
}

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : random_(seed), name_("seed " + std::to_string(seed)) {
    draw_network();
    draw_config();
    shared_.group_start = {0};
    for (std::int32_t rank = 0; rank < kHosts; ++rank) plans_.push_back(plan(rank));
  }

  void play() {
    const std::vector<std::uint64_t> alone = outcome(1);
    for (const std::uint32_t threads : {2u, 3u}) CHECK_IN(outcome(threads) == alone, name_);
    const auto interval = static_cast<TimePs>(1 + draw(20)) * 1371 * kPsPerNs;
    std::vector<std::uint64_t> looked_at, others;
    const std::vector<std::uint64_t> sampled = outcome(1, interval, &looked_at);
    if (alone.front() == 1) CHECK_IN(sampled == alone, name_);
    for (const std::uint32_t threads : {2u, 3u}) {
      CHECK_IN(outcome(threads, interval, &others) == sampled, name_);
      CHECK_IN(others == looked_at, name_);
    }
  }

 private:
  std::uint64_t draw(std::uint64_t most) { return random_() % (most + 1); }

  void draw_network() {
    network_.hosts = kHosts;
    network_.nodes = kHosts + kLeaves + kSpines;
    network_.frame_overhead_bytes = 38;
    const TimePs delay = static_cast<TimePs>(draw(2)) * 300 * kPsPerNs;
    for (std::int32_t host = 0; host < kHosts; ++host)
      cable(network_, host, kHosts + host / kHostsOfLeaf, 100 * kGbps, delay);
    for (std::int32_t leaf = 0; leaf < kLeaves; ++leaf) {
      for (std::int32_t spine = 0; spine < kSpines; ++spine)
        cable(network_, kHosts + leaf, kHosts + kLeaves + spine, 50 * kGbps, 500 * kPsPerNs);
    }
    const auto links = static_cast<std::size_t>(network_.links());
    const bool pauses = draw(1) != 0;
    network_.link_buffer_bytes.assign(links, draw(3) == 0 && !pauses ? 20'000 : -1);
    network_.link_ecn.assign(links, {10'000, 40'000, 0.3});
    network_.link_headroom_bytes.assign(links, 60'000);
    network_.link_burst_bytes.assign(links, draw(3) == 0 ? 20'000 : 0);
    network_.shared_bytes.assign(static_cast<std::size_t>(network_.nodes),
                                 pauses || draw(1) != 0 ? 200'000 : 0);
    network_.buffer.reserve_bytes = 4096;
    network_.buffer.resume_bytes = 4096;
    network_.data_class = 0;
    network_.control_class = draw(1) != 0 ? 1 : 0;
    if (pauses) network_.buffer.lossless = 1;
    if (network_.control_class == 1 && draw(2) == 0) {
      network_.strict_classes = 1u << kPauseClass;
      network_.weight_bytes = {4000, 2000, 0, 0};
    }
    network_.packet_latency_ps.assign(kHosts, 0);
    network_.message_latency_ps.assign(kHosts, 0);
    network_.doorbell_latency = static_cast<TimePs>(draw(1)) * 200 * kPsPerNs;
    network_.notification_latency = static_cast<TimePs>(draw(1)) * 200 * kPsPerNs;
    if (draw(1) != 0) {
      network_.nic = {static_cast<TimePs>(draw(1)) * 100 * kPsPerNs,
                      static_cast<TimePs>(draw(1)) * 50 * kPsPerNs,
                      60 * kGbps,
                      2048,
                      {}};
      for (std::uint32_t link = 0; link < links; ++link)
        network_.nic.on_link.push_back(network_.link_source[link] < kHosts ? 1 : 0);
    }
    network_.cut_through = draw(1) != 0;
    network_.trims = draw(1) != 0;
    network_.balance = static_cast<Balance>(draw(4));
    network_.flowlet_gap = kPsPerUs;
    const auto spine = static_cast<std::int32_t>(draw(kSpines - 1)) + kHosts + kLeaves;
    network_.routes = {routes(network_, -1), routes(network_, spine)};
    if (draw(1) == 0) return;
    for (std::uint32_t link = 0; link < links; ++link) {
      if (network_.link_source[link] == spine || network_.link_target[link] == spine)
        network_.changes.push_back({20 * kPsPerUs, Change::Kind::kDown, link});
    }
    network_.changes.push_back({25 * kPsPerUs, Change::Kind::kRoutes, 1});
    network_.changes.push_back({30 * kPsPerUs, Change::Kind::kRate, 0, 10 * kGbps});
    for (std::uint32_t link = 0; link < links; ++link) {
      if (network_.link_source[link] == spine || network_.link_target[link] == spine)
        network_.changes.push_back({60 * kPsPerUs, Change::Kind::kUp, link});
    }
    network_.changes.push_back({65 * kPsPerUs, Change::Kind::kRoutes, 0});
  }

  void draw_config() {
    config_.mtu_bytes = 1024;
    config_.window_packets = 32;
    config_.ack_every_packets = 4;
    config_.ack_timeout = 200 * kPsPerUs;
    config_.reordering_packets = draw(1) != 0 ? 8 : 0;
    config_.selective_repeat = config_.reordering_packets > 0 && draw(1) != 0;
    constexpr congestion::Control kControls[] = {congestion::Control::kNone,   congestion::Control::kDcqcn,
                                                 congestion::Control::kTimely, congestion::Control::kSwift,
                                                 congestion::Control::kDctcp,  congestion::Control::kNscc};
    config_.congestion.control = kControls[draw(std::size(kControls) - 1)];
    config_.congestion.line_rate_bps = 100 * kGbps;
    config_.congestion.base_round_trip = 4 * kPsPerUs;
  }

  // Sends to all others and receives from all others, some of it after a sleep.
  RankPlan plan(std::int32_t rank) {
    auto table = std::make_shared<NodeTable>();
    RankPlan it{.rank = rank, .table = nullptr, .bindings = {}};
    table->dep_start.push_back(0);
    const auto add = [&](NodeKind kind, std::int32_t peer, TimePs duration, std::int64_t size_bytes,
                         bool after) {
      table->kind.push_back(static_cast<std::uint8_t>(kind));
      table->slot.push_back(-1);
      table->duration_ps.push_back(duration);
      table->release_ps.push_back(0);
      table->size_bytes.push_back(size_bytes);
      table->tag.push_back(0);
      table->binding.push_back(peer < 0 ? -1 : static_cast<std::int32_t>(it.bindings.size()));
      if (peer >= 0) it.bindings.push_back({.peer = peer});
      if (after) table->deps.push_back(0);
      table->dep_start.push_back(static_cast<std::int32_t>(table->deps.size()));
    };
    add(NodeKind::kComp, -1, (rank + 1) * kPsPerUs, 0, false);
    for (std::int32_t other = 0; other < kHosts; ++other) {
      if (other == rank) continue;
      add(NodeKind::kSend, other, 0, 60'000 + 1000 * other, other % 2 == 0);
      add(NodeKind::kRecv, other, 0, 60'000 + 1000 * rank, false);
    }
    CHECK_EQUAL(table->prepare(), std::string());
    it.table = std::move(table);
    CHECK_EQUAL(it.check(shared_), std::string());
    return it;
  }

  // Stands still at every multiple of `interval` and looks.
  void look_often(Simulator& twin, TimePs interval, std::vector<std::uint64_t>& seen) {
    std::size_t rows = 0;
    TimePs still_until = 0;
    for (TimePs time = interval; !twin.over() && time < 20'000 * kPsPerUs; time += interval) {
      while (twin.run(5000, time)) {
      }
      // After an interval without a row, in which nothing happens, comes another.
      const std::size_t before = rows;
      rows = twin.sample(time);
      CHECK_IN(rows == before || time > still_until, name_);
      if (rows == before) still_until = twin.next();
    }
    const Samples samples = twin.take_samples();
    CHECK_EQUAL_IN(rows, samples.links.size() + samples.pairs.size(), name_);
    std::vector<LinkCounters> sums(twin.links().links());
    for (const LinkSample& it : samples.links) {
      LinkCounters& sum = sums[it.link];
      sum.bytes += it.sent_bytes;
      sum.marked += it.marked;
      sum.dropped += it.dropped;
      sum.pauses += it.pauses;
      sum.paused_ps += it.paused_ns;
      sum.longest_queue_bytes = std::max(sum.longest_queue_bytes, it.longest_queue_bytes);
      CHECK_IN(it.longest_queue_bytes >= it.queue_bytes, name_);
      // A token bucket lets through what it has saved; a rate that rises, a packet that has begun.
      const bool steady = network_.link_burst_bytes[it.link] == 0 && network_.changes.empty();
      const auto sent_bytes = static_cast<double>(it.sent_bytes);
      CHECK_IN(it.utilisation <= 1 || !steady || sent_bytes - sent_bytes / it.utilisation < 2, name_);
      seen.insert(seen.end(),
                  {static_cast<std::uint64_t>(it.time), it.link, static_cast<std::uint64_t>(it.queue_bytes),
                   static_cast<std::uint64_t>(it.longest_queue_bytes), it.sent_bytes,
                   std::bit_cast<std::uint64_t>(it.utilisation), it.marked, it.pauses,
                   static_cast<std::uint64_t>(it.paused_ns), it.dropped});
    }
    for (const PairSample& it : samples.pairs) {
      CHECK_IN(it.rate_bps > 0 && it.rate_bps <= 100 * kGbps, name_);
      seen.insert(seen.end(),
                  {static_cast<std::uint64_t>(it.time), static_cast<std::uint64_t>(it.source),
                   static_cast<std::uint64_t>(it.target), static_cast<std::uint64_t>(it.rate_bps)});
    }
    if (!twin.done()) return;
    for (std::uint32_t link = 0; link < sums.size(); ++link) {
      const LinkCounters all = twin.links().totals(link);
      if (link < network_.link_rate_bps.size()) CHECK_EQUAL_IN(sums[link].bytes, all.bytes, name_);
      CHECK_EQUAL_IN(sums[link].marked, all.marked, name_);
      CHECK_EQUAL_IN(sums[link].dropped, all.dropped, name_);
      CHECK_EQUAL_IN(sums[link].pauses, all.pauses, name_);
      CHECK_EQUAL_IN(sums[link].paused_ps, all.paused_ps / kPsPerNs, name_);
      CHECK_IN(sums[link].longest_queue_bytes >= all.longest_queue_bytes, name_);
    }
  }

  std::vector<std::uint64_t> outcome(std::uint32_t threads, TimePs interval = 0,
                                     std::vector<std::uint64_t>* seen = nullptr) {
    std::vector<const RankPlan*> plans;
    std::vector<std::int32_t> hosts;
    for (const RankPlan& own : plans_) {
      plans.push_back(&own);
      hosts.push_back(own.rank);
    }
    Simulator twin(network_, config_, shared_, plans, hosts, 7, {}, threads);
    twin.start();
    if (seen != nullptr) {
      seen->clear();
      look_often(twin, interval, *seen);
    }
    while (!twin.over() && twin.now() < 20'000 * kPsPerUs) twin.run(5000);
    const std::vector<std::string> problems = twin.problems();
    const bool gave_up = std::any_of(problems.begin(), problems.end(), [](const std::string& line) {
      return line.find("gave up sending") != std::string::npos;
    });
    CHECK_IN(twin.done() || !twin.links().deadlock().empty() || gave_up, name_);
    std::vector<std::uint64_t> it{twin.done() ? 1u : 0u, twin.events()};
    for (std::int32_t rank = 0; rank < kHosts; ++rank) {
      const roce::QueuePairCounters counters = twin.totals(rank);
      it.insert(it.end(), {counters.data_sent, counters.retransmitted, counters.acks_received,
                           counters.naks_received, counters.congestion_marks, counters.cnps_received});
    }
    for (std::uint32_t link = 0; link < twin.links().links(); ++link) {
      const LinkCounters counters = twin.links().totals(link);
      it.insert(it.end(), {counters.packets, counters.bytes, counters.dropped, counters.marked,
                           counters.trimmed, counters.pauses, static_cast<std::uint64_t>(counters.paused_ps),
                           static_cast<std::uint64_t>(counters.longest_queue_bytes)});
    }
    return it;
  }

  std::mt19937_64 random_;
  std::string name_;
  Network network_;
  roce::QueuePairConfig config_;
  SharedPlan shared_;
  std::vector<RankPlan> plans_;
};

}  // namespace

int main() {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) Drawn(seed).play();
  return genie::test::check_result("test_twin");
}
