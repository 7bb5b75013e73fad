// Plays of components that something has joined: they go on from checkpoints of the plays before.
#include <algorithm>
#include <cassert>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/index.hpp"
#include "twin/episodes/episodes.hpp"

namespace genie::twin {
namespace {

constexpr std::size_t kCheckpointsMost = 6;    // of a component
constexpr std::uint64_t kRanksEach = 1 << 12;  // more of them have fewer checkpoints
constexpr std::uint64_t kLeastShare = 4;       // of the packets between two: before the first

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

Spans spans_in(const EpisodeCheckpoint& play, const EpisodePlace& place) {
  Spans spans;
  for (std::size_t rank = 0; rank < place.ranks.size(); ++rank) {
    for (const NodeRecord& own : play.state.hosts.ranks.walkers()[rank].nodes()) {
      if (own.start >= 0) add_span(spans, place.ranks[rank], own.start, own.end < 0 ? kNever : own.end);
    }
  }
  return spans;
}

// Links that packets have come to, by the whole network's numbers, and those that have some.
struct UsedLinks {
  std::unordered_set<std::uint32_t> used, busy;
};

UsedLinks links_in(const EpisodeCheckpoint& play, const EpisodePlace& place) {
  UsedLinks links;
  for (std::uint32_t link = 0; link < place.part.links.size(); ++link) {
    const Port& own = play.state.links.ports[link];
    if (play.state.links.is_used(link)) links.used.insert(place.part.links[link]);
    if (own.flying != 0 || own.waiting != 0) links.busy.insert(place.part.links[link]);
  }
  return links;
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

// Of a component, at the time from which a play goes on.
struct Episodes::Part {
  Component::Checkpoint checkpoint;
  Spans spans;
};

bool Episodes::Component::Source::has(const Act& act, const Act::Member& member) const {
  return member.sequence <= until && !member.is_expected && std::ranges::binary_search(tags, act.tag);
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

// A play that nothing is known of, from checkpoints where there are some. It leaves new ones: at `now`, as
// what joins the component begins later, and in what it expects.
Episode Episodes::play_new(Component& component, const std::vector<Row>& rows, TimePs now) {
  const EpisodePlace& place = *component.place;
  Component::Source source{.tags = tags_of(component), .until = latest_sequence_, .checkpoints = {}};
  if (std::ranges::adjacent_find(source.tags) != source.tags.end()) {  // after 2^23 acts
    Episode none;
    none.refusal = "two of its collectives have one tag";
    return none;
  }
  const std::vector<EpisodePlay::Past> past = past_of(component, rows);
  EpisodePlay play(places_.network_of(place.alike), paced_, plan_of(place, component.first, rows), services_,
                   past);
  std::size_t bytes = 0;
  const auto keep = [&](TimePs time) {
    if (bytes > memory_max_bytes_) return;
    SharedCheckpoint own = play.checkpoint(time);
    if (own == nullptr) return;
    bytes += own->state.memory_bytes();
    source.checkpoints.push_back({std::move(own), &place, component.first});
  };
  report_.resumed += !past.empty();
  const TimePs from = past.empty() ? 0 : past.front().from->now(), here = now - component.first;
  if (here > from) {
    play.run(EpisodePlay::kAll, here);
    if (!past.empty() || play.played() >= checkpoint_packets_ / kLeastShare) keep(here);
  }
  std::uint64_t each = checkpoint_packets_ * std::max<std::uint64_t>(place.ranks.size() / kRanksEach, 1);
  while (play.run(each)) {
    keep(play.next_instant());
    if (source.checkpoints.size() <= kCheckpointsMost) continue;
    for (std::size_t at = source.checkpoints.size() - 2; at > 0 && at < source.checkpoints.size(); at -= 2) {
      bytes -= source.checkpoints[at].play->state.memory_bytes();
      source.checkpoints.erase(source.checkpoints.begin() + static_cast<std::ptrdiff_t>(at));
    }
    each *= 2;
  }
  if (!source.checkpoints.empty()) {
    component.sources.clear();
    component.sources.push_back(std::move(source));
  }
  return play.result();
}

// The latest checkpoint that still holds, and what others of the component's parts have come to by then.
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
    std::vector<EpisodePlay::Past> past = past_from(component, rows, *own.checkpoint, *own.source);
    if (!past.empty()) return past;
  }
  return {};
}

std::vector<EpisodePlay::Past> Episodes::past_from(const Component& component, const std::vector<Row>& rows,
                                                   const Component::Checkpoint& checkpoint,
                                                   const Component::Source& source) {
  const TimePs until = checkpoint.play->now();
  std::vector<std::vector<Row>> of_source(component.sources.size());
  std::vector<Row> own_rows;  // and those of no source
  for (const Row& row : rows) {
    std::size_t at = 0;
    while (at < of_source.size() && !component.sources[at].has(*row.act, row.own())) ++at;
    const bool is_others = at < of_source.size() && &component.sources[at] != &source;
    (is_others ? of_source[at] : own_rows).push_back(row);
  }
  if (!has_all(component.place->part, checkpoint.place->part) || !fits(checkpoint, own_rows, component.first))
    return {};
  std::vector<Part> parts;
  parts.push_back({.checkpoint = checkpoint, .spans = spans_in(*checkpoint.play, *checkpoint.place)});
  for (std::size_t at = 0; at < of_source.size(); ++at) {
    const auto start_of = [&](const Row& row) { return row.start() - component.first; };
    if (std::ranges::any_of(of_source[at], [&](const Row& row) { return start_of(row) == until; })) return {};
    std::erase_if(of_source[at], [&](const Row& row) { return start_of(row) > until; });
    if (of_source[at].empty()) continue;
    if (!add_part(component, component.sources[at], of_source[at], until, parts)) return {};
  }
  std::vector<EpisodePlay::Past> past;
  for (const Part& own : parts)
    past.push_back({own.checkpoint.play, renumbering(own.checkpoint, rows, *component.place)});
  return past;
}

// Plays a source alone. Parts are in the order in which they use the hosts and links that they have in
// common. False where there is no such order.
bool Episodes::add_part(const Component& component, const Component::Source& source,
                        const std::vector<Row>& rows, TimePs until, std::vector<Part>& parts) {
  Spans spans;
  for (const Row& row : rows) {
    const TimePs end = row.own().end == kNever ? kNever : row.own().end - component.first;
    add_span(spans, row.rank(), row.start() - component.first, end < until ? end : kNever);
  }
  // After those that come before it, and before all others.
  std::size_t place = 0;
  std::vector<Component::Checkpoint> before;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const Order order = order_of(parts[at].spans, spans);
    if (order == Order::kTogether) return false;
    if (order != Order::kBefore) continue;
    place = at + 1;
    before.push_back(parts[at].checkpoint);
  }
  for (std::size_t at = 0; at < place; ++at) {
    if (order_of(parts[at].spans, spans) == Order::kAfter) return false;
  }
  std::optional<Component::Checkpoint> alone = play_alone(component, source, rows, before, until);
  if (!alone) return false;
  const UsedLinks own = links_in(*alone->play, *alone->place);
  for (const Part& part : parts) {
    const UsedLinks other = links_in(*part.checkpoint.play, *part.checkpoint.place);
    const bool is_apart = order_of(part.spans, spans) == Order::kApart;
    for (const std::uint32_t link : own.used) {
      if (!other.used.contains(link)) continue;
      if (is_apart || (own.busy.contains(link) && other.busy.contains(link))) return false;
    }
  }
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(place), {*std::move(alone), std::move(spans)});
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
  for (const Component::Checkpoint& own : before) {
    Renumbering to;
    for (const std::uint32_t link : own.place->part.links)
      to.links.push_back(std::ranges::binary_search(place.part.links, link) ? place.part.link(link)
                                                                            : Renumbering::kNone);
    past.push_back({.from = own.play, .to = std::move(to), .is_of_services = true});
  }
  EpisodePlay play(places_.network_of(place.alike), paced_, plan_of(place, component.first, rows), services,
                   past);
  play.run(EpisodePlay::kAll, until);
  report_.played += play.played();
  SharedCheckpoint found = play.checkpoint(until);
  if (found == nullptr) return std::nullopt;
  return Component::Checkpoint{std::move(found), &place, component.first};
}

// All that has begun in a play has begun so, and all else begins after its checkpoint.
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
