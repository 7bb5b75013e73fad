// Time-series sampling: what links and pairs of ranks have come to at instants that the caller names. Nothing
// counts for the sampler while packets move. When all have come to an instant, the sampler reads the counters
// that there are and keeps what is new.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "twin/fabric/network.hpp"
#include "twin/host/hosts.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

struct LinkSample {  // of an interval
  TimePs time = 0;   // its end
  std::uint32_t link = 0;
  std::int64_t queue_bytes = 0, longest_queue_bytes = 0;  // at its end; during it
  std::uint64_t sent_bytes = 0, marked = 0, dropped = 0, pauses = 0;
  TimePs paused_ns = 0;
  double utilisation = 0;  // sent over what could have been; 0 where there is no limit
};

struct PairSample {  // of two ranks with messages that are not acknowledged
  TimePs time = 0;
  std::int32_t source = 0, target = 0;
  std::int64_t rate_bps = 0;  // that congestion control and the port let it send; -1: there is no limit
};

struct Samples {
  std::vector<LinkSample> links;  // by time, then by link; without those where nothing happened
  std::vector<PairSample> pairs;  // by time, then by ranks
};

class Sampler {
 public:
  explicit Sampler(const Network& network);

  // All have come to `now`, which is not before the last look.
  void look_at_links(Links& links, TimePs now);
  void look_at_pairs(const Hosts& hosts, const Links& links, TimePs now);
  // Number of samples that are kept; take() hands them over.
  std::size_t rows() const { return samples_.links.size() + samples_.pairs.size(); }
  Samples take() { return std::exchange(samples_, {}); }

 private:
  struct Last {  // of a link, at the last instant
    std::uint64_t sent_bytes = 0, marked = 0, dropped = 0, pauses = 0;
    TimePs paused_ns = 0;
    std::int64_t queue_bytes = 0;
    std::int64_t rate_bps = 0;  // since `rate_since`
    TimePs rate_since = 0;
    double could_bits = 0;  // have been sent before that, 1e-12 of them
  };
  const Network* network_;
  Samples samples_;
  std::vector<Last> last_;
  std::size_t next_change_ = 0;  // of the network's, whose rates are not known here
};

}  // namespace genie::twin
