// The UDP engine under the sanitizers: two ranks in one thread on loopback, losses, garbage on the port,
// strangers.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "live/engine.hpp"

namespace {

using namespace genie;
using namespace genie::live;
using Random = std::mt19937_64;

constexpr std::uint16_t kPort = 4791;
constexpr TimePs kTurn = 200 * kPsPerUs;  // of one engine, while the other waits
constexpr TimePs kLimit = 20 * kPsPerSecond;

// An address of this process and case alone.
std::uint32_t address_of_case(std::uint32_t number) {
  const auto process = static_cast<std::uint32_t>(getpid());
  return (127u << 24) | ((200 + process % 50) << 16) | ((process / 50 % 250) << 8) | (number % 250 + 1);
}

struct Case {
  std::string name;
  bool offload = true;
  bool spin = false;
  bool shared = false;  // both ranks on one address
  std::int64_t rate_bps = 0;
  std::uint64_t lose_every = 0;
  TimePs delay = 0;
  bool garbage = false;
};

// `sizes.size()` messages each way, all at once.
RankPlan messages(std::int32_t rank, const std::vector<std::int64_t>& sizes) {
  RankPlan plan;
  plan.rank = rank;
  plan.dep_start.push_back(0);
  for (const NodeKind kind : {NodeKind::kSend, NodeKind::kRecv}) {
    for (std::size_t at = 0; at < sizes.size(); ++at) {
      plan.kind.push_back(static_cast<std::uint8_t>(kind));
      plan.slot.push_back(-1);
      plan.duration_ps.push_back(0);
      plan.release_ps.push_back(0);
      plan.template_id.push_back(-1);
      plan.sizes_start.push_back(0);
      plan.group.push_back(-1);
      plan.position.push_back(-1);
      plan.peer.push_back(1 - rank);
      plan.tag.push_back(static_cast<std::uint32_t>(at));
      plan.size_bytes.push_back(sizes[at]);
      plan.dep_start.push_back(0);
    }
  }
  return plan;
}

EngineConfig config_of(const Case& each, std::int32_t rank, std::uint32_t ipv4) {
  EngineConfig config;
  config.rank = rank;
  config.local_rank = each.shared ? rank : 0;
  config.ipv4 = ipv4;
  config.shared_port = each.shared;
  config.offload = each.offload;
  config.spin = each.spin;
  config.rate_bps = each.rate_bps;
  config.rkey = 0x1000u + static_cast<std::uint32_t>(rank);
  config.memory_bytes = 1 << 18;
  config.queue_pair.mtu_bytes = 1024;
  config.queue_pair.window_packets = 64;
  // A busy machine must not look like a loss.
  if (each.lose_every == 0) config.queue_pair.ack_timeout = 5 * kPsPerSecond;
  return config;
}

// Throws what comes from nowhere at a port: noise, packets cut and bent, and right ones of a stranger.
class Nuisance {
 public:
  explicit Nuisance(std::uint64_t seed) : random_(seed), socket_(socket(AF_INET, SOCK_DGRAM, 0)) {}
  ~Nuisance() { close(socket_); }
  Nuisance(const Nuisance&) = delete;
  Nuisance& operator=(const Nuisance&) = delete;

  void disturb(std::uint32_t ipv4) {
    std::vector<std::uint8_t> bytes(random_() % 200);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_());
    if (bytes.size() >= 16 && random_() % 2 == 0) {
      const std::uint8_t opcodes[] = {0x04, 0x0A, 0x0B, 0x06, 0x11, 0x12, 0x00, 0x17};
      bytes[0] = opcodes[random_() % std::size(opcodes)];
      bytes[1] = 0;
      const std::uint8_t queue_pair[] = {static_cast<std::uint8_t>(random_() % 4), 0,
                                         static_cast<std::uint8_t>(random_() % 3)};
      std::memcpy(bytes.data() + 5, queue_pair, sizeof queue_pair);
    }
    const sockaddr_in to = address_of(ipv4, kPort);
    const ssize_t sent =
        sendto(socket_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (sent >= 0) ++count;
  }
  std::uint64_t count = 0;

 private:
  Random random_;
  int socket_;
};

void play(const Case& each, std::uint32_t number) {
  Random random(number);
  std::vector<std::int64_t> sizes;
  std::int64_t bytes = 0;
  for (int at = 0; at < 40; ++at) sizes.push_back(static_cast<std::int64_t>(random() % 20'000));
  sizes.insert(sizes.end(), {0, 1, 1023, 1024, 1025, 200'000});
  for (const std::int64_t size : sizes) bytes += size;

  const SharedPlan shared;
  const std::uint32_t addresses[] = {address_of_case(2 * number),
                                     address_of_case(2 * number + (each.shared ? 0 : 1))};
  RankPlan plans[] = {messages(0, sizes), messages(1, sizes)};
  std::vector<std::unique_ptr<Engine>> engines;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    CHECK_EQUAL_IN(plans[rank].prepare(shared), std::string(), each.name);
    engines.push_back(std::make_unique<Engine>(config_of(each, rank, addresses[rank])));
    CHECK_EQUAL_IN(engines.back()->open(), std::string(), each.name);
  }
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    std::vector<PeerAddress> peers;
    for (std::int32_t peer = 0; peer < 2; ++peer)
      peers.push_back({.ipv4 = addresses[peer],
                       .local_rank = each.shared ? peer : 0,
                       .rkey = 0x1000u + static_cast<std::uint32_t>(peer),
                       .first_psn = 0xFFFFF0u + static_cast<std::uint32_t>(peer)});
    const std::uint32_t own_psn = 0xFFFFF0u + static_cast<std::uint32_t>(rank);
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    CHECK_EQUAL_IN(engine.connect(peers, {own_psn, own_psn}), std::string(), each.name);
    engine.set_plan(shared, plans[rank]);
    engine.loss(1 - rank).every(each.lose_every);
    if (each.delay > 0) engine.delay_path(1 - rank, each.delay);
  }

  Nuisance nuisance(number);
  for (int iteration = 0; iteration < 2; ++iteration) {
    RunState states[] = {RunState::kTimeout, RunState::kTimeout};
    for (std::size_t rank = 0; rank < 2; ++rank) states[rank] = engines[rank]->begin(engines[rank]->now());
    const TimePs end = engines[0]->now() + kLimit;
    while ((states[0] == RunState::kTimeout || states[1] == RunState::kTimeout) && engines[0]->now() < end) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        Engine& engine = *engines[rank];
        if (each.garbage) nuisance.disturb(addresses[rank]);
        const TimePs deadline = engine.now() + kTurn;
        if (states[rank] == RunState::kTimeout)
          states[rank] = engine.run(deadline);
        else
          engine.serve(deadline);
      }
    }
    for (std::size_t rank = 0; rank < 2; ++rank) {
      CHECK_IN(states[rank] == RunState::kDone, each.name + ": " + engines[rank]->error());
      CHECK_EQUAL_IN(engines[rank]->error(), std::string(), each.name);
    }
  }

  std::uint64_t dropped = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    engines[rank]->serve(engines[rank]->now() + 20 * kTurn);
    const EngineCounters& counters = engines[rank]->counters();
    dropped += counters.malformed + counters.strangers + counters.wrong_rank + counters.bad_icrc;
    CHECK_EQUAL_IN(counters.injected_losses > 0, each.lose_every > 0, each.name);
    CHECK_IN(counters.bytes_received > 2 * static_cast<std::uint64_t>(bytes), each.name);
    CHECK_EQUAL_IN(engines[rank]->totals().retransmitted > 0, each.lose_every > 0, each.name);
  }
  CHECK_EQUAL_IN(dropped, nuisance.count, each.name);  // nothing of it got any further
}

void a_port_in_use_is_named() {
  const Case each;
  const std::uint32_t ipv4 = address_of_case(240);
  Engine first(config_of(each, 0, ipv4)), second(config_of(each, 1, ipv4));
  CHECK_EQUAL(first.open(), std::string());
  CHECK_EQUAL(second.open(), "cannot receive on " + text_of(ipv4) + ":4791: Address already in use");
}

}  // namespace

int main() {
  const std::vector<Case> cases = {
      {.name = "offload"},
      {.name = "one datagram a packet", .offload = false},
      {.name = "polling", .spin = true},
      {.name = "one address", .shared = true},
      {.name = "paced", .rate_bps = 400'000'000},
      {.name = "losses", .lose_every = 16},
      {.name = "losses, paced, no offload", .offload = false, .rate_bps = 400'000'000, .lose_every = 71},
      {.name = "a long path", .rate_bps = 1'000'000'000, .delay = 2000 * kPsPerUs},
      {.name = "garbage", .garbage = true},
      {.name = "garbage on one address", .offload = false, .shared = true, .garbage = true},
  };
  for (std::uint32_t number = 0; number < cases.size(); ++number) play(cases[number], number);
  a_port_in_use_is_named();
  return genie::test::check_result("engine");
}
