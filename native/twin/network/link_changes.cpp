// Links that are not what they were: failures, degradations and repairs; and links whose packets do not
// arrive when their last bit has left.
#include <algorithm>
#include <cmath>

#include "twin/network/links.hpp"

namespace genie::twin {

void Links::set_rate(Block& block, std::int64_t rate_bps) const {
  block.rate_bps = rate_bps;
  const bool whole = network_->serialisation_unit == 1 && rate_bps > 0 && 8 * kPsPerSecond % rate_bps == 0 &&
                     8 * kPsPerSecond / rate_bps < 1u << 31;
  block.ps_per_byte = whole ? static_cast<std::uint32_t>(8 * kPsPerSecond / rate_bps) : 0;
}

// A switch may send on what it has only the header of if it never runs dry: no port that it sends by may be
// faster than the link it came by, neither as it is built, which the windows' length rests on, nor now, and
// none has a token bucket, from which a packet leaves at once.
void Links::set_cut_through(std::uint32_t number) {
  Block& block = blocks_[number];
  block.flags &= static_cast<std::uint8_t>(~kCutThrough);
  if (!network_->cut_through || block.to_host || number >= network_->link_rate_bps.size()) return;
  const std::vector<std::uint32_t>& ports = switches_[static_cast<std::size_t>(targets_[number])].ports;
  const std::vector<std::int64_t>& built = network_->link_rate_bps;
  const bool fits = std::all_of(ports.begin(), ports.end(), [&](std::uint32_t port) {
    return built[port] > 0 && built[port] <= built[number] && blocks_[port].rate_bps <= block.rate_bps &&
           network_->link_burst_bytes[port] == 0;
  });
  if (fits) block.flags |= kCutThrough;
}

// Another rate fills a bucket that lacks as many tokens as before.
void Links::set_bucket(std::uint32_t number, std::int64_t rate_bps, TimePs now) {
  Block& block = blocks_[number];
  TokenBucket& bucket = buckets_[number];
  const double slower = static_cast<double>(block.rate_bps) / static_cast<double>(rate_bps);
  bucket.burst = serialisation_ps(network_->link_burst_bytes[number], rate_bps);
  if (bucket.due > now) bucket.due = now + std::llround(static_cast<double>(bucket.due - now) * slower);
  if ((block.flags & kDown) != 0) return;
  block.free = now;  // what is next waits for its tokens anew
  if (block.node < network_->hosts || !has_start_events(block, switch_of(block))) return;
  schedule_->set(count_ + number, kNever);
  expect_start(block, number, now);
}

// When a packet that starts at `at` is dealt with, where that is not when its last bit has come.
TimePs Links::early_arrival(Block& block, TimePs at, TimePs time) {
  if ((block.flags & kBucket) != 0) {
    TokenBucket& bucket = buckets_[static_cast<std::size_t>(&block - blocks_.data())];
    block.free = at;  // what comes next waits for as many tokens as it needs
    bucket.take(at, time);
    return at + block.delay;
  }
  return at + std::min(time, serialisation(block, kHeaderBytes)) + block.delay;
}

void Links::apply(const Change& change, TimePs now) {
  Block& block = blocks_[change.number];
  switch (change.kind) {
    case Change::Kind::kRoutes:
      routes_ = &network_->routes[change.number];
      return;
    case Change::Kind::kRate:
      if (block.waiting != 0) work_out(block, change.number, now);
      if ((block.flags & kBucket) != 0) set_bucket(change.number, change.rate_bps, now);
      set_rate(block, change.rate_bps);
      set_cut_through(change.number);
      for (std::uint32_t link = 0; link < count_; ++link) {
        if (targets_[link] == block.node) set_cut_through(link);
      }
      return;
    case Change::Kind::kUp:
      if ((block.flags & kDown) == 0) return;
      block.flags &= static_cast<std::uint8_t>(~kDown);
      block.free = now;
      // What its source could not say meanwhile.
      for (std::uint32_t own = 0; own < kPauseClass; ++own) {
        if (ingress_[std::size_t{change.number ^ 1} * kClasses + own].pausing)
          tell(change.number ^ 1, own, true, now);
      }
      return;
    case Change::Kind::kDown:
      if ((block.flags & kDown) == 0) take_down(change.number, now);
      return;
  }
}

// What waits for the link and what is on it is lost; it sends nothing until it is up again.
void Links::take_down(std::uint32_t number, TimePs now) {
  Block &block = blocks_[number], &far = blocks_[inbound_[number]];
  if (block.waiting != 0) work_out(block, number, now);
  block.flags |= kDown;  // no pause frame is sent by it any more
  block.free = kNever;
  if ((block.flags & kErrors) != 0) errors_[number].until = now;  // nothing is replayed
  Switch& node = switch_of(block);
  for (std::uint32_t own = 0; own < kClasses; ++own) {
    Lane& lane = block.lanes[own];
    for (std::uint32_t place = lane.flying; place < lane.flying + lane.waiting; ++place) {
      const Flight& flight = lane.at(place);
      if (flight.connection == kPauseFrame) continue;
      const std::uint32_t wire_bytes = wire_bytes_of(flight);
      if (node.shared_bytes > 0) release(node, ingress_of(flight), own, wire_bytes, now);
      drop(number, flight, wire_bytes);
    }
    lane.waiting = 0;
    lane.waiting_bytes = 0;
    Lane& wire = far.lanes[own];
    for (std::uint32_t place = 0; place < wire.flying; ++place) {
      const Flight& flight = wire.at(place);
      if (flight.connection != kPauseFrame) drop(number, flight, wire_bytes_of(flight));
    }
    wire.flying = 0;
  }
  block.waiting = far.flying = block.flying = 0;
  block.waiting_bytes = 0;
  block.paused = 0;
  if ((block.flags & kToSwitch) == 0) schedule_->set(number, kNever);
  if (block.node >= network_->hosts && has_start_events(block, node)) schedule_->set(count_ + number, kNever);
  // Its target asks nobody to pause by the cable that is cut.
  Switch& target = switches_[static_cast<std::size_t>(targets_[number])];
  for (std::uint32_t own = 0; own < kClasses; ++own) {
    Ingress& in = ingress_[std::size_t{number} * kClasses + own];
    if (!in.pausing) continue;
    in.pausing = false;
    counters_[number].paused_ps += now - in.paused_since;
    --target.pausing;
  }
  lift_pauses(number, now);
}

// Pauses do not outlive the cable by which they are said, in either direction: a frame that ends one would
// not come (real ones run out, IEEE 802.1Qbb).
void Links::lift_pauses(std::uint32_t number, TimePs now) {
  const std::uint32_t back = number ^ 1;
  if (number >= network_->link_rate_bps.size()) return;
  // Frames on their way back have been said by who has just forgotten them: they end pauses now.
  for (Block* const block : {&blocks_[back], &blocks_[inbound_[back]]}) {
    Lane& lane = block->lanes[kPauseClass];
    for (std::uint32_t place = 0; place < lane.flying + lane.waiting; ++place) lane.at(place).value &= ~1u;
  }
  for (std::uint32_t own = 0; own < kPauseClass; ++own) {
    if ((blocks_[back].paused >> own & 1) == 0) continue;
    Flight frame;
    frame.value = own << 1;
    paused_by(frame, number, now);
  }
}

// The header of a packet for which there is no room goes on with the control packets (Handley et al., NDP,
// SIGCOMM 2017). False where that is of no use.
bool Links::trim(const Flight& flight, std::uint32_t ingress, std::uint32_t number, TimePs now) {
  if (!roce::is_request(flight.opcode) || flight.trimmed != 0) return false;
  Flight header = flight;
  header.payload_bytes = 0;
  header.trimmed = 1;
  header.lane = network_->control_class & 7u;
  header.capable = 0;
  ++counters_[number].trimmed;
  forward(header, ingress, number, now);
  return true;
}

}  // namespace genie::twin
