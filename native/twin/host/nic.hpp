// NIC ports of hosts under the virtual clock. They say which queue pairs send by a port, how long a packet
// keeps it, and when it has its next event.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"
#include "roce/nic_port.hpp"
#include "twin/fabric/network.hpp"

namespace genie::twin {

class Nic {
 public:
  static constexpr std::uint32_t kMoved = ~std::uint32_t{0};  // in place of a queue pair, at its former port
  struct Allowed {                                            // by the pauses of the port's link
    bool control = true, data = true;
  };

  // `is_limited`: packets cost more than their time on the line. `retries`: the link replays what it
  // corrupts.
  Nic(std::uint32_t link, bool is_limited, bool retries)
      : link_(link), is_limited_(is_limited), retries_(retries) {}

  roce::NicPort port{0};  // picks the queue pair that sends next

  std::uint32_t link() const { return link_; }
  bool is_limited() const { return is_limited_; }
  bool retries() const { return retries_; }

  // A queue pair sends by this port from now on; its number here.
  std::uint32_t add(std::uint32_t queue_pair) {
    queue_pairs_.push_back(queue_pair);
    return static_cast<std::uint32_t>(queue_pairs_.size()) - 1;
  }
  void move_away(std::uint32_t number) {
    assert(queue_pairs_[number] != kMoved);
    queue_pairs_[number] = kMoved;
  }
  std::uint32_t queue_pair(std::uint32_t number) const { return queue_pairs_[number]; }

  bool is_sending() const { return is_sending_; }
  TimePs busy_until() const { return busy_until_; }
  // The packet at hand keeps the port until `departure`, where that is not at once.
  void send_until(TimePs departure, TimePs now) {
    assert(!is_sending_);
    if (departure <= now) return;
    is_sending_ = true;
    busy_until_ = departure;
  }
  // True where the port is free: the packet at hand has left.
  bool finish_packet(TimePs now) {
    if (busy_until_ <= now) is_sending_ = false;
    return !is_sending_;
  }

  // The time of its event, for the next packet that it may send: kNever while it has nothing, or what it has
  // is paused. True where that is another time than before.
  bool expect(TimePs now, Allowed allowed, TimePs& at) {
    at = port.next_pick(allowed.control, allowed.data);
    if (is_sending_) {
      at = std::max(at, busy_until_);
    } else if (at <= now) {
      at = kNever;
    }
    return std::exchange(expected_, at) != at;
  }
  // Goes on from the state of another. number(queue pair): its number on this port; NicPort::kNone: it is
  // left out.
  template <class Function>
  void take_over(const Nic& earlier, Function number) {
    port = earlier.port.renumbered([&](std::uint32_t own) { return number(earlier.queue_pairs_[own]); });
    busy_until_ = earlier.busy_until_;
    expected_ = earlier.expected_;
    is_sending_ = earlier.is_sending_;
  }
  void fold(Fold& fold) {
    static_assert(has_size<Nic>(200));
    port.fold(fold);
    fold.exact(is_sending_);
    fold.not_before(busy_until_, 1);
    fold.moment(expected_);
  }

 private:
  std::vector<std::uint32_t> queue_pairs_;  // by number on the port
  std::uint32_t link_;
  TimePs busy_until_ = 0;
  TimePs expected_ = kNever;
  bool is_sending_ = false;
  bool is_limited_, retries_;
};

// NIC ports of all hosts that have a queue pair, by number and by link.
class Nics {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  explicit Nics(std::uint32_t links) : nic_of_link_(links, kNone) {}

  Nic& operator[](std::uint32_t number) { return nics_[number]; }
  const Nic& operator[](std::uint32_t number) const { return nics_[number]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nics_.size()); }
  // kNone: no queue pair sends by that link.
  std::uint32_t find(std::uint32_t link) const { return nic_of_link_[link]; }
  // The same, with a new one where there is none. `retries`: of the link.
  std::uint32_t take(const Network& network, std::uint32_t link, bool retries) {
    std::uint32_t& number = nic_of_link_[link];
    if (number == kNone) {
      number = static_cast<std::uint32_t>(nics_.size());
      nics_.emplace_back(link, network.nic.limits_ports() && network.nic.is_port(link), retries);
    }
    return number;
  }

 private:
  std::vector<Nic> nics_;
  std::vector<std::uint32_t> nic_of_link_;
};

}  // namespace genie::twin
