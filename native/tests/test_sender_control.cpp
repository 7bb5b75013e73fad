// Acknowledgements that a queue pair reports to its congestion control, judged by the resulting rate.
#include "check.hpp"
#include "roce/sender_control.hpp"

namespace genie::test {
namespace {

using roce::QueuePairConfig;
using roce::SenderControl;

constexpr std::uint32_t kWireBytes = 1000;

// TIMELY that cuts its rate when a round trip is above 100 us.
QueuePairConfig timely() {
  QueuePairConfig config;
  config.mtu_bytes = 1024;
  config.congestion.control = congestion::Control::kTimely;
  config.congestion.line_rate_bps = 100'000'000'000;
  config.congestion.timely.low = 50 * kPsPerUs;
  config.congestion.timely.high = 100 * kPsPerUs;
  config.congestion.timely.segment_bytes = 1024;
  return config;
}

// A sender whose packets leave at its rate, and are acknowledged `late` after they left.
struct Sender {
  QueuePairConfig config = timely();
  SenderControl control{config};
  TimePs now = 0;
  std::uint32_t psn = 0;

  // The time that a packet takes at the rate.
  TimePs play(TimePs late, bool tells_round_trip) {
    now = std::max(now, control.data_from());
    control.departed(kWireBytes, now, psn);
    const TimePs takes = control.data_from() - now;
    now += late;
    control.acknowledged(false, psn, tells_round_trip, now, 1, 0, 0, nullptr);
    ++psn;
    return takes;
  }
};

void a_long_round_trip_cuts_the_rate() {
  Sender sender;
  sender.play(10 * kPsPerUs, true);
  const TimePs at_first = sender.play(400 * kPsPerUs, true);
  CHECK_EQUAL(at_first, serialisation_ps(kWireBytes, 100'000'000'000));
  CHECK(sender.play(10 * kPsPerUs, true) > at_first);
}

void an_acknowledgement_of_a_loss_tells_no_round_trip() {
  Sender sender;
  sender.play(10 * kPsPerUs, true);
  const TimePs at_first = sender.play(400 * kPsPerUs, false);
  CHECK_EQUAL(sender.play(10 * kPsPerUs, true), at_first);
}

// A place in the ring of times is used again: what it knew of another packet is forgotten.
void places_of_the_ring_are_used_again() {
  Sender sender;
  for (std::uint32_t packet = 0; packet < 3 * sender.config.window_packets; ++packet)
    sender.play(10 * kPsPerUs, packet % 2 == 0);
  CHECK_EQUAL(sender.play(10 * kPsPerUs, true), serialisation_ps(kWireBytes, 100'000'000'000));
}

// A sender that its window held back beyond its departure time still keeps to the current rate.
void a_lower_rate_moves_a_departure_that_has_passed() {
  Sender sender;
  sender.play(10 * kPsPerUs, true);
  const TimePs before = sender.control.data_from();
  sender.control.departed(kWireBytes, before, sender.psn);
  const TimePs due = sender.control.data_from(), late = 400 * kPsPerUs;
  sender.control.acknowledged(false, sender.psn, true, before + late, 1, 0, 0, nullptr);
  CHECK(due < before + late);
  CHECK(sender.control.data_from() > due);
}

// As other simulators have times.
void times_between_packets_are_whole_units() {
  Sender sender;
  sender.config.pacing_unit = kPsPerNs;
  for (std::uint32_t packet = 0; packet < 50; ++packet) {
    const TimePs takes = sender.play((packet % 5 == 0 ? 400 : 10) * kPsPerUs, true);
    CHECK_EQUAL(takes % kPsPerNs, 0);
  }
  CHECK_EQUAL(serialisation_ps(1036, 100'000'000'000, kPsPerNs), 83 * kPsPerNs);  // 82.88 ns
  // 3024.49999984 ns: to the nearest at once, not by way of picoseconds.
  CHECK_EQUAL(serialisation_ps(1036, 2'740'287'651, kPsPerNs), 3024 * kPsPerNs);
}

}  // namespace
}  // namespace genie::test

int main() {
  using namespace genie::test;
  a_long_round_trip_cuts_the_rate();
  an_acknowledgement_of_a_loss_tells_no_round_trip();
  places_of_the_ring_are_used_again();
  a_lower_rate_moves_a_departure_that_has_passed();
  times_between_packets_are_whole_units();
  return check_result("test_sender_control");
}
