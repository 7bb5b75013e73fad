// Shared buffers of a switch: drawn packets against sums that are computed anew each time.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string>

#include "check.hpp"
#include "twin/network/shared_buffers.hpp"

namespace {

using namespace genie;
using namespace genie::twin;
using Admission = SharedBuffers::Admission;

constexpr std::uint32_t kLinks = 4;
constexpr std::int32_t kHosts = 2, kSwitch = 2;

Network network_of(std::mt19937_64& random) {
  Network network;
  network.hosts = kHosts;
  network.nodes = kHosts + 1;
  network.shared_bytes = {0, 0, static_cast<std::int64_t>(10'000 + random() % 60'000)};
  network.link_headroom_bytes.assign(kLinks, static_cast<std::int64_t>(random() % 12'000));
  network.buffer = {.reserve_bytes = static_cast<std::int64_t>(random() % 3'000),
                    .resume_bytes = static_cast<std::int64_t>(random() % 3'000),
                    .alpha_numerator = 1,
                    .alpha_shift = static_cast<std::uint32_t>(random() % 4),
                    .lossless = static_cast<std::uint8_t>(random() % 2)};
  return network;
}

// Bytes that have been admitted and not released, by link and priority.
struct Held {
  struct Use {
    std::int64_t shared_bytes = 0, headroom_bytes = 0;
    bool paused = false;
  };
  const Network& network;
  std::array<std::array<Use, kClasses>, kLinks> uses{};

  std::int64_t beyond_reserve(const Use& use) const {
    return std::max<std::int64_t>(use.shared_bytes - network.buffer.reserve_bytes, 0);
  }
  std::int64_t threshold() const {
    std::int64_t used = 0;
    for (const auto& of_link : uses) {
      for (const Use& use : of_link) used += beyond_reserve(use);
    }
    return network.buffer.threshold_bytes(network.shared_bytes[kSwitch] - used);
  }
  bool is_pausing() const {
    return std::ranges::any_of(uses, [](const auto& of_link) {
      return std::ranges::any_of(of_link, [](const Use& use) { return use.paused; });
    });
  }
  Admission admit(std::uint32_t link, std::uint32_t priority, std::int64_t bytes) {
    Use& use = uses[link][priority];
    const bool lossless = (network.buffer.lossless >> priority & 1) != 0;
    const std::int64_t wanted = use.shared_bytes + bytes - network.buffer.reserve_bytes;
    if (wanted <= 0 || wanted <= threshold()) {
      use.shared_bytes += bytes;
    } else {
      if (!lossless || use.headroom_bytes + bytes > network.link_headroom_bytes[link])
        return Admission::kNoRoom;
      use.headroom_bytes += bytes;
    }
    if (!lossless || use.paused || (use.headroom_bytes == 0 && beyond_reserve(use) < threshold()))
      return Admission::kTaken;
    use.paused = true;
    return Admission::kTakenAndPause;
  }
  bool release(std::uint32_t link, std::uint32_t priority, std::int64_t bytes) {
    Use& use = uses[link][priority];
    const std::int64_t of_headroom = std::min(use.headroom_bytes, bytes);
    use.headroom_bytes -= of_headroom;
    use.shared_bytes -= bytes - of_headroom;
    const std::int64_t taken = beyond_reserve(use);
    const bool near = taken > 0 && taken + network.buffer.resume_bytes > threshold();
    if (!use.paused || use.headroom_bytes > 0 || near) return false;
    use.paused = false;
    return true;
  }
};

struct Packet {
  std::uint32_t link, priority, bytes;
};

void drawn_packets_are_admitted_as_sums_say(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::string context = "seed " + std::to_string(seed);
  const Network network = network_of(random);
  SharedBuffers buffers(network, kLinks);
  Held held{network};
  std::deque<Packet> waiting;
  const auto release = [&](TimePs now) {
    const std::size_t at = random() % waiting.size();
    const Packet packet = waiting[at];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
    CHECK_EQUAL_IN(buffers.release(kSwitch, packet.link, packet.priority, packet.bytes, now),
                   held.release(packet.link, packet.priority, packet.bytes), context);
  };
  TimePs now = 0;
  for (; now < 400; ++now) {
    if (!waiting.empty() && random() % 5 < 2) {
      release(now);
      continue;
    }
    const Packet packet{static_cast<std::uint32_t>(random() % kLinks),
                        static_cast<std::uint32_t>(random() % 2),
                        static_cast<std::uint32_t>(64 + random() % 4096)};
    const bool was_pausing = held.is_pausing();
    const bool far = buffers.admit_far(kSwitch, packet.link, packet.priority, packet.bytes);
    const Admission admission =
        far ? Admission::kTaken : buffers.admit(kSwitch, packet.link, packet.priority, packet.bytes, now);
    CHECK_IN(!far || !was_pausing, context);
    CHECK_IN(admission == held.admit(packet.link, packet.priority, packet.bytes), context);
    if (admission != Admission::kNoRoom) waiting.push_back(packet);
    CHECK_EQUAL_IN(buffers.is_pausing(kSwitch), held.is_pausing(), context);
  }
  while (!waiting.empty()) release(now);
  CHECK_IN(!buffers.is_pausing(kSwitch), context);  // an empty buffer asks for no pause
}

void pauses_end_with_their_cable() {
  Network network;
  network.hosts = kHosts;
  network.nodes = kHosts + 1;
  network.shared_bytes = {0, 0, 1000};
  network.link_headroom_bytes.assign(kLinks, 1000);
  network.buffer = {.alpha_numerator = 1, .alpha_shift = 0, .lossless = 1};
  SharedBuffers buffers(network, kLinks);
  CHECK(buffers.admit(kSwitch, 1, 0, 600, 10) == Admission::kTakenAndPause);
  CHECK_EQUAL(buffers.pausing_ps(1, 25), TimePs{15});
  CHECK_EQUAL(buffers.paused_ps(1), TimePs{0});
  buffers.forget_pauses(kSwitch, 1, 40);
  CHECK_EQUAL(buffers.paused_ps(1), TimePs{30});
  CHECK_EQUAL(buffers.pausing_ps(1, 50), TimePs{0});
  CHECK(!buffers.is_pausing(kSwitch));
}

}  // namespace

int main() {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) drawn_packets_are_admitted_as_sums_say(seed);
  pauses_end_with_their_cable();
  return genie::test::check_result("test_shared_buffers");
}
