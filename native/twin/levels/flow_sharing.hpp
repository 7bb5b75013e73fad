// Rates of flows that share links, in bytes a picosecond. Pure; only flows that a change can reach are
// computed again.
#pragma once
#include <cassert>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/time.hpp"

namespace genie::twin {

enum class SharingRule : std::uint8_t {
  kMaxMin,  // no rate can grow but at the cost of a smaller one (Bertsekas and Gallager, Data Networks, 6.5)
  kEqual,   // of each link an equal part, even if a flow cannot use its part (TrioSim)
};

// A link that a flow crosses, with this part of its bytes.
struct LinkShare {
  std::uint32_t link = 0;
  double share = 1;
};

class FlowSharing {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  FlowSharing(std::vector<double> capacity, SharingRule rule);

  std::uint32_t add_link(double capacity);
  // A flow that is idle. `limit`: of its own rate.
  std::uint32_t add(std::span<const LinkShare> shares, double limit = kUnlimited);
  // An idle flow's new links and limit.
  void move(std::uint32_t flow, std::span<const LinkShare> shares, double limit = kUnlimited);
  void begin(std::uint32_t flow);
  void end(std::uint32_t flow);
  void set_capacity(std::uint32_t link, double capacity);

  double rate(std::uint32_t flow) const { return flows_[flow].rate; }
  bool is_active(std::uint32_t flow) const { return flows_[flow].active; }

  // Shares anew after what began, ended or changed; changed(flow) for each flow that has another rate than
  // before.
  template <class Changed>
  void settle(Changed changed) {
    for (const std::uint32_t flow : begun_) {
      if (flows_[flow].active && settle_alone(flow)) changed(flow);
    }
    begun_.clear();
    if (dirty_.empty()) return;
    gather();
    rule_ == SharingRule::kMaxMin ? fill() : split();
    for (const std::uint32_t flow : reached_) {
      assert(flows_[flow].active && flows_[flow].next >= 0);
      if (flows_[flow].next == flows_[flow].rate) continue;
      flows_[flow].rate = flows_[flow].next;
      changed(flow);
    }
  }

 private:
  struct Flow {
    std::uint32_t first = 0, count = 0;  // of its crossings
    double limit = kUnlimited;
    double rate = 0, next = 0;
    double widest = kUnlimited;  // the most that its shared links allow
    std::uint32_t seen = 0;
    bool active = false, fixed = false;
  };
  struct Crossing {  // a link on a flow's path
    std::uint32_t link = 0, flow = 0;
    std::uint32_t place = 0;  // in the link's list
    double share = 1;
  };
  struct Member {  // an active flow on a link
    std::uint32_t crossing = 0, flow = 0;
    double share = 1;
  };
  struct Link {
    double capacity = 0;
    double left = 0, weight = 0;  // while rates are shared out
    double whole_weight = -1;     // of all members; -1: not added up since they changed
    std::uint32_t seen = 0;
    bool dirty = false;
    std::vector<Member> members;
  };

  void touch(std::uint32_t link);
  bool settle_alone(std::uint32_t id);
  void gather();
  void fill();
  void split();
  void fix(Flow& flow, double rate);
  static double whole_weight(Link& link);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<Crossing> crossings_;
  SharingRule rule_;
  std::uint32_t stamp_ = 0;
  std::size_t open_ = 0;                      // flows that are not fixed yet
  std::vector<std::uint32_t> dirty_, begun_;  // links, flows
  std::vector<std::uint32_t> reached_links_, reached_;
  std::vector<std::pair<double, std::uint32_t>> heap_;  // by what a link has for each flow, or a flow's limit
};

// 0: no limit.
inline double bytes_per_ps(std::int64_t rate_bps) {
  return rate_bps == 0 ? FlowSharing::kUnlimited
                       : static_cast<double>(rate_bps) / (8.0 * static_cast<double>(kPsPerSecond));
}

}  // namespace genie::twin
