// Frames that links corrupt, and link-level retry (Ultra Ethernet specification 1.0, section 5.1: LLR).
//
// The far end of a link that retries answers a corrupted frame with a NACK, and discards all that follow
// until the frame comes again. Its port replays from that frame on (go-back-N). What it has sent meanwhile
// was for nothing: the port is busy until the NACK is there, and frames behind keep waiting in their order.
// So a corruption is a longer turn on the port, known when the frame starts, and no event.
#include <cmath>
#include <utility>

#include "core/mix.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

void Links::set_errors(std::uint32_t number, const LinkErrors& errors) {
  if (errors.chance == 0 && errors.round_trip < 0) return;
  errors_.resize(count_);
  errors_[number].below = static_cast<std::uint64_t>(std::ldexp(errors.chance, 64));
  errors_[number].round_trip = errors.round_trip;
  blocks_[number].flags |= kErrors;
}

// How often in a row the frame that is next on a link is corrupted; without retry, whether it is.
std::uint32_t Links::corruptions(std::uint32_t link) {
  Errors& errors = errors_[link];
  std::uint32_t count = std::exchange(errors.planned, 0);
  const auto is_corrupted = [&] {
    return mixed(seed_ ^ mixed((std::uint64_t{link} << 32 ^ ++errors.drawn) + kGoldenGamma)) < errors.below;
  };
  if (errors.below == 0) return count;
  while (is_corrupted()) {
    ++count;
    if (errors.round_trip < 0) break;
  }
  return count;
}

// When a packet that starts at `at` and takes `time` is dealt with, on a link that is not like most.
TimePs Links::other_arrival(Block& block, const Flight& flight, TimePs at, TimePs time) {
  bool arrives = true;
  if ((block.flags & kErrors) != 0 && flight.connection != kPauseFrame) {
    const auto number = static_cast<std::uint32_t>(&block - blocks_.data());
    const std::uint32_t count = corruptions(number);
    Errors& errors = errors_[number];
    errors.time = time;
    errors.first = at + time;
    arrives = count == 0 || errors.round_trip >= 0;
    if (errors.round_trip >= 0) {
      errors.replays += count;
      at += count * (time + errors.round_trip);
      block.free = at + time;
    }
    errors.until = at + time;
  }
  const bool early = (block.flags & (kCutThrough | kBucket)) != 0;
  const TimePs arrival = early ? early_arrival(block, at, time) : at + time + block.delay;
  return arrives ? arrival : kNever;
}

void Links::start_apart(Block& block, std::uint32_t number, const Flight& flight, std::uint32_t wire_bytes,
                        TimePs arrival) {
  if (arrival == kNever) return drop(number, flight, wire_bytes);
  if ((block.flags & kAbroad) != 0) return post(block, number, flight, arrival);
  put_on_wire(block, number, flight, arrival);
}

// The first packet that waits has started and is lost: those on the wire close up.
void Links::lose_waiting(std::uint32_t number, Lane& lane, std::uint32_t wire_bytes) {
  drop(number, lane.at(lane.flying), wire_bytes);
  for (std::uint32_t place = lane.flying; place > 0; --place) lane.at(place) = lane.at(place - 1);
  lane.head = (lane.head + 1) & (lane.capacity - 1);
}

// A pause frame has no part in retries (it is a MAC control frame): while its port would send what is going
// to be discarded, it goes at once.
bool Links::send_beside_replay(Block& block, std::uint32_t number, const Flight& frame,
                               std::uint32_t wire_bytes, TimePs now) {
  const Errors& errors = errors_[number];
  const TimePs at = std::max(now, errors.first);
  if (at >= errors.until - errors.time) return false;
  ++block.packets;
  block.bytes += wire_bytes;
  const TimePs arrival = at + serialisation(block, wire_bytes) + block.delay;
  if ((block.flags & kAbroad) != 0) {
    post(block, number, frame, arrival);
  } else {
    put_before(block, number, frame, arrival);
  }
  return true;
}

// A pause frame may arrive before what is on the wire: its target, told of that, is told anew.
void Links::put_before(Block& block, std::uint32_t number, const Flight& frame, TimePs arrival) {
  const bool first = block.flying == 0;
  put_on_wire(block, number, frame, arrival);
  if (first) return;
  if ((block.flags & kToSwitch) != 0) {
    schedule_->wake(block.target_process, arrival);
  } else if (arrival < schedule_->time_of(number)) {
    schedule_->set_afar(number, arrival);
  }
}

}  // namespace genie::twin
