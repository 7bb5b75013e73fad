// Plays of components that something has joined: they go on from checkpoints of the plays before.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/index.hpp"
#include "twin/episodes/episodes.hpp"

namespace genie::twin {
namespace {

template <class Number>
bool has_all(const std::vector<Number>& sorted, const std::vector<Number>& others) {
  return std::ranges::includes(sorted, others);
}

bool has_all(const NetworkPart& part, const NetworkPart& other) {
  return has_all(part.hosts, other.hosts) && has_all(part.switches, other.switches) &&
         has_all(part.links, other.links);
}

// By rank: from its first start to its last end; kNever: something has not ended.
using Spans = std::map<std::int32_t, std::pair<TimePs, TimePs>>;

void add_span(Spans& spans, std::int32_t rank, TimePs start, TimePs end) {
  const auto [known, is_new] = spans.try_emplace(rank, start, end);
  if (is_new) return;
  known->second.first = std::min(known->second.first, start);
  known->second.second = std::max(known->second.second, end);
}

enum class Order : std::uint8_t { kApart, kBefore, kAfter, kTogether };

// Of one part before another, by the ranks that both have.
Order order_of(const Spans& one, const Spans& other) {
  bool is_before = true, is_after = true, is_apart = true;
  for (const auto& [rank, own] : one) {
    const auto found = other.find(rank);
    if (found == other.end()) continue;
    is_apart = false;
    is_before &= own.second <= found->second.first;
    is_after &= found->second.second <= own.first;
  }
  if (is_apart) return Order::kApart;
  return is_before ? Order::kBefore : is_after ? Order::kAfter : Order::kTogether;
}

}  // namespace

// Of a component, by the time from which a play goes on.
struct Episodes::Part {
  Component::Checkpoint checkpoint = {};
  const Component::Source* source = nullptr;  // that it is played alone from; nullptr: it has the checkpoint
  std::vector<Row> rows = {};                 // that have begun
  Spans spans = {};
  std::map<const EpisodePlace*, TimePs> first_uses = {};
  TimePs first = kNever;

  void note_rows(TimePs zero, TimePs until) {
    for (const Row& row : rows) {
      const TimePs start = row.start() - zero;
      const TimePs end = row.own().end == kNever ? kNever : row.own().end - zero;
      add_span(spans, row.rank(), start, end < until ? end : kNever);
      const auto [known, is_new] = first_uses.try_emplace(row.act->place, start);
      if (!is_new) known->second = std::min(known->second, start);
      first = std::min(first, start);
    }
  }
  TimePs first_use(std::uint32_t cable) const {
    TimePs found = kNever;
    for (const auto& [place, start] : first_uses) {
      if (std::ranges::binary_search(place->cables, cable)) found = std::min(found, start);
    }
    return found;
  }
  // `link`: of the whole network.
  bool uses(std::uint32_t link) const {
    const NetworkPart& part = checkpoint.place->part;
    return std::ranges::binary_search(part.links, link) &&
           checkpoint.play->state.links.is_used(part.link(link));
  }
};

// A message begins with its sender.
bool Episodes::Component::Source::has(const Act& act, const Act::Member& member) const {
  const std::uint64_t sequence = act.is_message()
                                     ? std::min(act.members.front().sequence, act.members.back().sequence)
                                     : member.sequence;
  return sequence <= until && !member.is_expected && std::ranges::binary_search(tags, act.tag);
}

// The acts of the component so far, where its parts are not known.
void Episodes::keep_source(Component& component) {
  if (!component.sources.empty()) return;
  component.sources.push_back({.tags = tags_of(component), .until = latest_sequence_, .checkpoints = {}});
}

// Ascending.
std::vector<std::uint32_t> Episodes::tags_of(const Component& component) {
  std::vector<std::uint32_t> tags;
  for (const std::unique_ptr<Act>& act : component.acts) tags.push_back(act->tag);
  std::ranges::sort(tags);
  return tags;
}

// The latest valid checkpoint, and what the component's other parts have come to by then.
std::vector<EpisodePlay::Past> Episodes::past_of(const Component& component, const std::vector<Row>& rows) {
  struct Kept {
    const Component::Checkpoint* checkpoint;
    const Component::Source* source;
  };
  std::vector<Kept> candidates;
  for (const Component::Source& source : component.sources) {
    for (const Component::Checkpoint& own : source.checkpoints) candidates.push_back({&own, &source});
  }
  std::ranges::stable_sort(candidates, std::ranges::greater{},
                           [](const Kept& it) { return it.checkpoint->play->now(); });
  for (const Kept& own : candidates) {
    std::vector<Part> parts = parts_at(component, rows, *own.checkpoint, *own.source);
    if (parts.empty()) continue;
    if (!play_parts(component, parts)) return {};
    if (begins_something(parts, rows)) continue;
    std::vector<EpisodePlay::Past> past;
    for (const Part& part : parts)
      past.push_back({part.checkpoint.play, renumbering(part.checkpoint, rows, *component.place)});
    return past;
  }
  return {};
}

// A row begins at the end of one that is over in a part, and has not begun in any.
bool Episodes::begins_something(const std::vector<Part>& parts, const std::vector<Row>& rows) {
  std::unordered_set<std::uint64_t> begun, over;
  for (const Part& part : parts) {
    const EpisodeCheckpoint& play = *part.checkpoint.play;
    for (std::size_t rank = 0; rank < play.plan->origins.size(); ++rank) {
      for (std::size_t row = 0; row < play.plan->origins[rank].size(); ++row) {
        const std::uint64_t key = play.plan->origins[rank][row].key();
        if (play.has_begun(rank, row)) begun.insert(key);
        if (play.state.hosts.ranks.walkers()[rank].nodes()[row].end >= 0) over.insert(key);
      }
    }
  }
  const auto place_of = [](const Row& row, std::int32_t number) {
    return pair_key(static_cast<std::uint32_t>(row.rank()), static_cast<std::uint32_t>(number));
  };
  std::unordered_set<std::uint64_t> places;  // of rows that are over
  for (const Row& row : rows) {
    if (over.contains(row.key())) places.insert(place_of(row, row.row));
  }
  return std::ranges::any_of(rows, [&](const Row& row) {
    return row.after >= 0 && !begun.contains(row.key()) && places.contains(place_of(row, row.after));
  });
}

// The part that has a checkpoint, and all others that have begun by then. They are in the order in which they
// use hosts that they have in common. Empty: the checkpoint is not valid, or there is no such order.
std::vector<Episodes::Part> Episodes::parts_at(const Component& component, const std::vector<Row>& rows,
                                               const Component::Checkpoint& checkpoint,
                                               const Component::Source& source) {
  const TimePs until = checkpoint.play->now();
  std::vector<Part> others(component.sources.size());
  Part own{.checkpoint = checkpoint};  // and what is of no source
  for (const Row& row : rows) {
    std::size_t at = 0;
    while (at < others.size() && !component.sources[at].has(*row.act, row.own())) ++at;
    const bool is_others = at < others.size() && &component.sources[at] != &source;
    (is_others ? others[at] : own).rows.push_back(row);
  }
  if (!has_all(component.place->part, checkpoint.place->part) || !fits(checkpoint, own.rows, component.first))
    return {};
  for (std::size_t at = 0; at < others.size(); ++at) {
    const auto start_of = [&](const Row& row) { return row.start() - component.first; };
    if (std::ranges::any_of(others[at].rows, [&](const Row& row) { return start_of(row) == until; }))
      return {};
    std::erase_if(others[at].rows, [&](const Row& row) { return start_of(row) > until; });
    others[at].source = &component.sources[at];
  }
  std::erase_if(others, [](const Part& it) { return it.rows.empty(); });
  if (!others.empty() && expects_begun(checkpoint, own.rows)) return {};
  std::erase_if(own.rows, [&](const Row& row) { return row.start() - component.first >= until; });
  own.note_rows(component.first, until);
  for (Part& other : others) other.note_rows(component.first, until);
  return parts_in_order(std::move(own), std::move(others));
}

// First those that come before the part with the checkpoint, which has been played after them. Empty: of two
// parts the later would come first, or they have a host at the same time.
std::vector<Episodes::Part> Episodes::parts_in_order(Part own, std::vector<Part> others) {
  std::ranges::stable_sort(others, {}, &Part::first);
  const auto rest = std::ranges::stable_partition(
      others, [&](const Part& it) { return order_of(own.spans, it.spans) == Order::kAfter; });
  others.insert(rest.begin(), std::move(own));
  for (std::size_t at = 0; at < others.size(); ++at) {
    for (std::size_t later = at + 1; later < others.size(); ++later) {
      const Order order = order_of(others[at].spans, others[later].spans);
      if (order != Order::kApart && order != Order::kBefore) return {};
    }
  }
  return others;
}

// Something has begun in it whose start is not yet known.
bool Episodes::expects_begun(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows) {
  std::unordered_set<std::uint64_t> unknown;
  for (const Row& row : rows) {
    if (row.start() == kNever) unknown.insert(row.key());
  }
  const EpisodePlan& plan = *checkpoint.play->plan;
  for (std::size_t rank = 0; rank < plan.origins.size(); ++rank) {
    for (std::size_t row = 0; row < plan.origins[rank].size(); ++row) {
      if (checkpoint.play->has_begun(rank, row) && unknown.contains(plan.origins[rank][row].key()))
        return true;
    }
  }
  return false;
}

// Plays the parts that have no checkpoint, each alone. False where one cannot be, or where a part has not
// left a link to a later one.
bool Episodes::play_parts(const Component& component, std::vector<Part>& parts) {
  const auto known = std::ranges::find(parts, nullptr, &Part::source);
  const TimePs until = known->checkpoint.play->now();
  for (std::size_t at = 0; at < parts.size(); ++at) {
    if (parts[at].source == nullptr) continue;
    std::vector<Component::Checkpoint> before;
    for (std::size_t other = 0; other < parts.size(); ++other) {
      if (parts[other].checkpoint.play != nullptr &&
          order_of(parts[other].spans, parts[at].spans) == Order::kBefore)
        before.push_back(parts[other].checkpoint);
    }
    std::optional<Component::Checkpoint> alone =
        play_alone(component, *parts[at].source, parts[at].rows, before, until);
    if (!alone) return false;
    parts[at].checkpoint = *std::move(alone);
  }
  for (std::size_t at = 0; at < parts.size(); ++at) {
    for (std::size_t later = at + 1; later < parts.size(); ++later) {
      if (!leaves_links_to(parts[at], parts[later])) return false;
    }
  }
  return true;
}

// The earlier part has left each link that both have used before the later could come. At a host both have
// begun something: order_of goes by ranks.
bool Episodes::leaves_links_to(const Part& earlier, const Part& later) const {
  const EpisodePlace& place = *earlier.checkpoint.place;
  const bool is_before = order_of(earlier.spans, later.spans) == Order::kBefore;
  for (std::uint32_t link = 0; link < place.part.links.size(); ++link) {
    const std::uint32_t whole = place.part.links[link];
    if (!earlier.uses(whole) || !later.uses(whole)) continue;
    if (!is_before) return false;
    for (const std::int32_t node : {network_->link_source[whole], network_->link_target[whole]}) {
      if (node >= network_->hosts) continue;
      const std::int32_t rank = rank_of_host_[index(node)];
      if (!earlier.spans.contains(rank) || !later.spans.contains(rank)) return false;
    }
    const Port& port = earlier.checkpoint.play->state.links.ports[link];
    if (port.flying != 0 || port.waiting != 0 || port.free + port.delay > later.first_use(whole / 2))
      return false;
  }
  return true;
}

// One of the parts that a component has been made of, until a time by which nothing else has met it.
std::optional<Episodes::Component::Checkpoint> Episodes::play_alone(
    const Component& component, const Component::Source& source, std::vector<Row> rows,
    const std::vector<Component::Checkpoint>& before, TimePs until) {
  std::vector<std::uint32_t> numbers;
  for (const Row& row : rows) numbers.push_back(row.act->place->number);
  for (const Component::Checkpoint& own : source.checkpoints) numbers.push_back(own.place->number);
  const EpisodePlace& place = places_.of_all(std::move(numbers));
  // Its own numbers of rows. One that began at the end of another part's begins at its time.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> own_rows;
  for (const Row& row : rows) own_rows[{row.rank(), row.row}] = 0;
  std::int32_t next = 0, rank = -1;
  for (auto& [key, row] : own_rows) {
    if (std::exchange(rank, key.first) != key.first) next = 0;
    row = next++;
  }
  for (Row& row : rows) {
    const auto followed = own_rows.find({row.rank(), row.after});
    row.after = followed == own_rows.end() ? -1 : followed->second;
    row.row = own_rows.at({row.rank(), row.row});
  }
  InputServices services;
  for (const InputService& own : services_) {
    const std::uint32_t link = component.place->part.links[own.link];
    if (!std::ranges::binary_search(place.part.links, link)) continue;
    services.push_back(own);
    services.back().link = place.part.link(link);
  }
  std::vector<EpisodePlay::Past> past;
  for (auto own = source.checkpoints.rbegin(); own != source.checkpoints.rend() && past.empty(); ++own) {
    if (own->play->now() <= until && fits(*own, rows, component.first))
      past.push_back({own->play, renumbering(*own, rows, place)});
  }
  std::vector<EpisodePlay::Past> services_of;
  for (const Component::Checkpoint& own : before) {
    Renumbering to;
    for (const std::uint32_t link : own.place->part.links)
      to.links.push_back(std::ranges::binary_search(place.part.links, link) ? place.part.link(link)
                                                                            : Renumbering::kNone);
    services_of.push_back({own.play, std::move(to)});
  }
  EpisodePlay play(places_.network_of(place.alike), config_, plan_of(place, component.first, rows), services,
                   past, services_of);
  play.run(EpisodePlay::kAll, until);
  report_.played += play.played();
  SharedCheckpoint found = play.checkpoint(until);
  if (found == nullptr) return std::nullopt;
  return Component::Checkpoint{std::move(found), &place, component.first};
}

// Each start before the checkpoint is a row's, at the same time, and all other rows begin after it.
bool Episodes::fits(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows, TimePs first) {
  if (checkpoint.first != first) return false;
  const EpisodeCheckpoint& play = *checkpoint.play;
  const auto place_of = [](const Row& row, std::int32_t number) {
    return pair_key(static_cast<std::uint32_t>(row.rank()), static_cast<std::uint32_t>(number));
  };
  std::unordered_map<std::uint64_t, const Row*> known;
  for (const Row& row : rows) known[row.key()] = &row;
  std::unordered_map<std::uint64_t, TimePs> begun;  // when
  std::unordered_map<std::uint64_t, TimePs> ended;  // by rank and row
  for (std::size_t rank = 0; rank < play.plan->origins.size(); ++rank) {
    for (std::size_t at = 0; at < play.plan->origins[rank].size(); ++at) {
      if (!play.has_begun(rank, at)) continue;
      const EpisodePlan::Origin& origin = play.plan->origins[rank][at];
      const auto found = known.find(origin.key());
      if (found == known.end() || found->second->own().is_by_timer != origin.is_by_timer) return false;
      const NodeRecord& record = play.state.hosts.ranks.walkers()[rank].nodes()[at];
      begun[origin.key()] = record.start;
      if (record.end >= 0) ended[place_of(*found->second, found->second->row)] = record.end;
    }
  }
  return std::ranges::all_of(rows, [&](const Row& row) {
    const auto before = ended.find(place_of(row, row.after));
    if (const auto found = begun.find(row.key()); found != begun.end()) {
      if (row.is_receiver() || row.start() == found->second + first) return true;
      // It is expected, at the end of another as it was then.
      return row.start() == kNever && before != ended.end() && before->second == found->second;
    }
    const bool is_late = row.start() != kNever && row.start() - first <= play.now();
    return !is_late && before == ended.end();
  });
}

Renumbering Episodes::renumbering(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows,
                                  const EpisodePlace& place) {
  const NetworkPart& part = checkpoint.place->part;
  const EpisodeCheckpoint& play = *checkpoint.play;
  std::unordered_map<std::uint64_t, std::int32_t> row_of;
  for (const Row& row : rows) row_of[row.key()] = row.row;
  Renumbering to;
  for (const auto* nodes : {&part.hosts, &part.switches}) {
    for (const std::int32_t node : *nodes) to.nodes.push_back(place.part.node(node));
  }
  for (const std::uint32_t link : part.links) to.links.push_back(place.part.link(link));
  for (const std::int32_t rank : checkpoint.place->ranks)
    to.ranks.push_back(static_cast<std::int32_t>(place.place_of(rank)));
  for (std::size_t rank = 0; rank < play.plan->origins.size(); ++rank) {
    std::vector<std::int32_t>& own = to.rows.emplace_back();
    for (std::size_t row = 0; row < play.plan->origins[rank].size(); ++row)
      own.push_back(play.has_begun(rank, row) ? row_of.at(play.plan->origins[rank][row].key()) : -1);
  }
  return to;
}

}  // namespace genie::twin
