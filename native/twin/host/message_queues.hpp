// Messages that a NIC has not read yet, by queue pair and in order: what it takes to read one is a NIC's
// cost.
#pragma once
#include <cassert>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"
#include "roce/queue_pair.hpp"
#include "twin/fabric/nic_costs.hpp"

namespace genie::twin {

class MessageQueues {
 public:
  // Without a call no NIC takes time to read a message.
  void resize(std::uint32_t queue_pairs) { queues_.resize(queue_pairs); }
  void set_delays(std::uint32_t queue_pair, bool delays) { queues_[queue_pair].delays = delays; }

  bool delays(std::uint32_t queue_pair) const { return !queues_.empty() && queues_[queue_pair].delays; }
  // When the NIC will have read the message; take() returns them in order.
  TimePs add(const NicCosts& nic, std::uint32_t queue_pair, const roce::SendRequest& request, TimePs now) {
    assert(delays(queue_pair));
    Queue& queue = queues_[queue_pair];
    queue.waiting.push_back(request);
    return nic.ready(queue.costs, request.size_bytes, now);
  }
  roce::SendRequest take(std::uint32_t queue_pair) {
    std::deque<roce::SendRequest>& waiting = queues_[queue_pair].waiting;
    assert(!waiting.empty());
    const roce::SendRequest request = waiting.front();
    waiting.pop_front();
    return request;
  }
  void fold(Fold& fold, std::uint32_t queue_pair) {
    static_assert(has_size<Queue>(104));
    if (!delays(queue_pair)) return;
    Queue& queue = queues_[queue_pair];
    fold.not_before(queue.costs.next_start);
    fold.not_before(queue.costs.ready);
    fold.exact(queue.waiting.size());
    for (roce::SendRequest& request : queue.waiting) {
      fold.exact(request.verb, request.size_bytes, request.immediate, request.remote_address);
      fold.handle(request.handle);
    }
  }

 private:
  struct Queue {
    bool delays = false;  // its port is a NIC's
    NicCosts::Queue costs;
    std::deque<roce::SendRequest> waiting;
  };
  std::vector<Queue> queues_;
};

}  // namespace genie::twin
