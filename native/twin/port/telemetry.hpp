// Telemetry that ports write into the packets that ask for it, and that acknowledgements bring back. Packets
// have its place; 0: they do not ask.
#pragma once
#include <cassert>
#include <cstdint>
#include <vector>

#include "congestion/controller.hpp"
#include "core/fold.hpp"

namespace genie::twin {

class TelemetryPool {
 public:
  std::uint32_t take() {
    if (free_.empty()) {
      records_.emplace_back();
      return static_cast<std::uint32_t>(records_.size());
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    records_[place - 1].count = 0;
    return place;
  }
  void give(std::uint32_t place) {
    if (place != 0) free_.push_back(place);
  }
  const congestion::Telemetry& at(std::uint32_t place) const {
    assert(place != 0 && place <= records_.size());
    return records_[place - 1];
  }
  void write(std::uint32_t place, const congestion::Hop& hop) {
    assert(place != 0 && place <= records_.size());
    congestion::Telemetry& record = records_[place - 1];
    if (record.count < congestion::kHopsMax) record.hops[record.count++] = hop;
  }
  // bytes_of(port): that it has sent.
  template <class BytesOf>
  void fold(Fold& fold, std::uint32_t place, BytesOf bytes_of) {
    static_assert(has_size<congestion::Hop>(40));
    assert(place != 0 && place <= records_.size());
    congestion::Telemetry& record = records_[place - 1];
    fold.exact(record.count);
    for (std::uint32_t at = 0; at < record.count; ++at) {
      congestion::Hop& hop = record.hops[at];
      fold.exact(hop.queue_bytes, hop.rate_bps, hop.port, bytes_of(hop.port) - hop.sent_bytes);
      fold.moment(hop.time);
      fold.reading(hop.sent_bytes);
    }
  }

 private:
  std::vector<congestion::Telemetry> records_;
  std::vector<std::uint32_t> free_;
};

}  // namespace genie::twin
