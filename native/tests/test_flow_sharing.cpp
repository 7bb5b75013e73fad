// Sharing of links among flows: the oracles by hand, and drawn networks against progressive filling done in
// full.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "twin/kernel/time_buckets.hpp"
#include "twin/levels/circuits.hpp"
#include "twin/levels/flow_sharing.hpp"

namespace {

using namespace genie;
using namespace genie::twin;
using Random = std::mt19937_64;

bool close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max({1.0, std::abs(a), std::abs(b)}); }

void three_flows_on_two_links() {
  const LinkShare a{0, 1}, b{1, 1};
  for (const auto& [rule, first] :
       {std::pair(SharingRule::kMaxMin, 9.0), std::pair(SharingRule::kEqual, 5.0)}) {
    FlowSharing sharing({10, 2}, rule);
    const std::uint32_t flows[] = {sharing.add(std::vector{a}), sharing.add(std::vector{a, b}),
                                   sharing.add(std::vector{b})};
    for (const std::uint32_t flow : flows) sharing.begin(flow);
    sharing.settle([](std::uint32_t) {});
    CHECK(close(sharing.rate(flows[0]), first));
    CHECK(close(sharing.rate(flows[1]), 1));
    CHECK(close(sharing.rate(flows[2]), 1));
    sharing.end(flows[2]);  // its rate goes to the flow beside it
    sharing.settle([](std::uint32_t) {});
    CHECK(close(sharing.rate(flows[1]), 2));
    CHECK(close(sharing.rate(flows[0]), rule == SharingRule::kMaxMin ? 8 : 5));
  }
}

struct Drawn {
  std::vector<double> capacity;
  std::vector<std::vector<LinkShare>> shares;
  std::vector<double> limits;
};

// Rates rise together until a link is full or a limit is met; the flows there stop rising.
std::vector<double> filled(const Drawn& drawn, const std::vector<bool>& active) {
  std::vector<double> rate(drawn.shares.size(), 0);
  std::vector<double> left = drawn.capacity;
  std::vector<bool> rises = active;
  while (std::find(rises.begin(), rises.end(), true) != rises.end()) {
    double step = std::numeric_limits<double>::infinity();
    std::vector<double> weight(left.size(), 0);
    for (std::size_t flow = 0; flow < rate.size(); ++flow) {
      if (!rises[flow]) continue;
      step = std::min(step, drawn.limits[flow] - rate[flow]);
      for (const LinkShare& part : drawn.shares[flow]) weight[part.link] += part.share;
    }
    for (std::size_t link = 0; link < left.size(); ++link) {
      if (weight[link] > 0) step = std::min(step, left[link] / weight[link]);
    }
    for (std::size_t flow = 0; flow < rate.size(); ++flow) {
      if (rises[flow]) rate[flow] += step;
    }
    for (std::size_t link = 0; link < left.size(); ++link) left[link] -= step * weight[link];
    for (std::size_t flow = 0; flow < rate.size(); ++flow) {
      bool stops = rate[flow] >= drawn.limits[flow] * (1 - 1e-9);
      for (const LinkShare& part : drawn.shares[flow])
        stops |= left[part.link] <= 1e-9 * std::max(1.0, drawn.capacity[part.link]);
      if (stops) rises[flow] = false;
    }
  }
  return rate;
}

void drawn_networks_fill_progressively() {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const std::string context = "seed " + std::to_string(seed);
    Drawn drawn;
    const std::size_t links = 1 + random() % 8, flows = 1 + random() % 12;
    for (std::size_t link = 0; link < links; ++link)
      drawn.capacity.push_back(static_cast<double>(1 + random() % 100));
    for (std::size_t flow = 0; flow < flows; ++flow) {
      std::vector<LinkShare> shares;
      for (std::uint32_t link = 0; link < links; ++link) {
        if (random() % 3 == 0) shares.push_back({link, random() % 4 == 0 ? 0.5 : 1.0});
      }
      const bool limited = shares.empty() || random() % 4 == 0;
      drawn.shares.push_back(shares);
      drawn.limits.push_back(limited ? static_cast<double>(1 + random() % 50) : FlowSharing::kUnlimited);
    }
    FlowSharing sharing(drawn.capacity, SharingRule::kMaxMin);
    for (std::size_t flow = 0; flow < flows; ++flow) sharing.add(drawn.shares[flow], drawn.limits[flow]);
    std::vector<bool> active(flows, false);
    std::vector<double> told(flows, 0);
    for (int change = 0; change < 20; ++change) {
      for (std::uint32_t flow = 0; flow < flows; ++flow) {
        if (random() % 3 != 0) continue;
        active[flow] ? sharing.end(flow) : sharing.begin(flow);
        active[flow] = !active[flow];
        told[flow] = 0;
      }
      if (random() % 5 == 0) {
        const auto link = static_cast<std::uint32_t>(random() % links);
        drawn.capacity[link] = static_cast<double>(1 + random() % 100);
        sharing.set_capacity(link, drawn.capacity[link]);
      }
      sharing.settle([&](std::uint32_t flow) { told[flow] = sharing.rate(flow); });
      const std::vector<double> wanted = filled(drawn, active);
      for (std::uint32_t flow = 0; flow < flows; ++flow) {
        CHECK_IN(close(sharing.rate(flow), active[flow] ? wanted[flow] : 0), context);
        CHECK_IN(close(sharing.rate(flow), told[flow]), context);  // settle() names each flow that it changes
      }
    }
  }
}

void buckets_give_all_of_the_first_time_in_order() {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    TimeBuckets<int> buckets;
    std::vector<std::pair<TimePs, int>> oracle;
    std::vector<int> given;
    TimePs now = 0;
    for (int number = 0; number < 500; ++number) {
      const TimePs time = now + static_cast<TimePs>(random() % 7);
      buckets.push(time, number);
      oracle.emplace_back(time, number);
      if (random() % 4 != 0) continue;
      std::stable_sort(oracle.begin(), oracle.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      now = oracle.front().first;
      CHECK_EQUAL_IN(buckets.next_time(), now, "seed " + std::to_string(seed));
      buckets.pop(given);
      for (const int one : given) {
        CHECK_EQUAL_IN(oracle.front().second, one, "seed " + std::to_string(seed));
        oracle.erase(oracle.begin());
      }
      CHECK_IN(oracle.empty() || oracle.front().first > now, "seed " + std::to_string(seed));
    }
  }
}

void a_host_has_so_many_circuits_at_a_time() {
  Circuits circuits({.ports = 1, .setup = 100, .rate_bps = 0}, 4);
  const std::uint32_t ab = circuits.of(0, 1), bc = circuits.of(1, 2), cd = circuits.of(2, 3);
  CHECK_EQUAL(circuits.of(1, 0), ab);
  std::vector<std::pair<std::uint32_t, TimePs>> granted;
  const auto grant = [&](std::uint32_t circuit, TimePs time) { granted.emplace_back(circuit, time); };
  CHECK(!circuits.take(ab, 0, grant));
  CHECK(!circuits.take(bc, 5, grant));  // host 1 has none left
  CHECK(!circuits.take(cd, 6, grant));  // not behind it: hosts 2 and 3 are free
  CHECK_EQUAL(granted.size(), std::size_t{2});
  CHECK(granted[0] == std::pair(ab, TimePs{100}));
  CHECK(granted[1] == std::pair(cd, TimePs{106}));
  circuits.is_up(ab);
  circuits.is_up(cd);
  circuits.leave(ab, 200, grant);
  CHECK_EQUAL(granted.size(), std::size_t{2});  // host 2 is still taken
  CHECK(circuits.take(ab, 201, grant));         // up until its port is needed
  circuits.leave(ab, 210, grant);
  circuits.leave(cd, 300, grant);
  CHECK(granted.back() == std::pair(bc, TimePs{400}));
  CHECK(!circuits.take(ab, 301, grant));
  CHECK_EQUAL(circuits.set_up(), std::uint64_t{3});
}

}  // namespace

int main() {
  three_flows_on_two_links();
  drawn_networks_fill_progressively();
  buckets_give_all_of_the_first_time_in_order();
  a_host_has_so_many_circuits_at_a_time();
  return genie::test::check_result("flow sharing");
}
