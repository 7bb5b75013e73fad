// Frames that links corrupt, and link-level retry (Ultra Ethernet specification 1.0, section 5.1: LLR).
//
// The far end of a link that retries answers a corrupted frame with a NACK, and discards all that follow
// until the frame comes again. Its port replays from that frame on (go-back-N). What it has sent meanwhile
// was for nothing: the port is busy until the NACK is there, and frames behind keep waiting in their order.
// So a corruption is a longer turn on the port, known when the frame starts, and no event. A draw is a
// function of the seed, the link and the number of draws before it.
#pragma once
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/fold.hpp"
#include "core/mix.hpp"
#include "core/time.hpp"
#include "twin/fabric/network.hpp"

namespace genie::twin {

class ErrorModels {
 public:
  // A frame's last sending on a link; `arrives`: it is not lost.
  struct Turn {
    TimePs at = 0;
    bool arrives = true;
  };

  ErrorModels(std::uint32_t links, std::uint64_t seed) : links_(links), seed_(seed) {}

  // True where the link corrupts frames or retries; only such links may be asked for below.
  bool set(std::uint32_t link, const LinkErrors& errors) {
    if (errors.chance == 0 && errors.round_trip < 0) return false;
    states_.resize(links_);
    states_[link].below = static_cast<std::uint64_t>(std::ldexp(errors.chance, 64));
    states_[link].round_trip = errors.round_trip;
    return true;
  }
  bool retries(std::uint32_t link) const { return states_[link].round_trip >= 0; }
  // The next frame is corrupted once more than by chance.
  void corrupt_next(std::uint32_t link) { ++states_[link].planned; }

  // A frame starts at `at` and takes `time`.
  Turn start(std::uint32_t link, TimePs at, TimePs time) {
    const std::uint32_t count = corruptions(link);
    State& state = states_[link];
    const bool retries = state.round_trip >= 0;
    state.time = time;
    state.first = at + time;
    if (retries) {
      state.replays += count;
      at += count * (time + state.round_trip);
    }
    state.until = at + time;
    return {.at = at, .arrives = count == 0 || retries};
  }
  // When the port is free of its last frame, replays included; how long one sending of it takes.
  TimePs busy_until(std::uint32_t link) const { return states_[link].until; }
  TimePs sending_time(std::uint32_t link) const { return states_[link].time; }
  // When a frame that has no part in retries may go, at `now` or later. The port would then send what is
  // going to be discarded. kNever: the port does not.
  TimePs discarded_at(std::uint32_t link, TimePs now) const {
    const State& state = states_[link];
    const TimePs at = std::max(now, state.first);
    return at < state.until - state.time ? at : kNever;
  }
  // The link is down: nothing is replayed.
  void cut(std::uint32_t link, TimePs now) {
    states_[link].until = now;
    states_[link].planned = 0;
  }
  // Also of links without errors.
  std::uint64_t replays(std::uint32_t link) const { return states_.empty() ? 0 : states_[link].replays; }
  void fold(Fold& fold, std::uint32_t link) {
    static_assert(has_size<State>(64));
    State& state = states_[link];
    fold.rare(state.drawn);
    fold.total(state.replays);
    fold.exact(state.planned, state.time);
    fold.not_before(state.first, 1);
    fold.not_before(state.until, state.time + 1);
  }

 private:
  struct State {
    std::uint64_t below = 0;  // of 2^64: a number drawn below it corrupts the frame
    TimePs round_trip = -1;   // as LinkErrors has it
    std::uint64_t drawn = 0, replays = 0;
    std::uint32_t planned = 0;  // corruptions of the next frame
    // Of the last frame: its time, and the ends of its first and last sending.
    TimePs time = 0, first = 0, until = 0;
  };

  // Number of times in a row that the next frame is corrupted; without retry at most 1.
  std::uint32_t corruptions(std::uint32_t link) {
    assert(link < states_.size());
    State& state = states_[link];
    std::uint32_t count = std::exchange(state.planned, 0);
    const auto is_corrupted = [&] {
      const std::uint64_t drawn = mixed((std::uint64_t{link} << 32 ^ ++state.drawn) + kGoldenGamma);
      return mixed(seed_ ^ drawn) < state.below;
    };
    if (state.below == 0) return count;
    while (is_corrupted()) {
      ++count;
      if (state.round_trip < 0) break;
    }
    return count;
  }

  std::uint32_t links_;
  std::uint64_t seed_;
  std::vector<State> states_;  // by link; empty where no link has errors
};

}  // namespace genie::twin
