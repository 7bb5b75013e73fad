// Choice by a switch of one of several equally short next hops for a packet.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/flat_map.hpp"
#include "core/fold.hpp"
#include "core/mix.hpp"
#include "core/time.hpp"
#include "twin/fabric/network.hpp"

namespace genie::twin {

class LoadBalancer {
 public:
  explicit LoadBalancer(std::int32_t node) : node_(static_cast<std::uint64_t>(node)) {}

  // Room for the next hops of the packet at hand.
  std::vector<std::uint32_t>& next_hops() { return next_hops_; }

  // One of next_hops(), of which there are some. `seed`: of the run; the node's number makes it this
  // switch's. backlog(link): what is before a packet on that port, in time.
  template <class Backlog>
  std::uint32_t choose(const Network& network, std::uint32_t connection, std::uint64_t seed, TimePs now,
                       Backlog backlog) {
    assert(!next_hops_.empty());
    const auto count = static_cast<std::uint32_t>(next_hops_.size());
    const auto drawn = [&] { return static_cast<std::uint32_t>(mixed(seed ^ mixed(drawn_key())) % count); };
    switch (network.balance) {
      case Balance::kRoundRobin:
        if (turns_ % count != 0) turns_ = std::min(std::lcm(turns_, std::uint64_t{count}), kTurnsMost);
        return next_hops_[drawn_++ % count];
      case Balance::kFlowlet: {
        Flowlet& flowlet = flowlets_[connection];
        if (flowlet.last == 0 || now - flowlet.last > network.flowlet_gap ||
            std::find(next_hops_.begin(), next_hops_.end(), flowlet.link) == next_hops_.end())
          flowlet.link = next_hops_[drawn()];
        flowlet.last = now;
        return flowlet.link;
      }
      case Balance::kAdaptive: {
        const std::uint32_t first = drawn();  // of equal ones a drawn one
        std::uint32_t best = next_hops_[first];
        TimePs least = backlog(best);
        for (std::uint32_t step = 1; step < count; ++step) {
          const std::uint32_t other = next_hops_[(first + step) % count];
          const TimePs time = backlog(other);
          if (time >= least) continue;
          least = time;
          best = other;
        }
        return best;
      }
      case Balance::kSpray:
      case Balance::kPath:  // its data does not ask
        break;
    }
    return next_hops_[drawn()];
  }
  void fold(Fold& fold, const Network& network) {
    static_assert(has_size<LoadBalancer>(80));
    static_assert(has_size<Flowlet>(16));
    if (network.balance == Balance::kRoundRobin) {
      fold.exact(turns_, turns_ == kTurnsMost ? drawn_ : drawn_ % turns_);
      fold.base(drawn_);
      return;
    }
    fold.rare(drawn_);
    flowlets_.each([&](std::uint64_t connection, Flowlet& flowlet) {
      fold.exact(connection, flowlet.link);
      fold.not_before(flowlet.last, network.flowlet_gap + 1);
    });
  }

 private:
  struct Flowlet {
    TimePs last = 0;
    std::uint32_t link = 0;
  };
  static constexpr std::uint64_t kTurnsMost = 1 << 30;  // and no turn then comes again
  std::uint64_t drawn_key() { return node_ << 40 ^ ++drawn_; }

  std::uint64_t node_, drawn_ = 0;
  std::uint64_t turns_ = 1;  // a multiple of all numbers of next hops that there have been
  std::vector<std::uint32_t> next_hops_;
  FlatMap<Flowlet> flowlets_;  // by connection
};

}  // namespace genie::twin
