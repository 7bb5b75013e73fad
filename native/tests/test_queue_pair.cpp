// The reliable connection under drawn loss, duplication, reordering, receivers that are not ready and ghosts.
#include <random>
#include <tuple>

#include "pair_world.hpp"

namespace genie::test {
namespace {

using roce::NakCode;
using roce::Opcode;
using roce::RequesterState;

constexpr std::uint8_t kRnr = roce::kSyndromeRnrNak | 9;

// Immediate status of a request that the queue pair does not take.
Status refusal(World& world, Verb verb, std::uint32_t size_bytes) {
  struct Refused : World::Sink {
    Status status = Status::kOk;
    void sent(QueuePair&, std::uint64_t, Status its_status, std::uint32_t) { status = its_status; }
  } sink{{world.sink(0)}};
  world.ends[0].pair.post({.verb = verb, .size_bytes = size_bytes}, sink);
  return sink.status;
}

void psns_wrap() {
  CHECK_EQUAL(psn_diff(0, roce::kPsnMask), 1);
  CHECK_EQUAL(psn_diff(roce::kPsnMask, 0), -1);
  CHECK_EQUAL(psn_diff(0x7FFFFF, 0), 0x7FFFFF);
  CHECK_EQUAL(psn_diff(0x800000, 0), -0x800000);
  CHECK_EQUAL(psn_add(roce::kPsnMask, 2), 1u);
}

// A NAK of a PSN that was never sent is a ghost: it must not restart a timer with nothing in flight.
void a_nak_ahead_of_all_that_was_sent_is_a_ghost() {
  World world(small_config(), 0, 0, __func__);
  world.post(0, Verb::kWrite, 8);
  world.send(0);
  world.receive(0, response(roce::nak(NakCode::kSequence), 1));
  CHECK_EQUAL(world.ends[0].pair.pending(), std::size_t{1});
  CHECK_EQUAL(world.ends[0].pair.unacked_psn(), 0u);
  CHECK_EQUAL(world.ends[0].pair.counters().naks_received, std::uint64_t{0});
  world.finish();
  CHECK(world.ends[0].posted[0].status == Status::kOk);
}

// An earlier time takes the place of the timeout's; when that comes round, it must not breed another.
void a_timer_that_was_overtaken_is_dropped() {
  World world(small_config(), 0, 0, __func__);
  End& end = world.ends[0];
  world.post(0, Verb::kSend, 8);
  world.send(0);
  world.receive(0, response(kRnr, 0));
  CHECK_EQUAL(end.timers.size(), std::size_t{2});
  world.fire(0);
  CHECK_EQUAL(world.now, TimePs{24});
  CHECK(end.pair.state() == RequesterState::kActive);
  world.send(0);
  CHECK_EQUAL(end.arms, std::uint64_t{3});
  world.fire(0);
  CHECK_EQUAL(world.now, kTimeout);
  CHECK_EQUAL(end.arms, std::uint64_t{3});
  CHECK_EQUAL(end.pair.counters().timeouts, std::uint64_t{0});
  world.fire(0);
  CHECK_EQUAL(world.now, kTimeout + 24);
  CHECK_EQUAL(end.pair.counters().timeouts, std::uint64_t{1});
}

// A duplicate of the refused packet finds a receive, and its acknowledgement comes in the pause.
void an_acknowledgement_ends_the_pause_when_nothing_is_left() {
  World world(small_config(), 0, 0, __func__);
  End& end = world.ends[0];
  world.post(0, Verb::kSend, 8);
  world.send(0);
  world.ends[1].receives = 0;
  world.deliver(1, 0, true);
  world.send(1);
  world.deliver(0, 0);
  CHECK(end.pair.state() == RequesterState::kRnrWait);
  world.ends[1].receives = 1;
  world.deliver(1, 0);
  world.send(1);
  world.deliver(0, 0);
  CHECK(end.pair.state() == RequesterState::kIdle);
  while (!end.timers.empty()) world.fire(0);
  CHECK(end.pair.state() == RequesterState::kIdle);
}

void what_is_no_request_is_not_answered() {
  World world(small_config(), 0, 0, __func__);
  for (const Opcode opcode :
       {Opcode::kCnp, Opcode::kReadResponseFirst, Opcode::kReadResponseMiddle, Opcode::kReadResponseLast,
        Opcode::kReadResponseOnly, Opcode::kAtomicAcknowledge}) {
    for (const std::uint32_t psn : {0u, 1u, roce::kPsnMask}) {
      Packet packet;
      packet.opcode = opcode;
      packet.psn = psn;
      world.receive(0, packet);
      CHECK(!world.ends[0].pair.has_control());
    }
  }
}

void syndromes_are_read_without_their_reserved_parts() {
  for (const int reserved : {0x40, 0x5F, 0xC0}) {
    World world(small_config(), 0, 0, __func__);
    world.post(0, Verb::kWrite, 8);
    world.send(0);
    world.receive(0, response(static_cast<std::uint8_t>(reserved), 0));
    CHECK(world.ends[0].pair.state() == RequesterState::kActive);
    CHECK_EQUAL(world.ends[0].pair.pending(), std::size_t{1});
  }
  World world(small_config(), 0, 0, __func__);
  world.post(0, Verb::kWrite, 8);
  world.send(0);
  world.receive(0, response(0x80 | roce::nak(NakCode::kSequence), 0));
  CHECK(world.ends[0].pair.state() == RequesterState::kActive);
  CHECK_EQUAL(world.ends[0].pair.counters().naks_received, std::uint64_t{1});
}

void retries_end_and_the_rest_is_flushed() {
  QueuePairConfig config = small_config();
  config.retry_limit = 3;
  World world(config, 0, 0, __func__);
  End& end = world.ends[0];
  for (int count = 0; count < 3; ++count) world.post(0, Verb::kWriteImm, 20);
  for (int times = 0; times < 4; ++times) {
    while (world.send(0)) world.ends[1].arriving.clear();
    world.fire(0);
  }
  CHECK_EQUAL(end.pair.counters().timeouts, std::uint64_t{4});
  CHECK(end.pair.state() == RequesterState::kError);
  CHECK(end.posted[0].status == Status::kRetryExceeded);
  CHECK(end.posted[1].status == Status::kFlushed && end.posted[2].status == Status::kFlushed);
  world.post(0, Verb::kWriteImm, 20);
  CHECK(end.posted[3].over && end.posted[3].status == Status::kFlushed);
}

void receivers_that_are_never_ready_end_it() {
  QueuePairConfig config = small_config();
  config.rnr_retry_limit = 2;
  World world(config, 0, 0, __func__);
  End& end = world.ends[0];
  world.ends[1].receives = 0;
  world.post(0, Verb::kSend, 8);
  for (int times = 0; times < 3; ++times) {
    CHECK(world.send(0));
    world.deliver(1, 0);
    CHECK(world.send(1));
    world.deliver(0, 0);
    if (times < 2) {
      CHECK(end.pair.state() == RequesterState::kRnrWait);
      CHECK(!end.pair.has_data());
      while (end.pair.state() == RequesterState::kRnrWait) world.fire(0);
    }
  }
  CHECK(end.posted[0].status == Status::kRnrRetryExceeded);
  CHECK_EQUAL(end.pair.counters().rnr_naks_received, std::uint64_t{3});
}

// PSNs of queued messages may lap the circle many times: only those in flight must be told apart.
void a_queue_longer_than_the_psn_circle() {
  QueuePairConfig config = small_config();
  config.mtu_bytes = 1;
  World world(config, 5, 5, __func__);
  const std::uint32_t packets = roce::kMessageMaxPackets;
  world.post(0, Verb::kSend, packets);
  world.post(0, Verb::kSend, packets);
  world.post(0, Verb::kSend, 2);  // 2^24 PSNs: the next to post is the next to send
  CHECK(world.ends[0].pair.has_data());
  for (int count = 0; count < 4; ++count) CHECK(world.send(0));
}

// A message of half the circle could not be told from none: it is refused, and the connection goes on.
void a_message_longer_than_half_the_circle_is_refused() {
  QueuePairConfig config = small_config();
  config.mtu_bytes = 256;
  for (const Verb verb : {Verb::kWrite, Verb::kRead}) {
    World world(config, 0, 0, __func__);
    world.post(0, Verb::kWrite, 64);
    CHECK(world.send(0));
    const std::uint32_t most = (verb == Verb::kRead ? roce::kReadMaxPackets : roce::kMessageMaxPackets) * 256;
    CHECK(refusal(world, verb, most + 1) == Status::kTooLong);
    CHECK_EQUAL(world.ends[0].pair.pending(), std::size_t{1});
    world.finish();
    CHECK(world.ends[0].posted[0].status == Status::kOk);
  }
}

// A mark and a request for an acknowledgement in one packet: two answers.
void a_notification_does_not_cost_the_acknowledgement() {
  QueuePairConfig config = small_config();
  config.congestion.control = congestion::Control::kDcqcn;
  config.congestion.line_rate_bps = 1'000'000;
  World world(config, 0, 0, __func__);
  world.post(0, Verb::kWrite, 8);
  CHECK(world.send(0));
  world.ends[1].arriving.at(0).congested = true;
  world.deliver(1, 0);
  CHECK(world.send(1) && world.send(1));
  CHECK(world.ends[0].arriving.at(0).opcode == Opcode::kCnp);
  world.deliver(0, 0);
  world.deliver(0, 0);
  CHECK(world.ends[0].posted[0].status == Status::kOk);
  CHECK_EQUAL(world.ends[0].pair.counters().cnps_received, std::uint64_t{1});
}

// A receiver must forget a packet that was trimmed or came early within half of the PSN space. Otherwise it
// would count a later PSN as still missing.
void a_loss_is_forgotten_before_psns_turn(bool trimmed) {
  struct Sink {
    void ready(QueuePair&) {}
    void arm_timer(QueuePair&, TimePs) {}
    void sent(QueuePair&, std::uint64_t, Status, std::uint32_t) {}
    bool may_write(QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
    bool may_read(QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
    bool readable(QueuePair&) { return true; }
    void refused(QueuePair&, const Packet&, roce::Refusal) {}
    bool take_receive(QueuePair&) { return true; }
    std::int64_t receives_left(QueuePair&) { return -1; }
    bool place(QueuePair&, const Packet&, std::uint64_t) { return true; }
    void fetched(QueuePair&, const Packet&, std::uint64_t) {}
    void delivered(QueuePair&, const roce::Delivery&) {}
  } sink;
  QueuePairConfig config = small_config();
  config.reordering_packets = 4;
  config.selective_repeat = true;
  QueuePair receiver(config, 0, 0, 0);
  std::uint32_t psn = 0;
  const auto come = [&] {
    Packet packet;
    packet.opcode = Opcode::kSendOnly;
    packet.psn = psn;
    psn = psn_add(psn, 1);
    receiver.receive(packet, 0, sink);
  };
  if (trimmed) {
    receiver.receive_trimmed(psn, sink);
  } else {  // five packets overtake the first
    psn = 1;
    for (int count = 0; count < 5; ++count) come();
    psn = 0;
  }
  Packet answer;
  CHECK(receiver.take_control(answer, sink));
  CHECK_EQUAL(answer.syndrome, roce::nak(NakCode::kSequence));
  if (trimmed) receiver.receive_trimmed(psn + 4, sink);  // and comes before it is asked for
  for (int count = trimmed ? 0 : 4; count < 5; ++count) come();
  psn = receiver.expected_psn();
  for (std::uint32_t count = 0; count < (1u << 24) + 100; ++count) {
    come();
    receiver.take_control(answer, sink);
  }
  CHECK_EQUAL(receiver.expected_psn(), psn);
  CHECK_EQUAL(receiver.counters().naks_sent, std::uint64_t{1});
  CHECK_EQUAL(receiver.counters().duplicates, std::uint64_t{0});
}

struct Fuzz {
  Fuzz(unsigned seed, const QueuePairConfig& config)
      : random(seed), world(config, psn(), psn(), "seed " + std::to_string(seed)) {}

  std::uint64_t draw(std::uint64_t below) { return random() % below; }
  std::uint32_t psn() { return static_cast<std::uint32_t>(random()) & roce::kPsnMask; }

  void post(int at) {
    static constexpr std::uint32_t kSizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 24, 40, 100, 200};
    if (world.ends[at].pair.pending() < 12)
      world.post(at, static_cast<Verb>(draw(5)), kSizes[draw(std::size(kSizes))]);
  }

  void arrive(int at) {
    auto& arriving = world.ends[at].arriving;
    if (arriving.empty()) return;
    const std::size_t which = draw(10) < 8 ? 0 : draw(arriving.size());
    const std::uint64_t fate = draw(100);
    if (fate < losses) {
      arriving.erase(arriving.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      world.deliver(at, which, fate >= 95);
    }
  }

  // A response for a PSN that is not in flight, from any time: nothing may come of it.
  void ghost(int at) {
    End& end = world.ends[at];
    const bool positive = draw(2) == 0;
    const auto distance = static_cast<std::uint32_t>(draw(1u << 22));
    const std::uint32_t first_acked = positive ? psn_add(end.pair.unacked_psn(), roce::kPsnMask)
                                               : end.pair.unacked_psn();  // says nothing new, but is no ghost
    const std::uint32_t ghost_psn =
        draw(2) == 0 ? psn_add(end.top_psn, distance) : (first_acked - 1 - distance) & roce::kPsnMask;
    const std::uint8_t syndrome = positive       ? roce::kSyndromeAck
                                  : draw(2) == 0 ? kRnr
                                                 : roce::nak(static_cast<NakCode>(draw(4)));
    const auto seen = [&] {
      return std::tuple(end.pair.state(), end.pair.unacked_psn(), end.pair.send_psn(), end.pair.pending(),
                        end.arms);
    };
    const auto before = seen();
    world.receive(at, response(syndrome, ghost_psn));
    CHECK_IN(before == seen(), world.name);
  }

  void step() {
    const int at = static_cast<int>(draw(2));
    ++world.now;
    switch (draw(16)) {
      case 0:
        return post(at);
      case 1:
        return ghost(at);
      case 2:
        if (draw(8) == 0) world.ends[at].receives = static_cast<std::int64_t>(draw(4)) - 1;
        return;
      case 3:
        if (!world.ends[at].timers.empty() && draw(8) == 0) world.fire(at);
        return;
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        world.send(at);
        return;
      default:
        arrive(at);
    }
  }

  std::mt19937_64 random;
  World world;
  std::uint64_t losses = 5;
};

void everything_arrives_once_and_in_order() {
  std::uint64_t messages = 0, retransmitted = 0, rnr = 0, duplicates = 0, timeouts = 0, responses = 0;
  int asked_again = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    QueuePairConfig config = small_config();
    config.retry_limit = 1'000'000;
    Fuzz fuzz(seed, config);
    fuzz.losses = seed % 4 * 6;
    fuzz.world.credits = seed % 2 == 0;
    if (seed % 5 == 0) fuzz.world.config.reads_max = 1;
    for (int event = 0; event < 10'000; ++event) fuzz.step();
    fuzz.world.finish();
    for (int at : {0, 1}) {
      const End &end = fuzz.world.ends[at], &peer = fuzz.world.ends[1 - at];
      std::size_t delivered = peer.delivered;
      while (delivered < end.posted.size() && end.posted[delivered].request.verb == Verb::kRead) ++delivered;
      CHECK_EQUAL_IN(delivered, end.posted.size(), fuzz.world.name);
      for (const Posted& message : end.posted)
        CHECK_IN(message.over && message.status == Status::kOk, fuzz.world.name);
      messages += end.posted.size();
      retransmitted += end.pair.counters().retransmitted;
      rnr += end.pair.counters().rnr_naks_received;
      duplicates += end.pair.counters().duplicates;
      timeouts += end.pair.counters().timeouts;
      responses += end.pair.counters().responses_received;
      asked_again += end.pair.counters().responses_received < peer.pair.counters().responses_sent;
    }
  }
  // The draws reach what they are for.
  CHECK(messages > 1000 && retransmitted > 1000 && rnr > 100 && duplicates > 500 && timeouts > 100);
  CHECK(responses > 1000 && asked_again > 10);
}

void broken_connections_end_in_order() {
  int broken = 0;
  for (unsigned seed = 100; seed < 120; ++seed) {
    QueuePairConfig config = small_config();
    config.retry_limit = 2;
    config.rnr_retry_limit = 2;
    Fuzz fuzz(seed, config);
    fuzz.losses = 40;
    for (int event = 0; event < 5'000; ++event) fuzz.step();
    fuzz.world.finish();
    for (int at : {0, 1}) {
      const End& end = fuzz.world.ends[at];
      // Some are sent, then one fails, then all are flushed.
      std::size_t place = 0;
      while (place < end.posted.size() && end.posted[place].status == Status::kOk) ++place;
      for (const Posted& message : end.posted) CHECK_IN(message.over, fuzz.world.name);
      if (place == end.posted.size()) continue;
      ++broken;
      CHECK_IN(end.posted[place].status == Status::kRetryExceeded ||
                   end.posted[place].status == Status::kRnrRetryExceeded,
               fuzz.world.name);
      for (++place; place < end.posted.size(); ++place)
        CHECK_IN(end.posted[place].status == Status::kFlushed, fuzz.world.name);
    }
  }
  CHECK(broken > 10);
}

}  // namespace
}  // namespace genie::test

int main() {
  using namespace genie::test;
  psns_wrap();
  a_nak_ahead_of_all_that_was_sent_is_a_ghost();
  a_timer_that_was_overtaken_is_dropped();
  an_acknowledgement_ends_the_pause_when_nothing_is_left();
  what_is_no_request_is_not_answered();
  syndromes_are_read_without_their_reserved_parts();
  retries_end_and_the_rest_is_flushed();
  receivers_that_are_never_ready_end_it();
  a_queue_longer_than_the_psn_circle();
  a_message_longer_than_half_the_circle_is_refused();
  a_notification_does_not_cost_the_acknowledgement();
  for (const bool trimmed : {false, true}) a_loss_is_forgotten_before_psns_turn(trimmed);
  everything_arrives_once_and_in_order();
  broken_connections_end_in_order();
  return check_result("test_queue_pair");
}
