// Two queue pairs on a network that the input chooses: it loses, repeats and reorders packets, lets time
// pass, withholds receives. Every message is delivered once, complete, in order and with its own bytes, or
// ends in an error. What must hold at any moment is the world's (native/tests/pair_world.hpp); here a check
// that fails ends the process.
#include "input.hpp"
#include "tests/check.hpp"
#undef CHECK_IN
#undef CHECK_EQUAL_IN
#define CHECK_IN(condition, context) (static_cast<void>(context), REQUIRE(condition))
#define CHECK_EQUAL_IN(a, b, context) (static_cast<void>(context), REQUIRE((a) == (b)))
#include "tests/pair_world.hpp"

namespace {

using namespace genie;
using namespace genie::roce;
using fuzz::Input;
using test::World;

constexpr std::size_t kPostsMax = 24, kPacketsMax = 64;

QueuePairConfig config_from(Input& in) {
  QueuePairConfig config;
  config.mtu_bytes = 256;
  config.window_packets = 1 + in.below(16);
  config.ack_every_packets = 1 + in.below(8);
  config.ack_timeout = (1 + in.below(200)) * kPsPerUs;
  config.retry_limit = in.below(8);
  config.rnr_retry_limit = in.below(8);
  config.reads_max = 1 + in.below(4);
  config.rnr_timer = static_cast<std::uint8_t>(in.below(32));
  return config;
}

// Low bits choose the end, the others what happens to it.
void step(World& world, Input& in) {
  const std::uint32_t code = in.u8();
  const int at = static_cast<int>(code & 1);
  test::End& end = world.ends[at];
  const auto one_of_those_arriving = [&] { return in.u8() % end.arriving.size(); };
  switch (code >> 1 & 7) {
    case 0:
      if (end.posted.size() < kPostsMax)
        world.post(at, static_cast<Verb>((code >> 4) % 5), in.flag() ? in.u8() : in.below(12) * 256);
      return;
    case 1:
      for (std::uint32_t left = 1 + in.below(16);
           left > 0 && world.ends[1 - at].arriving.size() < kPacketsMax; --left)
        if (!world.send(at)) return;
      return;
    case 2:
      for (std::uint32_t left = 1 + in.below(16); left > 0 && !end.arriving.empty(); --left)
        world.deliver(at, 0);
      return;
    case 3:  // overtakes others, or comes again later
      if (!end.arriving.empty()) world.deliver(at, one_of_those_arriving(), (code & 0x10) != 0);
      return;
    case 4:
      if (!end.arriving.empty())
        end.arriving.erase(end.arriving.begin() + static_cast<std::ptrdiff_t>(one_of_those_arriving()));
      return;
    case 5:
      if (!end.timers.empty()) world.fire(at);
      return;
    case 6:
      end.receives = static_cast<std::int64_t>(in.below(5)) - 1;  // -1: as many as are asked for
      return;
    default:
      world.now += in.u16() * kPsPerNs;
  }
}

void is_over(const World& world) {
  for (int at : {0, 1}) {
    const test::End &end = world.ends[at], &peer = world.ends[1 - at];
    std::size_t place = 0;
    while (place < end.posted.size() && end.posted[place].status == Status::kOk) ++place;
    for (const test::Posted& message : end.posted) REQUIRE(message.over);
    // READs are not delivered there: those that follow what was delivered last count as passed over.
    std::size_t delivered = peer.delivered;
    while (delivered < end.posted.size() && end.posted[delivered].request.verb == Verb::kRead) ++delivered;
    REQUIRE(delivered >= place && delivered <= end.posted.size());
    if (place == end.posted.size()) {
      REQUIRE(end.pair.state() == RequesterState::kIdle);
      REQUIRE(delivered == place && peer.placed_bytes == 0 && end.fetched_bytes == 0);
      continue;
    }
    REQUIRE(end.pair.state() == RequesterState::kError);
    REQUIRE(end.posted[place].status == Status::kRetryExceeded ||
            end.posted[place].status == Status::kRnrRetryExceeded);
    for (++place; place < end.posted.size(); ++place) REQUIRE(end.posted[place].status == Status::kFlushed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in({reinterpret_cast<const std::byte*>(data), size});
  const QueuePairConfig config = config_from(in);
  const std::uint32_t psn_a = in.u32() & kPsnMask, psn_b = in.u32() & kPsnMask;
  World world(config, psn_a, psn_b, "");
  world.credits = in.flag();
  while (!in.empty()) step(world, in);
  world.finish();
  is_over(world);
  return 0;
}
