#include "twin/components/past_plays.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/index.hpp"

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

// A row begins at the end of one that is over in a part, and has not begun in any.
bool begins_something(const std::vector<Part>& parts, const std::vector<Row>& rows) {
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

// Something has begun in it whose start is not yet known.
bool expects_begun(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows) {
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

// Each start before the checkpoint is a row's, at the same time, and all other rows begin after it.
bool fits(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows, TimePs first) {
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

Renumbering renumbering(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows,
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

// Their own numbers of rows, of a part that is played alone. One that began at the end of another part's
// begins at its time.
void number_anew(std::vector<Row>& rows) {
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
}

}  // namespace

// The latest valid checkpoint, and what the component's other parts have come to by then.
std::vector<EpisodePlay::Past> PastPlays::of(const Component& component, const std::vector<Row>& rows) {
  struct Kept {
    const Component::Checkpoint* checkpoint;
    const Component::Former* former;
  };
  std::vector<Kept> candidates;
  for (const Component::Former& former : component.formers) {
    for (const Component::Checkpoint& own : former.checkpoints) candidates.push_back({&own, &former});
  }
  std::ranges::stable_sort(candidates, std::ranges::greater{},
                           [](const Kept& it) { return it.checkpoint->play->now(); });
  for (const Kept& own : candidates) {
    std::vector<Part> parts = parts_at(component, rows, *own.checkpoint, *own.former);
    if (parts.empty()) continue;
    std::optional<Component::Checkpoint> found = whole(*own.checkpoint);
    if (!found) continue;
    std::ranges::find(parts, nullptr, &Part::former)->checkpoint = *std::move(found);
    if (!play_parts(component, parts)) return {};
    if (begins_something(parts, rows)) continue;
    std::vector<EpisodePlay::Past> past;
    for (const Part& part : parts) {
      past.push_back({part.checkpoint.play, renumbering(part.checkpoint, rows, *component.place)});
      for (const std::int32_t rank : part.checkpoint.place->ranks)
        past.back().to.is_earlier.push_back(part.earlier_ranks.contains(rank));
    }
    return past;
  }
  return {};
}

// The part that has a checkpoint, and all others that have begun by then. Empty: the checkpoint is not valid,
// or two have a host at the same time.
std::vector<Part> PastPlays::parts_at(const Component& component, const std::vector<Row>& rows,
                                      const Component::Checkpoint& checkpoint,
                                      const Component::Former& former) {
  const TimePs until = checkpoint.play->now();
  std::vector<Part> others(component.formers.size());
  Part own{.checkpoint = checkpoint};  // and what is of no former component
  for (const Row& row : rows) {
    std::size_t at = 0;
    while (at < others.size() && !component.formers[at].has(*row.act, row.own())) ++at;
    const bool is_others = at < others.size() && &component.formers[at] != &former;
    (is_others ? others[at] : own).rows.push_back(row);
  }
  if (!has_all(component.place->part, checkpoint.place->part) || !fits(checkpoint, own.rows, component.first))
    return {};
  for (std::size_t at = 0; at < others.size(); ++at) {
    const auto start_of = [&](const Row& row) { return row.start() - component.first; };
    if (std::ranges::any_of(others[at].rows, [&](const Row& row) { return start_of(row) == until; }))
      return {};
    std::erase_if(others[at].rows, [&](const Row& row) { return start_of(row) > until; });
    others[at].former = &component.formers[at];
  }
  std::erase_if(others, [](const Part& it) { return it.rows.empty(); });
  if (!others.empty() && expects_begun(checkpoint, own.rows)) return {};
  std::erase_if(own.rows, [&](const Row& row) { return row.start() - component.first >= until; });
  own.note_rows(component.first, until);
  for (Part& other : others) other.note_rows(component.first, until);
  return parts_in_order(std::move(own), std::move(others));
}

// Plays the parts that have no checkpoint, each alone. False where one cannot be, or where two have used a
// link at one time.
bool PastPlays::play_parts(const Component& component, std::vector<Part>& parts) {
  const auto known = std::ranges::find(parts, nullptr, &Part::former);
  const TimePs until = known->checkpoint.play->now();
  for (std::size_t at = 0; at < parts.size(); ++at) {
    if (parts[at].former == nullptr) continue;
    std::vector<const Part*> others;
    for (const Part& other : parts) {
      if (other.checkpoint.play != nullptr &&
          have_ranks_in_common(other.uses_of_ranks, parts[at].uses_of_ranks))
        others.push_back(&other);
    }
    std::optional<Component::Checkpoint> alone = play_alone(component, parts[at], others, until);
    if (!alone) return false;
    parts[at].checkpoint = *std::move(alone);
  }
  for (std::size_t at = 0; at < parts.size(); ++at) {
    for (std::size_t other = at + 1; other < parts.size(); ++other) {
      if (!take_turns(memo_->job, parts[at], parts[other], component.first)) return false;
    }
  }
  return true;
}

// One of the parts that a component has been made of, until a time by which nothing else has met it.
// `others`: with hosts in common.
std::optional<Component::Checkpoint> PastPlays::play_alone(const Component& component, const Part& part,
                                                           const std::vector<const Part*>& others,
                                                           TimePs until) {
  const Component::Former& former = *part.former;
  std::vector<Row> rows = part.rows;
  std::vector<std::uint32_t> numbers;
  for (const Row& row : rows) numbers.push_back(row.act->place->number);
  for (const Component::Checkpoint& own : former.checkpoints) numbers.push_back(own.place->number);
  const EpisodePlace& place = memo_->places.of_all(std::move(numbers));
  number_anew(rows);
  const UsesOfCables uses = part.uses_of_cables(component.first, until);
  std::vector<EpisodePlay::Past> services_of;
  std::unordered_map<std::uint32_t, TimePs> served;  // by those, when
  for (const Part* other : others) {
    Renumbering to;
    for (const std::uint32_t link : other->checkpoint.place->part.links) {
      const bool is_before =
          std::ranges::binary_search(place.part.links, link) && other->uses_before(link, uses);
      to.links.push_back(is_before ? place.part.link(link) : Renumbering::kNone);
      if (!is_before) continue;
      TimePs& latest = served.try_emplace(link, InputOrder::kLongAgo).first->second;
      latest = std::max(latest, other->served_at(link));
    }
    services_of.push_back({other->checkpoint.play, std::move(to)});
  }
  std::vector<Component::ServiceBefore> entries;
  std::ranges::copy_if(former.entries, std::back_inserter(entries), [&](const Component::ServiceBefore& it) {
    if (!std::ranges::binary_search(place.part.links, it.link)) return false;
    const auto known = served.find(it.link);
    return known == served.end() || it.service.time - component.first > known->second;
  });
  const InputServices services = services_->before(entries, former.numbers, component.first, place.part);
  std::vector<EpisodePlay::Past> past;
  for (auto own = former.checkpoints.rbegin(); own != former.checkpoints.rend() && past.empty(); ++own) {
    if (own->play->now() > until || !fits(*own, rows, component.first)) continue;
    if (const std::optional<Component::Checkpoint> found = whole(*own))
      past.push_back({found->play, renumbering(*found, rows, place)});
  }
  EpisodePlay play(memo_->places.network_of(place.alike), memo_->job.config,
                   plans_->plan_of(place, component.first, rows), services, past, services_of);
  play.run(EpisodePlay::kAll, until, memo_->interrupt);
  memo_->costs.add_played(play.played());
  if (memo_->interrupt.is_set()) return std::nullopt;
  SharedCheckpoint found = play.whole_checkpoint(until);
  if (found == nullptr) return std::nullopt;
  return Component::Checkpoint{std::move(found), &place, component.first};
}

// The groups that are ahead in a checkpoint come back in a play of their own.
std::optional<Component::Checkpoint> PastPlays::whole(const Component::Checkpoint& checkpoint) {
  if (checkpoint.play->recurrence.ahead.groups.empty()) return checkpoint;
  EpisodePlay play(memo_->places.network_of(checkpoint.place->alike), *checkpoint.play);
  SharedCheckpoint found = play.whole_checkpoint(checkpoint.play->now());
  memo_->costs.add_played(play.played());
  if (found == nullptr) return std::nullopt;
  return Component::Checkpoint{std::move(found), checkpoint.place, checkpoint.first};
}

}  // namespace genie::twin
