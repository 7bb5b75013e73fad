#include "twin/levels/flow_sharing.hpp"

#include <algorithm>
#include <cassert>
#include <functional>

namespace genie::twin {
namespace {

constexpr std::uint32_t kFlowBit = 1u << 31;  // an entry of the heap is a flow's limit
constexpr double kAlike = 1 + 1e-9;           // shares that differ by less are the same
constexpr double kNoWeight = 1e-9;

}  // namespace

FlowSharing::FlowSharing(std::vector<double> capacity, SharingRule rule)
    : links_(capacity.size()), rule_(rule) {
  for (std::size_t link = 0; link < capacity.size(); ++link) links_[link].capacity = capacity[link];
}

std::uint32_t FlowSharing::add_link(double capacity) {
  links_.emplace_back().capacity = capacity;
  return static_cast<std::uint32_t>(links_.size()) - 1;
}

std::uint32_t FlowSharing::add(std::span<const LinkShare> shares, double limit) {
  const auto id = static_cast<std::uint32_t>(flows_.size());
  flows_.emplace_back();
  move(id, shares, limit);
  return id;
}

void FlowSharing::move(std::uint32_t flow, std::span<const LinkShare> shares, double limit) {
  Flow& own = flows_[flow];
  assert(!own.active && limit >= 0);
  own.limit = limit;
  if (own.count < shares.size()) {
    own.first = static_cast<std::uint32_t>(crossings_.size());
    crossings_.resize(crossings_.size() + shares.size());
  }
  own.count = static_cast<std::uint32_t>(shares.size());
  for (std::uint32_t at = 0; at < own.count; ++at) {
    assert(shares[at].link < links_.size() && shares[at].share > 0);
    crossings_[own.first + at] = {.link = shares[at].link, .flow = flow, .share = shares[at].share};
  }
}

void FlowSharing::touch(std::uint32_t link) {
  if (links_[link].dirty) return;
  links_[link].dirty = true;
  dirty_.push_back(link);
}

void FlowSharing::begin(std::uint32_t flow) {
  Flow& own = flows_[flow];
  assert(!own.active);
  own.active = true;
  own.rate = own.next = 0;
  begun_.push_back(flow);
  for (std::uint32_t at = own.first; at < own.first + own.count; ++at) {
    Link& link = links_[crossings_[at].link];
    crossings_[at].place = static_cast<std::uint32_t>(link.members.size());
    link.members.push_back({.crossing = at, .flow = flow, .share = crossings_[at].share});
    link.whole_weight = -1;
  }
}

void FlowSharing::end(std::uint32_t flow) {
  Flow& own = flows_[flow];
  assert(own.active);
  own.active = false;
  own.rate = own.next = 0;
  for (std::uint32_t at = own.first; at < own.first + own.count; ++at) {
    Link& link = links_[crossings_[at].link];
    assert(crossings_[at].place < link.members.size() && link.members[crossings_[at].place].flow == flow);
    const Member last = link.members.back();
    link.members[crossings_[at].place] = last;
    crossings_[last.crossing].place = crossings_[at].place;
    link.members.pop_back();
    link.whole_weight = -1;
    if (!link.members.empty()) touch(crossings_[at].link);
  }
}

// A flow that shares no link has what these have; the links of others are to be shared anew.
bool FlowSharing::settle_alone(std::uint32_t id) {
  Flow& flow = flows_[id];
  double rate = flow.limit;
  for (std::uint32_t at = flow.first; at < flow.first + flow.count; ++at) {
    const Link& link = links_[crossings_[at].link];
    if (link.members.size() > 1) {
      for (std::uint32_t crossing = flow.first; crossing < flow.first + flow.count; ++crossing)
        touch(crossings_[crossing].link);
      return false;
    }
    rate = std::min(rate, link.capacity / crossings_[at].share);
  }
  flow.rate = flow.next = rate;
  return rate > 0;
}

void FlowSharing::set_capacity(std::uint32_t link, double capacity) {
  links_[link].capacity = capacity;
  touch(link);
}

// The flows on changed links; by max-min also those that share a link with one of them, and so on.
void FlowSharing::gather() {
  ++stamp_;
  reached_.clear();
  reached_links_.clear();
  for (const std::uint32_t link : dirty_) {
    links_[link].dirty = false;
    links_[link].seen = stamp_;
    reached_links_.push_back(link);
  }
  dirty_.clear();
  const std::size_t changed = reached_links_.size();
  for (std::size_t at = 0; at < reached_links_.size(); ++at) {
    if (rule_ == SharingRule::kEqual && at == changed) break;
    for (const Member& member : links_[reached_links_[at]].members) {
      Flow& flow = flows_[member.flow];
      if (flow.seen == stamp_) continue;
      flow.seen = stamp_;
      flow.fixed = false;
      flow.next = flow.limit;
      flow.widest = kUnlimited;
      reached_.push_back(member.flow);
      for (std::uint32_t crossing = flow.first; crossing < flow.first + flow.count; ++crossing) {
        Link& link = links_[crossings_[crossing].link];
        const double share = crossings_[crossing].share;
        const double most = share == 1 ? link.capacity : link.capacity / share;
        if (rule_ == SharingRule::kMaxMin && link.members.size() == 1) {  // a limit of its own rate
          flow.next = std::min(flow.next, most);
          continue;
        }
        flow.widest = std::min(flow.widest, most);
        if (link.seen == stamp_) continue;
        link.seen = stamp_;
        reached_links_.push_back(crossings_[crossing].link);
      }
    }
  }
}

// The sum in the order of the members, which has the same bits whenever it is made.
double FlowSharing::whole_weight(Link& link) {
  if (link.whole_weight < 0) {
    link.whole_weight = 0;
    for (const Member& member : link.members) link.whole_weight += member.share;
  }
  return link.whole_weight;
}

void FlowSharing::fix(Flow& flow, double rate) {
  assert(!flow.fixed && rate >= 0 && open_ > 0);
  flow.fixed = true;
  flow.next = rate;
  --open_;
  for (std::uint32_t at = flow.first; at < flow.first + flow.count; ++at) {
    Link& link = links_[crossings_[at].link];
    link.left -= crossings_[at].share * rate;
    link.weight -= crossings_[at].share;
  }
}

// Progressive filling: the link that has least for each of its flows decides their rates, and so on with what
// is left. A flow's own limit decides only where it is below all that the shared links could give.
void FlowSharing::fill() {
  heap_.clear();
  for (const std::uint32_t number : reached_links_) {
    Link& link = links_[number];
    if (link.members.size() < 2) continue;
    link.left = link.capacity;
    link.weight = whole_weight(link);
    if (link.weight > kNoWeight && link.capacity < kUnlimited)
      heap_.emplace_back(link.left / link.weight, number);
  }
  for (const std::uint32_t flow : reached_) {
    if (flows_[flow].next < flows_[flow].widest) heap_.emplace_back(flows_[flow].next, flow | kFlowBit);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  open_ = reached_.size();
  while (!heap_.empty() && open_ > 0) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto [share, number] = heap_.back();
    heap_.pop_back();
    if ((number & kFlowBit) != 0) {
      Flow& flow = flows_[number & ~kFlowBit];
      if (!flow.fixed) fix(flow, flow.next);
      continue;
    }
    Link& link = links_[number];
    if (link.weight <= kNoWeight) continue;
    const double now = std::max(link.left, 0.0) / link.weight;
    if (now > share * kAlike) {
      heap_.emplace_back(now, number);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      continue;
    }
    for (const Member& member : link.members) {
      Flow& flow = flows_[member.flow];
      if (!flow.fixed) fix(flow, share);
    }
  }
}

void FlowSharing::split() {
  for (const std::uint32_t number : reached_links_) {
    Link& link = links_[number];
    link.weight = whole_weight(link);
  }
  for (const std::uint32_t id : reached_) {
    Flow& flow = flows_[id];
    flow.next = flow.limit;
    for (std::uint32_t at = flow.first; at < flow.first + flow.count; ++at) {
      const Link& link = links_[crossings_[at].link];
      flow.next = std::min(flow.next, link.capacity / link.weight);
    }
  }
}

}  // namespace genie::twin
