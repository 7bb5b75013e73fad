#include "twin/components/component_services.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace genie::twin {
namespace {

constexpr std::size_t kMarksMost = 1 << 16;

}  // namespace

void ComponentServices::enter(Component& component, std::uint32_t cable, const Claim& before) {
  for (const std::uint32_t link : {2 * cable, 2 * cable + 1}) {
    if (links_->target_of(link) >= network_->hosts) component.entries.push_back(latest_of(link, before));
  }
}

Component::ServiceBefore ComponentServices::latest_of(std::uint32_t link, const Claim& claim) {
  if (!claim.is_alive()) return {link, links_->inputs().service_of(link), 0};
  // Its results are not yet the simulator's.
  const Component& other = *claim.component;
  if (other.episode != nullptr) {
    const std::uint32_t own = other.place->part.link(link);
    const auto& services = other.episode->services;
    const auto last = std::ranges::find(services, own, &InputService::link);
    if (last != services.end())
      return {link, after(other, static_cast<std::size_t>(last - services.begin())), other.numbers.front()};
  }
  const auto entry = std::ranges::find(other.entries, link, &Component::ServiceBefore::link);
  return entry == other.entries.end() ? Component::ServiceBefore{link, links_->inputs().service_of(link), 0}
                                      : *entry;
}

// Of those that are alike and begin at one time all services are at one time. The same link's have the order
// that they had before.
InputOrder::Service ComponentServices::after(const Component& component, std::size_t at) {
  const InputService& own = component.episode->services[at];
  const TimePs time = component.first + own.time;
  if (!own.is_alone) {
    // Places in the list are those of the forecast, unless the episode is known further by now.
    const bool is_same_list = component.known_until == component.known_until_by(*component.episode);
    return {time, at, own.mark == 0 && is_same_list ? component.mark : make_mark()};
  }
  const std::uint32_t link = component.place->part.links[own.link];
  const auto entry = std::ranges::find(component.entries, link, &Component::ServiceBefore::link);
  if (entry == component.entries.end()) return {time, at, make_mark()};
  if (marks_in_step_.size() > kMarksMost) marks_in_step_.clear();  // orders are then less well known
  const auto [known, is_new] = marks_in_step_.try_emplace(
      {component.episode, component.first, own.link, entry->service.time, entry->service.mark}, 0);
  if (is_new) known->second = make_mark();
  const bool is_first = entry->service.time == InputOrder::kLongAgo;
  return {time, is_first ? link : entry->service.order, known->second};
}

InputServices ComponentServices::before(std::vector<Component::ServiceBefore>& entries,
                                        const std::vector<std::uint64_t>& numbers, TimePs first,
                                        const NetworkPart& part) const {
  using Entry = Component::ServiceBefore;
  std::ranges::sort(entries, {}, [](const Entry& it) { return std::pair(it.link, it.service.time); });
  std::size_t kept = 0;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    Entry own = entries[at];
    const bool is_again = kept > 0 && entries[kept - 1].link == own.link;
    const TimePs before = is_again ? entries[kept - 1].service.time : InputOrder::kLongAgo;
    const bool is_own = std::ranges::find(numbers, own.from) != numbers.end();
    if (is_again && (is_own || own.service.time < first || own.service.time == before)) continue;
    own.is_later = is_again;
    entries[kept++] = own;
  }
  entries.resize(kept);
  std::ranges::sort(entries, {}, [&](const Entry& it) {
    return std::tuple(links_->target_of(it.link), it.service.time, it.service.mark, it.service.order,
                      it.link);
  });
  InputServices services;
  services.reserve(entries.size());
  TimePs place = -static_cast<TimePs>(entries.size()) - 1;
  std::uint32_t mark = 0;
  const auto target_of = [&](const Entry& own) { return links_->target_of(own.link); };
  for (auto own = entries.begin(); own != entries.end();) {
    // Of those together the order is known within a mark. One mark before the episode is as good as times.
    const auto end = std::find_if(own, entries.end(), [&](const Entry& it) {
      return target_of(it) != target_of(*own) || it.service.time != own->service.time;
    });
    const bool is_before = own->service.time < first;
    const bool is_in_order = is_before && (own->service.time == InputOrder::kLongAgo ||
                                           own->service.mark == std::prev(end)->service.mark);
    if (is_before && !is_in_order) ++place;
    for (auto before = own; own != end; before = own++) {
      if (before == own || before->service.mark != own->service.mark) ++mark;
      if (is_in_order) ++place;
      services.push_back({.link = part.link(own->link),
                          .time = is_before ? place : own->service.time - first,
                          .mark = is_in_order ? 0 : mark,
                          .is_later = own->is_later});
    }
  }
  return services;
}

}  // namespace genie::twin
