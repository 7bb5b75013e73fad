// A packet on its way through the twin: what the network and the other end need, in half a cache line.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "roce/opcode.hpp"
#include "roce/types.hpp"

namespace genie::twin {

struct Flight {
  TimePs arrival = 0;             // at the end of the link that it is on
  std::uint32_t connection = 0;   // queue pair that gets it
  std::uint32_t route = 0;        // place of its next link in the network's paths
  std::uint32_t psn : 24 = 0;
  std::uint32_t priority : 3 = 0;
  std::uint32_t ack_request : 1 = 0;
  std::uint32_t solicited : 1 = 0;
  std::uint32_t capable : 1 = 0;    // ECN: may be marked
  std::uint32_t congested : 1 = 0;  // ECN: has been marked
  std::uint32_t trimmed : 1 = 0;
  std::uint32_t value = 0;        // immediate, length of the message, or syndrome and MSN: by opcode
  std::uint32_t telemetry = 0;    // place of what switches write about themselves; 0: none
  std::uint16_t payload_bytes = 0;
  roce::Opcode opcode = roce::Opcode::kAcknowledge;
  std::uint8_t unused = 0;
};
static_assert(sizeof(Flight) == 32);

// First in, first out; grows to what is needed and then allocates no more.
template <class Item>
class Ring {
 public:
  bool empty() const { return count_ == 0; }
  std::uint32_t size() const { return count_; }
  Item& front() { return slots_[head_]; }
  const Item& front() const { return slots_[head_]; }
  Item& push(const Item& item) {
    if (count_ == slots_.size()) grow();
    Item& slot = slots_[(head_ + count_++) & (slots_.size() - 1)];
    slot = item;
    return slot;
  }
  void pop() {
    head_ = (head_ + 1) & (static_cast<std::uint32_t>(slots_.size()) - 1);
    --count_;
  }
  template <class Call>
  void for_each(Call&& call) {
    for (std::uint32_t at = 0; at < count_; ++at) call(slots_[(head_ + at) & (slots_.size() - 1)]);
  }

 private:
  void grow() {
    std::vector<Item> larger(slots_.empty() ? 8 : slots_.size() * 2);
    for (std::uint32_t at = 0; at < count_; ++at) larger[at] = slots_[(head_ + at) & (slots_.size() - 1)];
    slots_ = std::move(larger);
    head_ = 0;
  }
  std::vector<Item> slots_;
  std::uint32_t head_ = 0, count_ = 0;
};

}  // namespace genie::twin
