// Circuits of an optical switch: two hosts that exchange messages need one, a host has room for a few, and
// setting one up takes time. An unused circuit stays until its room is needed; the longest unused goes first.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
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
      : config_(config),
        taken_(static_cast<std::size_t>(hosts), 0),
        up_(static_cast<std::size_t>(hosts)),
        waiting_(static_cast<std::size_t>(hosts)) {}

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

  // Requests a circuit for a sender. True: it is up. Otherwise granted(circuit, time) has told or will tell
  // when it is up.
  template <class Granted>
  bool take(std::uint32_t circuit, TimePs now, Granted granted) {
    Circuit& own = circuits_[circuit];
    ++own.users;
    if (own.state == State::kUp) return true;
    if (own.state != State::kDown) return false;
    own.state = State::kWanted;
    // Circuits that have waited longer found no room, and have no more room now.
    if (grant(circuit, now, granted)) return look(now, granted), false;
    waiting_[static_cast<std::size_t>(own.a)].push_back(circuit);
    waiting_[static_cast<std::size_t>(own.b)].push_back(circuit);
    return false;
  }
  void is_up(std::uint32_t circuit) { circuits_[circuit].state = State::kUp; }
  template <class Granted>
  void leave(std::uint32_t circuit, TimePs now, Granted granted) {
    Circuit& own = circuits_[circuit];
    assert(own.users > 0 && own.state == State::kUp);
    own.idle_since = now;
    if (--own.users > 0) return;
    freed_.push_back(own.a);
    freed_.push_back(own.b);
    look(now, granted);
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

  // Looks at circuits that wait for hosts that have more room than before, in the order in which they were
  // wanted. Circuits that find no room wait on and let others past.
  template <class Granted>
  void look(TimePs now, Granted granted) {
    while (!freed_.empty()) {
      const auto host = static_cast<std::size_t>(freed_.back());
      freed_.pop_back();
      std::vector<std::uint32_t>& list = waiting_[host];
      std::erase_if(list, [&](std::uint32_t one) { return circuits_[one].state != State::kWanted; });
      for (std::size_t at = 0; at < list.size(); ++at) grant(list[at], now, granted);
    }
  }

  template <class Granted>
  bool grant(std::uint32_t circuit, TimePs now, Granted granted) {
    Circuit& own = circuits_[circuit];
    if (own.state != State::kWanted || !has_room(own.a) || !has_room(own.b)) return false;
    make_room(own.a);
    make_room(own.b);
    assert(!is_full(own.a) && !is_full(own.b));
    own.state = State::kComing;
    for (const std::int32_t host : {own.a, own.b}) {
      ++taken_[static_cast<std::size_t>(host)];
      up_[static_cast<std::size_t>(host)].push_back(circuit);
    }
    ++set_up_;
    granted(circuit, now + config_.setup);
    return true;
  }

  bool is_full(std::int32_t host) const { return taken_[static_cast<std::size_t>(host)] >= config_.ports; }
  bool has_room(std::int32_t host) { return !is_full(host) || longest_idle(host) != nullptr; }

  Circuit* longest_idle(std::int32_t host) {
    Circuit* oldest = nullptr;
    for (const std::uint32_t circuit : up_[static_cast<std::size_t>(host)]) {
      Circuit& one = circuits_[circuit];
      if (one.state != State::kUp || one.users > 0) continue;
      if (oldest == nullptr || one.idle_since < oldest->idle_since) oldest = &one;
    }
    return oldest;
  }

  void make_room(std::int32_t host) {
    if (!is_full(host)) return;
    Circuit* const oldest = longest_idle(host);
    assert(oldest != nullptr);
    Circuit& gone = *oldest;
    gone.state = State::kDown;
    for (const std::int32_t end : {gone.a, gone.b}) {
      --taken_[static_cast<std::size_t>(end)];
      std::erase_if(up_[static_cast<std::size_t>(end)],
                    [&](std::uint32_t one) { return &circuits_[one] == &gone; });
      if (end != host) freed_.push_back(end);
    }
  }

  CircuitConfig config_;
  std::vector<std::uint32_t> taken_;                 // by host
  std::vector<std::vector<std::uint32_t>> up_;       // by host: circuits that take its ports
  std::vector<std::vector<std::uint32_t>> waiting_;  // by host: circuits that are wanted
  std::vector<std::int32_t> freed_;                  // hosts with more room than those that wait have seen
  std::vector<Circuit> circuits_;
  FlatMap<std::uint32_t> number_of_;  // + 1
  std::uint64_t set_up_ = 0;
};

}  // namespace genie::twin
