// Arbitration: the order of packets on a wire, of strict and weighted classes, and of the inputs of a switch.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "twin/network/arbitration.hpp"
#include "twin/port/class_order.hpp"
#include "twin/port/port.hpp"

namespace {

using namespace genie;
using namespace genie::twin;

constexpr std::uint64_t kSeeds = 50;

std::string in_seed(std::uint64_t seed) { return "seed " + std::to_string(seed); }

// A port whose queues have room for `capacity` packets each, and begin somewhere in their rings.
struct PortWithRings {
  std::vector<Packet> memory;
  Port port;

  PortWithRings(std::uint32_t capacity, std::uint32_t head) : memory(std::size_t{kClasses} * capacity) {
    for (std::uint32_t own = 0; own < kClasses; ++own) {
      port.queues[own].slots = memory.data() + std::size_t{own} * capacity;
      port.queues[own].capacity = capacity;
      port.queues[own].head = head;
    }
  }
  void fly(std::uint32_t own, TimePs arrival) {
    PriorityQueue& queue = port.queues[own];
    Packet& packet = queue.at(queue.flying++);
    packet = {};
    packet.arrival = arrival;
    packet.priority = own & 7u;
    port.flying |= static_cast<std::uint8_t>(1u << own);
  }
};

// Packets of all classes leave the wire by arrival, and at one instant the lower class first.
void wires_deliver_by_arrival() {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    constexpr std::uint32_t kCapacity = 16;
    PortWithRings own(kCapacity, static_cast<std::uint32_t>(random() % kCapacity));
    std::vector<std::pair<TimePs, std::uint32_t>> expected;
    for (std::uint32_t priority = 0; priority < kClasses; ++priority) {
      TimePs arrival = 0;
      for (std::uint64_t left = random() % (kCapacity + 1); left > 0; --left) {
        arrival += 1 + static_cast<TimePs>(random() % 5);
        own.fly(priority, arrival);
        expected.emplace_back(arrival, priority);
      }
    }
    std::sort(expected.begin(), expected.end());
    for (const auto& [arrival, priority] : expected) {
      CHECK_IN(own.port.flying != 0, in_seed(seed));
      const Packet packet = own.port.take_first();
      CHECK_EQUAL_IN(packet.arrival, arrival, in_seed(seed));
      CHECK_EQUAL_IN(std::uint32_t{packet.priority}, priority, in_seed(seed));
    }
    CHECK_EQUAL_IN(unsigned{own.port.flying}, 0u, in_seed(seed));
  }
}

// Strict classes: the highest of those that are ready, whatever the others have.
void the_highest_strict_class_goes_first() {
  for (unsigned ready = 1; ready < 1u << kClasses; ++ready) {
    std::uint32_t highest = 0;
    for (std::uint32_t own = 0; own < kClasses; ++own) {
      if ((ready >> own & 1) != 0) highest = own;
    }
    CHECK_EQUAL(highest_class(ready), highest);
  }
}

// Weighted classes that always have packets share the port by their weights, but for a quantum and a packet.
void weighted_classes_share_by_their_weights() {
  constexpr std::int64_t kLargest = 1500, kQuantum = 2000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    std::array<std::int64_t, kClasses> weights{}, weight_bytes{}, sizes{}, sent{};
    unsigned ready = 0;
    for (std::uint32_t own = 0; own < kClasses; ++own) {
      if (random() % 2 == 0 && own + 1 < kClasses) continue;
      ready |= 1u << own;
      weights[own] = 1 + static_cast<std::int64_t>(random() % 8);
      weight_bytes[own] = weights[own] * kQuantum;
      sizes[own] = 64 + static_cast<std::int64_t>(random() % (kLargest - 63));
    }
    DeficitRoundRobin round_robin;
    for (int packet = 0; packet < 2000; ++packet) {
      const std::uint32_t own =
          round_robin.next(ready, weight_bytes, [&](std::uint32_t number) { return sizes[number]; });
      CHECK_IN((ready >> own & 1) != 0, in_seed(seed));
      sent[own] += sizes[own];
      sizes[own] = 64 + static_cast<std::int64_t>(random() % (kLargest - 63));
    }
    for (std::uint32_t a = 0; a < kClasses; ++a) {
      for (std::uint32_t b = 0; b < kClasses; ++b) {
        if ((ready >> a & ready >> b & 1) == 0) continue;
        const double apart = static_cast<double>(sent[a]) / static_cast<double>(weights[a]) -
                             static_cast<double>(sent[b]) / static_cast<double>(weights[b]);
        CHECK_IN(apart <= static_cast<double>(kQuantum + 2 * kLargest), in_seed(seed));
      }
    }
  }
}

// A class that had nothing to send has saved up nothing: it gets no more than its quantum at once.
void an_idle_class_saves_nothing() {
  constexpr std::int64_t kSize = 1000;
  std::array<std::int64_t, kClasses> weight_bytes{};
  weight_bytes[0] = weight_bytes[1] = 2 * kSize;
  DeficitRoundRobin round_robin;
  const auto next = [&](unsigned ready) {
    return round_robin.next(ready, weight_bytes, [](std::uint32_t) { return kSize; });
  };
  for (int packet = 0; packet < 100; ++packet) CHECK_EQUAL(next(1u << 0), 0u);
  int longest = 0, row = 0;
  for (int packet = 0; packet < 40; ++packet) {
    row = next(1u << 0 | 1u << 1) == 1 ? row + 1 : 0;
    longest = std::max(longest, row);
  }
  CHECK_EQUAL(longest, 2);
}

// The keys of a batch come in order, however many there are.
void keys_are_sorted() {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    ArrivalBatch batch;
    const std::size_t count = random() % 300;
    batch.make_room(count);
    const auto bits = static_cast<unsigned>(1 + random() % 64);
    for (std::size_t at = 0; at < count; ++at) batch.keys[at] = random() >> (64 - bits) << (64 - bits) | at;
    std::vector<std::uint64_t> expected(batch.keys.begin(),
                                        batch.keys.begin() + static_cast<std::ptrdiff_t>(count));
    std::sort(expected.begin(), expected.end());
    batch.sort_keys(count);
    CHECK_IN(std::equal(expected.begin(), expected.end(), batch.keys.begin()), in_seed(seed));
  }
}

// A switch with one packet of each input at one instant, in the order of the inputs' numbers.
struct Meeting {
  static constexpr unsigned kNumberBits = 20;
  std::vector<Packet> packets;
  ArrivalBatch batch;
  InputOrder inputs;

  explicit Meeting(std::uint32_t count) : packets(count) {
    batch.make_room(count);
    for (std::uint32_t input = 0; input < count; ++input) inputs.add(100 + input);
  }
  // The inputs in the order of their turns; they are served.
  std::vector<std::uint32_t> meet(std::uint64_t seed) {
    for (std::uint32_t input = 0; input < packets.size(); ++input) {
      batch.arrivals[input] = {&packets[input], nullptr, input, 0};
      batch.keys[input] = std::uint64_t{5} << kNumberBits | input;
    }
    CHECK_EQUAL(inputs.take_turns(batch, 0, packets.size(), kNumberBits, seed), packets.size());
    std::vector<std::uint32_t> order;
    for (std::size_t place = 0; place < packets.size(); ++place)
      order.push_back(batch.arrivals[batch.keys[place] & ((1u << kNumberBits) - 1)].input);
    for (const std::uint32_t input : order) inputs.serve(input);
    return order;
  }
};

// The input that was served longest ago goes first.
void inputs_take_turns() {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    Meeting meeting(1 + static_cast<std::uint32_t>(random() % 12));
    std::vector<std::uint32_t> expected(meeting.packets.size());
    std::iota(expected.begin(), expected.end(), 0u);
    std::shuffle(expected.begin(), expected.end(), random);
    for (const std::uint32_t input : expected) meeting.inputs.serve(input);
    CHECK_IN(meeting.meet(seed) == expected, in_seed(seed));
    CHECK_IN(meeting.meet(seed) == expected, in_seed(seed));  // trains in step keep their order
  }
}

// Between packets that a rate has let go the seed draws; the others keep their turns.
void paced_packets_draw_their_turns() {
  bool differs = false;
  std::vector<std::uint32_t> by_number(8);
  std::iota(by_number.begin(), by_number.end(), 0u);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto order_of = [&](bool serves_apart) {
      Meeting meeting(8);
      for (const std::uint32_t input : by_number) {
        meeting.packets[input].paced = input % 2 == 1;
        if (serves_apart) meeting.inputs.serve(input);
      }
      return meeting.meet(seed);
    };
    CHECK_IN(order_of(false) == by_number, in_seed(seed));  // all have come together before: at the beginning
    const std::vector<std::uint32_t> order = order_of(true);
    CHECK_IN(order == order_of(true), in_seed(seed));
    CHECK_IN(std::is_permutation(order.begin(), order.end(), by_number.begin()), in_seed(seed));
    for (std::uint32_t place = 0; place < order.size(); place += 2)
      CHECK_EQUAL_IN(order[place], place, in_seed(seed));
    differs |= order != by_number;
  }
  CHECK(differs);
}

// Kept services, of which some come with marks of their own, beside the row of all services.
struct KnownOrders {
  static constexpr std::uint32_t kInputs = 9;
  Meeting meeting{kInputs};
  std::vector<std::uint32_t> row;  // inputs, by their latest services
  TimePs now = 0;

  // Earlier services at a few times: of two with one time and one mark the order is known.
  explicit KnownOrders(std::mt19937_64& random) : row(kInputs) {
    std::iota(row.begin(), row.end(), 0u);
    meeting.inputs.keep_services();
    std::shuffle(row.begin(), row.end(), random);
    TimePs time = -20;
    for (std::uint32_t order = 0; order < kInputs; ++order) {
      time += random() % 3 == 0;
      meeting.inputs.set_service(row[order], {time, order, 1 + static_cast<std::uint32_t>(random() % 3)});
    }
  }
  // Some inputs are served at one instant.
  void serve(std::mt19937_64& random, const std::string& where) {
    ++now;
    std::vector<std::uint32_t> own;
    for (std::uint32_t input = 0; input < kInputs; ++input) {
      if (random() % 3 != 0) own.push_back(input);
    }
    for (std::uint32_t at = 0; at < own.size(); ++at) {
      // By ports of their own, so that no order matters.
      meeting.batch.arrivals[at] = {&meeting.packets[own[at]], nullptr, own[at], own[at]};
      meeting.batch.keys[at] = static_cast<std::uint64_t>(now) << Meeting::kNumberBits | at;
    }
    if (own.size() > 1) meeting.inputs.take_turns(meeting.batch, 0, own.size(), Meeting::kNumberBits, 1);
    if (own.size() == 1) meeting.inputs.serve_alone(own.front(), now);
    std::vector<std::uint32_t> turns, expected;
    for (std::size_t at = 0; at < own.size(); ++at)
      turns.push_back(
          meeting.batch.arrivals[meeting.batch.keys[at] & ((1u << Meeting::kNumberBits) - 1)].input);
    std::ranges::copy_if(row, std::back_inserter(expected),
                         [&](std::uint32_t it) { return std::ranges::find(own, it) != own.end(); });
    CHECK_IN(turns == expected, where);
    for (std::size_t at = 0; at < own.size(); ++at) meeting.inputs.serve(own[at]);
    std::ranges::stable_partition(row,
                                  [&](std::uint32_t it) { return std::ranges::find(own, it) == own.end(); });
  }
  // The number of pairs whose order is known, which must be right.
  int known(const std::string& where) const {
    int count = 0;
    for (std::size_t first = 0; first < row.size(); ++first) {
      for (std::size_t next = first + 1; next < row.size(); ++next) {
        const InputOrder::Service &one = meeting.inputs.service_of(row[first]),
                                  &other = meeting.inputs.service_of(row[next]);
        if (!one.has_known_order(other)) continue;
        CHECK_IN(std::pair(one.time, one.order) < std::pair(other.time, other.order), where);
        ++count;
      }
    }
    return count;
  }
};

// An order that is said to be known is right, and stays known.
void known_orders_are_right() {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    KnownOrders own(random);
    int known = own.known(in_seed(seed));
    for (int instant = 0; instant < 40; ++instant) {
      own.serve(random, in_seed(seed));
      const int now_known = own.known(in_seed(seed));
      CHECK_IN(now_known >= known, in_seed(seed));
      known = now_known;
    }
    CHECK_IN(!own.meeting.batch.has_doubtful_turn, in_seed(seed));
    CHECK_EQUAL_IN(known, 36, in_seed(seed));  // each two have been served apart by then
  }
}

}  // namespace

int main() {
  wires_deliver_by_arrival();
  the_highest_strict_class_goes_first();
  weighted_classes_share_by_their_weights();
  an_idle_class_saves_nothing();
  keys_are_sorted();
  inputs_take_turns();
  paced_packets_draw_their_turns();
  known_orders_are_right();
  return genie::test::check_result("test_arbitration");
}
