// READs whose answers are late or refused.
#include "pair_world.hpp"
#include "roce/opcode.hpp"

namespace genie::test {
namespace {

using roce::NakCode;
using roce::Opcode;

// The receiver asks for a READ that another request has overtaken. Its data comes after all: there is nothing
// to be sent again.
void a_read_that_was_only_late_is_not_sent_again() {
  QueuePairConfig config = small_config();
  config.selective_repeat = true;
  config.reordering_packets = 4;
  World world(config, 100, 0, __func__);
  world.post(0, Verb::kRead, 8);
  world.post(0, Verb::kWrite, 32);
  for (int packet = 0; packet < 5; ++packet) world.send(0);
  Packet asked = response(roce::nak(NakCode::kSequence), 100);
  asked.msn = 103;  // ends what is missing
  world.receive(0, asked);
  Packet data = response(roce::kSyndromeAck, 100);
  data.opcode = Opcode::kReadResponseOnly;
  data.payload_bytes = 8;
  data.local_address = world.ends[0].posted[0].request.remote_address;
  world.receive(0, data);
  CHECK_EQUAL(world.ends[0].pair.pending(), std::size_t{1});
  Packet again;
  World::Sink sink = world.sink(0);
  while (world.ends[0].pair.take_data(world.now, again, sink)) {
    CHECK(roce::is_write(again.opcode));
    CHECK(roce::psn_diff(again.psn, 101) >= 0 && roce::psn_diff(again.psn, 103) < 0);
  }
}

// It fails by the key, not by retries: the NAK is of the request that is refused.
void a_read_that_is_asked_again_and_refused_fails_by_name() {
  World world(small_config(), 0, 0, __func__);
  world.post(0, Verb::kRead, 24);
  CHECK(world.send(0) && (world.deliver(1, 0), true));
  while (world.send(1)) world.ends[0].arriving.clear();
  world.ends[1].writable = false;
  world.fire(0);
  CHECK(world.send(0) && (world.deliver(1, 0), true));
  CHECK(world.send(1) && (world.deliver(0, 0), true));
  CHECK(world.ends[0].posted[0].status == Status::kRemoteAccess);
}

}  // namespace
}  // namespace genie::test

int main() {
  using namespace genie::test;
  a_read_that_was_only_late_is_not_sent_again();
  a_read_that_is_asked_again_and_refused_fails_by_name();
  return check_result("test_read");
}
