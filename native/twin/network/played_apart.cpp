// Links that packets have passed in a simulator of their own.
#include <algorithm>

#include "twin/network/links.hpp"

namespace genie::twin {

void Links::add_played(std::uint32_t link, const LinkCounters& counters) {
  Port& port = ports_[link];
  port.packets += counters.packets;
  port.bytes += counters.bytes;
  port.longest_bytes = std::max(port.longest_bytes, counters.longest_queue_bytes);
}

bool Links::has_packets_of(std::uint32_t link, std::uint32_t one, std::uint32_t other) const {
  for (const PriorityQueue& queue : ports_[link].queues) {
    for (std::uint32_t place = 0; place < queue.flying + queue.waiting; ++place) {
      const std::uint32_t own = queue.at(place).connection;
      if (own == one || own == other) return true;
    }
  }
  return false;
}

void Links::keep_services() {
  input_of_link_.resize(count_);
  for (InputOrder& inputs : inputs_) {
    inputs.keep_services();
    for (std::uint32_t input = 0; input < inputs.links.size(); ++input)
      input_of_link_[inputs.links[input]] = input;
  }
}

InputOrder::Service Links::service_of(std::uint32_t link) const {
  return inputs_[ports_[link].target_process].service_of(input_of_link_[link]);
}

void Links::set_service(std::uint32_t link, const InputOrder::Service& service) {
  inputs_[ports_[link].target_process].set_service(input_of_link_[link], service);
}

void Links::add_later_service(std::uint32_t link, const InputOrder::Service& service) {
  inputs_[ports_[link].target_process].add_later_service(input_of_link_[link], service);
}

std::uint32_t Links::make_service_mark(std::uint32_t link) {
  return inputs_[ports_[link].target_process].make_mark();
}

bool Links::has_doubtful_turn() const {
  return std::ranges::any_of(batches_, [](const ArrivalBatch& batch) { return batch.has_doubtful_turn; });
}

bool Links::has_drawn_turn() const {
  return std::ranges::any_of(batches_, [](const ArrivalBatch& batch) { return batch.has_drawn; });
}

}  // namespace genie::twin
