// The UDP engine under the sanitizers: two ranks in one thread on loopback, losses, garbage on the port,
// strangers.
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
IpAddress address_of_case(std::uint32_t number) {
  const auto process = static_cast<std::uint32_t>(getpid());
  IpAddress address;
  IpAddress::parse("127." + std::to_string(200 + process % 50) + "." + std::to_string(process / 50 % 250) +
                       "." + std::to_string(number % 250 + 1),
                   address);
  return address;
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
  std::uint32_t queue_pairs = 1;
  bool split = false;
  bool v6 = false;  // loopback's only address: shared
};

// `sizes.size()` messages each way, all at once.
RankPlan messages(std::int32_t rank, const std::vector<std::int64_t>& sizes) {
  auto table = std::make_shared<NodeTable>();
  table->dep_start.push_back(0);
  for (const NodeKind kind : {NodeKind::kSend, NodeKind::kRecv}) {
    for (std::size_t at = 0; at < sizes.size(); ++at) {
      table->kind.push_back(static_cast<std::uint8_t>(kind));
      table->slot.push_back(-1);
      table->duration_ps.push_back(0);
      table->release_ps.push_back(0);
      table->size_bytes.push_back(sizes[at]);
      table->tag.push_back(static_cast<std::uint32_t>(at));
      table->binding.push_back(0);
      table->dep_start.push_back(0);
    }
  }
  CHECK_EQUAL(table->prepare(), std::string());
  return {.rank = rank, .table = std::move(table), .bindings = {{.peer = 1 - rank}}};
}

EngineConfig config_of(const Case& each, std::int32_t rank, const IpAddress& address) {
  EngineConfig config;
  config.rank = rank;
  config.spin = each.spin;
  config.verify = true;
  config.message_max_bytes = 1 << 18;
  config.spread = {each.queue_pairs, each.split};
  config.nic.address = address;
  config.nic.port = each.v6 ? static_cast<std::uint16_t>(20'000 + getpid() % 20'000) : kPort;
  config.nic.local_rank = each.shared ? rank : 0;
  config.nic.offload = each.offload;
  config.nic.rate_bps = each.rate_bps;
  config.nic.rkey = 0x1000u + static_cast<std::uint32_t>(rank);
  config.queue_pair.mtu_bytes = 1024;
  config.queue_pair.window_packets = 64;
  // A busy machine must not look like a loss.
  if (each.lose_every == 0) config.queue_pair.ack_timeout = 5 * kPsPerSecond;
  return config;
}

// Rank `peer` as rank `rank` reaches it.
Peer peer_of(const Case& each, std::int32_t rank, std::int32_t peer, const IpAddress& address) {
  Peer out{.address = address, .qpns = {}, .first_psns = {}, .our_first_psns = {}, .source_ports = {}};
  for (std::uint32_t at = 0; at < each.queue_pairs; ++at) {
    const auto local = static_cast<std::uint32_t>(each.shared ? peer : 0);
    out.qpns.push_back((local + 1) << 16 | (at * 2 + static_cast<std::uint32_t>(rank)));
    out.first_psns.push_back(0xFFFFF0u + static_cast<std::uint32_t>(peer) + 2 * at);
    out.our_first_psns.push_back(0xFFFFF0u + static_cast<std::uint32_t>(rank) + 2 * at);
    out.source_ports.push_back(
        static_cast<std::uint16_t>(0xC000 + 64 * rank + static_cast<std::int32_t>(at)));
  }
  out.rkey = 0x1000u + static_cast<std::uint32_t>(peer);
  return out;
}

// Throws what comes from nowhere at a port: noise, packets cut and bent, and right ones of a stranger.
class Nuisance {
 public:
  explicit Nuisance(std::uint64_t seed) : random_(seed), socket_(socket(AF_INET, SOCK_DGRAM, 0)) {}
  ~Nuisance() { close(socket_); }
  Nuisance(const Nuisance&) = delete;
  Nuisance& operator=(const Nuisance&) = delete;

  void disturb(const IpAddress& address) {
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
    sockaddr_storage to;
    const socklen_t size = address.fill(to, kPort);
    const ssize_t sent =
        sendto(socket_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), size);
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
  IpAddress addresses[] = {address_of_case(2 * number), address_of_case(2 * number + (each.shared ? 0 : 1))};
  if (each.v6) {
    for (IpAddress& address : addresses) IpAddress::parse("::1", address);
  }
  RankPlan plans[] = {messages(0, sizes), messages(1, sizes)};
  std::vector<std::unique_ptr<Engine>> engines;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    CHECK_EQUAL_IN(plans[rank].check(shared), std::string(), each.name);
    engines.push_back(std::make_unique<Engine>(config_of(each, rank, addresses[rank])));
    if (!each.shared) CHECK_EQUAL_IN(engines.back()->open(), std::string(), each.name);
  }
  std::string error;
  std::vector<Socket> group;
  if (each.shared) group = open_receivers(addresses[0], config_of(each, 0, addresses[0]).nic.port, 2, error);
  CHECK_EQUAL_IN(error, std::string(), each.name);
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    CHECK_EQUAL_IN(engines[rank]->open_with(group[rank].release()), std::string(), each.name);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    std::vector<Peer> peers;
    for (std::int32_t peer = 0; peer < 2; ++peer) peers.push_back(peer_of(each, rank, peer, addresses[peer]));
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    CHECK_EQUAL_IN(engine.connect(peers), std::string(), each.name);
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
        CHECK_IN(states[rank] != RunState::kDone || !engine.nic().sending(), each.name);
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
    const NicCounters& counters = engines[rank]->nic().counters();
    CHECK_EQUAL_IN(engines[rank]->counters().verified_bytes, 2 * static_cast<std::uint64_t>(bytes),
                   each.name);
    CHECK_EQUAL_IN(engines[rank]->counters().wrong_bytes, std::uint64_t{0}, each.name);
    dropped +=
        counters.malformed + counters.bad_pkey + counters.strangers + counters.wrong_rank + counters.bad_icrc;
    CHECK_EQUAL_IN(counters.injected_losses > 0, each.lose_every > 0, each.name);
    CHECK_IN(counters.bytes_received > 2 * static_cast<std::uint64_t>(bytes), each.name);
    CHECK_EQUAL_IN(engines[rank]->nic().totals().retransmitted > 0, each.lose_every > 0, each.name);
  }
  CHECK_EQUAL_IN(dropped, nuisance.count, each.name);  // nothing of it got any further
}

void a_port_in_use_is_named() {
  const Case each;
  const IpAddress address = address_of_case(240);
  Engine first(config_of(each, 0, address)), second(config_of(each, 1, address));
  CHECK_EQUAL(first.open(), std::string());
  CHECK_EQUAL(second.open(), "cannot receive on " + address.text() + ":4791: Address already in use");
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
      {.name = "four queue pairs in turn", .queue_pairs = 4},
      {.name = "in turn, losses", .lose_every = 31, .queue_pairs = 3},
      {.name = "split over four, losses", .lose_every = 37, .queue_pairs = 4, .split = true},
      {.name = "IPv6", .shared = true, .v6 = true},
      {.name = "IPv6, no offload, losses", .offload = false, .shared = true, .lose_every = 41, .v6 = true},
      {.name = "garbage on one address", .offload = false, .shared = true, .garbage = true},
  };
  for (std::uint32_t number = 0; number < cases.size(); ++number) play(cases[number], number);
  a_port_in_use_is_named();
  return genie::test::check_result("engine");
}
