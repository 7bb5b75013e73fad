// Circuits of an optical switch: two hosts that exchange messages need one, a host has room for a few, and
// setting one up takes time. One that nobody uses stays until its room is needed, the longest unused first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/flat_map.hpp"
#include "core/mix.hpp"
#include "core/time.hpp"

namespace genie::twin {

struct CircuitConfig {
  std::uint32_t ports = 0;  // circuits that a host has at a time; 0: the network has none
  TimePs setup = 0;
  std::int64_t rate_bps = 0;  // of each, in each direction
};

class Circuits {
 public:
  Circuits(const CircuitConfig& config, std::int32_t hosts)
      : config_(config), taken_(static_cast<std::size_t>(hosts), 0) {}

  bool used() const { return config_.ports > 0; }

  // The circuit of two hosts, whichever sends.
  std::uint32_t of(std::int32_t a, std::int32_t b) {
    std::uint32_t& number = number_of_[pair_key(static_cast<std::uint32_t>(std::min(a, b)),
                                                static_cast<std::uint32_t>(std::max(a, b)))];
    if (number == 0) {
      circuits_.push_back({.a = a, .b = b});
      number = static_cast<std::uint32_t>(circuits_.size());
    }
    return number - 1;
  }

  // Somebody wants to send. True: it is up. Otherwise granted(circuit, time) has told or will tell when it
  // is.
  template <class Granted>
  bool take(std::uint32_t circuit, TimePs now, Granted granted) {
    Circuit& own = circuits_[circuit];
    ++own.users;
    if (own.state == State::kUp) return true;
    if (own.state != State::kDown) return false;
    own.state = State::kWanted;
    wanted_.push_back(circuit);
    grant(now, granted);
    return false;
  }
  void is_up(std::uint32_t circuit) { circuits_[circuit].state = State::kUp; }
  template <class Granted>
  void leave(std::uint32_t circuit, TimePs now, Granted granted) {
    Circuit& own = circuits_[circuit];
    own.idle_since = now;
    if (--own.users == 0 && !wanted_.empty()) grant(now, granted);
  }
  std::uint64_t set_up() const { return set_up_; }

 private:
  enum class State : std::uint8_t { kDown, kWanted, kComing, kUp };
  struct Circuit {
    std::int32_t a = 0, b = 0;
    State state = State::kDown;
    std::uint32_t users = 0;
    TimePs idle_since = 0;
  };

  // In the order in which they were wanted, as far as there is room; those that find none wait and let others
  // past.
  template <class Granted>
  void grant(TimePs now, Granted granted) {
    for (std::size_t at = 0; at < wanted_.size();) {
      Circuit& own = circuits_[wanted_[at]];
      if (!has_room(own.a) || !has_room(own.b)) {
        ++at;
        continue;
      }
      make_room(own.a);
      make_room(own.b);
      own.state = State::kComing;
      ++taken_[static_cast<std::size_t>(own.a)];
      ++taken_[static_cast<std::size_t>(own.b)];
      ++set_up_;
      granted(wanted_[at], now + config_.setup);
      wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  bool is_full(std::int32_t host) const { return taken_[static_cast<std::size_t>(host)] >= config_.ports; }
  bool has_room(std::int32_t host) { return !is_full(host) || longest_idle(host) != nullptr; }

  Circuit* longest_idle(std::int32_t host) {
    Circuit* oldest = nullptr;
    for (Circuit& circuit : circuits_) {
      const bool idle = circuit.state == State::kUp && circuit.users == 0;
      if (!idle || (circuit.a != host && circuit.b != host)) continue;
      if (oldest == nullptr || circuit.idle_since < oldest->idle_since) oldest = &circuit;
    }
    return oldest;
  }

  void make_room(std::int32_t host) {
    if (!is_full(host)) return;
    Circuit& gone = *longest_idle(host);
    gone.state = State::kDown;
    --taken_[static_cast<std::size_t>(gone.a)];
    --taken_[static_cast<std::size_t>(gone.b)];
  }

  CircuitConfig config_;
  std::vector<std::uint32_t> taken_;  // by host
  std::vector<Circuit> circuits_;
  FlatMap<std::uint32_t> number_of_;  // + 1
  std::deque<std::uint32_t> wanted_;
  std::uint64_t set_up_ = 0;
};

}  // namespace genie::twin
