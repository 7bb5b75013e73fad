// Ports behind token buckets; see TokenBucket.
#include <algorithm>
#include <bit>
#include <utility>

#include "twin/network/links.hpp"

namespace genie::twin {

// True if the next packet may leave when its port is free; otherwise the port is free when it may.
bool Links::has_tokens(Port& port, std::uint32_t number) const {
  const unsigned ready = port.ready(), strict = ready & network_->strict_classes;
  // The highest strict class's; the longest of the others, any of which may be next.
  std::uint32_t wire_bytes = 0;
  for (unsigned left = strict != 0 ? std::bit_floor(strict) : ready; left != 0; left &= left - 1) {
    const PriorityQueue& queue = port.queues[static_cast<unsigned>(std::countr_zero(left))];
    wire_bytes = std::max(wire_bytes, wire_bytes_of(queue.at(queue.flying)));
  }
  const TimePs at = buckets_[number].start(port.free, serialisation(port, wire_bytes));
  return std::exchange(port.free, at) == at;
}

// A packet that may leave at `at` does at once. Returns when it is dealt with.
TimePs Links::leave_bucket(Port& port, std::uint32_t number, TimePs at, TimePs time) {
  port.free = at;  // the next packet waits for as many tokens as it needs
  buckets_[number].take(at, time);
  return at + port.delay;
}

// A port behind a token bucket gets another rate.
void Links::change_bucket_rate(std::uint32_t number, std::int64_t rate_bps, TimePs now) {
  Port& port = ports_[number];
  TokenBucket& bucket = buckets_[number];
  const double slower = static_cast<double>(port.rate_bps) / static_cast<double>(rate_bps);
  bucket.change_rate(serialisation_ps(network_->link_burst_bytes[number], rate_bps), slower, now);
  if (port.is(Port::kDown)) return;
  port.free = now;  // the next packet waits for its tokens anew
  if (port.node < network_->hosts || !has_start_events(port)) return;
  schedule_->set(count_ + number, kNever);
  expect_start(port, number, now);
}

}  // namespace genie::twin
