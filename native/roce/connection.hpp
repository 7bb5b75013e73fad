// One end of the connection between two ranks: messages on its queue pairs, and clear-to-sends beside them.
// Pure, the same in all drivers. A driver posts the parts, and reports acknowledgements and deliveries.
#pragma once
#include <cassert>
#include <cstdint>
#include <limits>

#include "core/clear_to_send.hpp"
#include "core/time.hpp"
#include "roce/spread.hpp"
#include "roce/types.hpp"

namespace genie::roce {

class Connection {
 public:
  using Arrival = Spread::Arrival;
  using Sent = Spread::Sent;

  // A queue pair's part of a message, from `offset` on; or a clear-to-send.
  struct Part {
    std::uint32_t queue_pair = 0;  // among those of the connection
    std::uint64_t handle = 0, offset = 0, size_bytes = 0;
    std::uint32_t tag = 0;
    bool is_credit = false;

    // Addresses and keys of memory are the driver's.
    SendRequest request() const {
      assert(size_bytes <= std::numeric_limits<std::uint32_t>::max());
      return {.verb = is_credit ? Verb::kWrite : Verb::kWriteImm,
              .handle = handle,
              .size_bytes = static_cast<std::uint32_t>(size_bytes),
              .immediate = is_credit ? 0 : tag,
              .remote_address = is_credit ? fifo_address(tag) : 0};
    }
  };

  // `has_fifo`: the peer looks for clear-to-sends in a FIFO; to another they are messages.
  explicit Connection(const SpreadConfig& config, bool has_fifo = true)
      : spread_(config), has_fifo_(has_fifo) {}

  // post(part) for each part, in order. A clear-to-send goes by the first queue pair.
  template <class Post>
  void send(std::uint64_t handle, std::uint32_t tag, std::uint64_t size_bytes, Post post) {
    if (has_fifo_ && is_credit(tag))
      return post(Part{.handle = handle, .size_bytes = size_bytes, .tag = tag, .is_credit = true});
    spread_.send(handle, size_bytes,
                 [&](std::uint32_t number, std::uint64_t part, std::uint64_t offset, std::uint64_t bytes) {
                   post(Part{number, part, offset, bytes, tag, false});
                 });
  }

  // A queue pair's request has been acknowledged: whether that was the last part of a message.
  Sent sent(std::uint64_t handle, std::uint32_t retransmits) {
    if (has_fifo_ && handle == kCreditHandle) return {};
    return spread_.sent(handle, retransmits);
  }

  // A WRITE without an immediate is a clear-to-send, which keeps no order with messages.
  static bool is_clear_to_send(const Delivery& delivery) {
    return !delivery.has_immediate && is_credit(fifo_tag(delivery.remote_address));
  }
  // deliver(arrival) for each message that is complete and in its turn, and at once for a clear-to-send.
  template <class Deliver>
  void delivered(std::uint32_t queue_pair, const Delivery& delivery, TimePs now, Deliver deliver) {
    Arrival arrival{delivery.size_bytes, delivery.immediate, delivery.first, now};
    if (is_clear_to_send(delivery)) {
      arrival.tag = fifo_tag(delivery.remote_address);
      return deliver(arrival);
    }
    spread_.arrived(queue_pair, arrival, deliver);
  }
  template <class Deliver>
  void arrived(std::uint32_t queue_pair, const Arrival& part, Deliver deliver) {
    spread_.arrived(queue_pair, part, deliver);
  }

  void fold_base(Fold& fold) { spread_.fold_base(fold); }
  Fold::Handles& part_handles() { return spread_.part_handles(); }
  void fold(Fold& fold) {
    static_assert(has_size<Connection>(160));
    spread_.fold(fold);
  }

 private:
  Spread spread_;
  bool has_fifo_;
};

}  // namespace genie::roce
