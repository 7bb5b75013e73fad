#include "twin/network/arbitration.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

#include "core/mix.hpp"

namespace genie::twin {

// Those that arrive at one instant, the first of which is at `first`; the place after them. The input that
// was served longest ago goes first, so that trains in step keep their order. Among packets that a rate has
// let go those meet by chance that did not come together before: the seed draws who is first.
[[gnu::noinline]] std::size_t InputOrder::take_turns(ArrivalBatch& batch, std::size_t first,
                                                     std::size_t count, unsigned number_bits,
                                                     std::uint64_t seed, TimePs begin) {
  std::uint64_t* const keys = batch.keys.data();
  assert(first < count && count <= batch.arrivals.size());
  const std::uint64_t number_mask = (std::uint64_t{1} << number_bits) - 1;
  std::vector<Contender>& turns = batch.turns;
  turns.clear();
  std::size_t end = first, paced = 0;
  bool in_order = true;
  for (; end < count && (keys[first] ^ keys[end]) >> number_bits == 0; ++end) {
    const Arrival& arrival = batch.arrivals[keys[end] & number_mask];
    const Contender turn{served_[arrival.input], keys[end]};
    in_order &= turns.empty() || turns.back() < turn;
    paced += arrival.packet->paced;
    turns.push_back(turn);
  }
  if (keeps_services()) [[unlikely]] {
    const TimePs now = begin + static_cast<TimePs>(keys[first] >> number_bits);
    take_later(now);
    in_order = take_known_turns(batch, number_mask, now);
  } else if (!in_order) {
    std::sort(turns.begin(), turns.end());
  }
  if (!in_order) {
    for (std::size_t at = 0; at < turns.size(); ++at) keys[first + at] = turns[at].key;
  }
  if (paced > 1) [[unlikely]]
    draw_turns(batch, first, end, number_mask, seed);
  const std::uint64_t after = clock_ + turns.size();
  for (const Contender& turn : turns) met_[batch.arrivals[turn.key & number_mask].input] = after;
  return end;
}

// Ascending.
void InputOrder::list_busy(std::vector<std::uint32_t>& inputs) const {
  inputs.clear();
  for (std::uint32_t word = 0; word < busy_.size(); ++word) {
    for (std::uint64_t left = busy_[word]; left != 0; left &= left - 1)
      inputs.push_back(64 * word + static_cast<std::uint32_t>(std::countr_zero(left)));
  }
}

void InputOrder::take_later(TimePs now) {
  for (; later_at_ < later_.size() && later_[later_at_].service.time < now; ++later_at_) {
    const Later& own = later_[later_at_];
    if (services_[own.input].time < own.service.time) services_[own.input] = own.service;
  }
}

void InputOrder::come_back(const Scope& scope) {
  if (!keeps_services()) return;
  NewMarks marks(*this);
  for (std::uint32_t input = 0; input < links.size(); ++input) {
    if (scope.links[links[input]] == 0) continue;
    services_[input].mark = marks.of(services_[input].mark);
    services_[input].together = 0;
  }
  behind_mark_ = make_mark();
}

void InputOrder::take_over(std::uint32_t own, const InputOrder& earlier, std::uint32_t input, NewMarks& marks,
                           bool is_alone, std::uint64_t clock_before) {
  const auto moved = [&](std::uint64_t clock) { return clock == 0 ? 0 : clock + clock_before; };
  served_[own] = std::max(served_[own], moved(earlier.served_[input]));
  met_[own] = std::max(met_[own], moved(earlier.met_[input]));
  const Service& service = earlier.services_[input];
  // Services by others are given to both.
  const bool is_by_others = std::ranges::any_of(
      earlier.later_, [&](const Later& it) { return it.input == input && it.service.time == service.time; });
  if (service.time < 0 || service.time <= services_[own].time || is_by_others) return;
  services_[own] = service;
  if (service.mark != 0 || !is_alone) services_[own].mark = marks.of(service.mark);
  if (service.together != 0) services_[own].together += clock_before;
}

// Of turns by their latest services: where the order of two is not known, they have one place.
std::vector<std::uint32_t> InputOrder::places_of(const std::vector<KeptTurn>& turns) {
  std::vector<std::uint32_t> places;
  std::uint32_t place = 0;
  for (auto own = turns.begin(); own != turns.end(); ++place) {
    const Service& first = own->before;
    const auto end =
        std::find_if(own, turns.end(), [&](const KeptTurn& it) { return it.before.time != first.time; });
    const bool are_together = first.together != 0 && std::all_of(own, end, [&](const KeptTurn& it) {
                                return it.before.together == first.together;
                              });
    for (auto previous = own; own != end; previous = own++) {
      place += are_together && previous->before.place != own->before.place;
      places.push_back(place);
    }
  }
  return places;
}

// Turns go by the kept services. Nearly always all have been served at one instant, in a known order: they
// come together again and again. True where the turns were in this order already.
[[gnu::noinline]] bool InputOrder::take_known_turns(ArrivalBatch& batch, std::uint64_t number_mask,
                                                    TimePs now) {
  const auto service_of = [&](const Contender& turn) -> Service& {
    return services_[batch.arrivals[turn.key & number_mask].input];
  };
  const Service& first = service_of(batch.turns.front());
  std::uint64_t before = 0;
  bool is_one_order = true, in_order = true;
  for (Contender& turn : batch.turns) {
    const Service& own = service_of(turn);
    is_one_order &= own.time == first.time && own.mark == first.mark;
    in_order &= before <= own.order;
    turn.rank = own.order;
    before = own.order;
  }
  if (!is_one_order) {
    take_kept_turns(batch, number_mask, now);
    return false;
  }
  if (!in_order) std::sort(batch.turns.begin(), batch.turns.end());
  const std::uint32_t mark = mark_at(now);
  std::uint64_t order = clock_;
  for (const Contender& turn : batch.turns) service_of(turn) = {now, ++order, mark};
  return in_order;
}

// Where the order of two is not known, it is not known from now on. That matters where two go on by one port.
void InputOrder::take_kept_turns(ArrivalBatch& batch, std::uint64_t number_mask, TimePs now) {
  std::vector<KeptTurn>& turns = kept_turns_;
  turns.clear();
  for (const Contender& turn : batch.turns) {
    const std::uint32_t input = batch.arrivals[turn.key & number_mask].input;
    turns.push_back({services_[input], turn.key, input});
  }
  std::ranges::sort(turns, {},
                    [](const KeptTurn& it) { return std::tuple(it.before.time, it.before.order, it.key); });
  for (std::size_t at = 0; at < turns.size(); ++at) batch.turns[at].key = turns[at].key;
  const bool is_known = std::ranges::adjacent_find(turns, [](const KeptTurn& one, const KeptTurn& next) {
                          return !one.before.has_known_order(next.before);
                        }) == turns.end();
  std::uint64_t order = clock_;
  if (is_known) {
    const std::uint32_t mark = mark_at(now);
    for (const KeptTurn& turn : turns) services_[turn.input] = {now, ++order, mark};
    return turns.clear();
  }
  const std::vector<std::uint32_t> places = places_of(turns);
  const auto next_of = [&](std::size_t at) { return batch.arrivals[turns[at].key & number_mask].next; };
  for (std::size_t at = 0; at < turns.size(); ++at) {
    for (std::size_t other = at + 1; other < turns.size() && places[other] == places[at]; ++other)
      batch.has_doubtful_turn |=
          next_of(at) == next_of(other) && !turns[at].before.has_known_order(turns[other].before);
  }
  mark_at(now);
  NewMarks marks(*this);
  const std::uint64_t together = clock_ + 1;
  for (std::size_t at = 0; at < turns.size(); ++at)
    services_[turns[at].input] = {now, ++order, marks.of(turns[at].before.mark), places[at], together};
  turns.clear();
}

// Draws turns among the packets of one instant that a rate has let go. Those of one meeting keep their order.
// Several of one input come at one instant only where a link takes no time, or a token bucket none. They are
// then of different connections.
[[gnu::noinline]] void InputOrder::draw_turns(ArrivalBatch& batch, std::size_t first, std::size_t end,
                                              std::uint64_t number_mask, std::uint64_t seed) {
  std::uint64_t* const keys = batch.keys.data();
  const auto arrival_of = [&](std::uint64_t key) -> const Arrival& {
    return batch.arrivals[key & number_mask];
  };
  const std::uint64_t own = std::uint64_t{links.front()} << 32;
  std::vector<Contender>& drawn = batch.drawn;
  drawn.clear();
  for (std::size_t place = first; place < end; ++place) {
    const std::uint64_t key = batch.sorted[place] = keys[place];
    if (!arrival_of(key).packet->paced) continue;
    drawn.push_back({mixed(seed ^ mixed(own ^ meeting(arrival_of(key).input))), place});
  }
  if (std::ranges::any_of(drawn, [&](const Contender& it) { return it.rank != drawn.front().rank; }))
    batch.has_drawn = ++drawn_ > 0;
  std::sort(drawn.begin(), drawn.end());
  auto next = drawn.begin();
  for (std::size_t place = first; place < end; ++place) {
    if (arrival_of(batch.sorted[place]).packet->paced) keys[place] = batch.sorted[(next++)->key];
  }
}

void InputOrder::fold(Fold& fold, const Scope& scope) {
  static_assert(has_size<InputOrder>(256));
  std::vector<std::uint32_t>& own = in_scope_;
  own.clear();
  for (std::uint32_t input = 0; input < links.size(); ++input) {
    if (scope.links[links[input]] != 0) own.push_back(input);
  }
  // Places of the times of service and of meetings among all of these.
  std::vector<std::uint64_t> sorted;
  for (const std::uint32_t input : own) sorted.insert(sorted.end(), {served_[input], meeting(input)});
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const auto place = [&](std::uint64_t time) {
    return std::lower_bound(sorted.begin(), sorted.end(), time) - sorted.begin();
  };
  for (const std::uint32_t input : own) fold.exact(place(served_[input]), place(meeting(input)));
  fold.rare(drawn_);
  fold.base(clock_);
  if (later_at_ < later_.size()) fold.horizon(later_[later_at_].service.time);
  std::vector<std::pair<TimePs, std::uint64_t>> services;  // sorted
  const auto service_at = [&](std::uint32_t input) {
    return std::pair(services_[input].time, services_[input].order);
  };
  if (keeps_services()) {
    for (const std::uint32_t input : own) services.push_back(service_at(input));
  }
  std::ranges::sort(services);
  for (const std::uint32_t input : own) {
    fold.part(Fold::Part::kTurn, links[input]);
    fold.base(served_[input]);
    fold.base(met_[input]);
    if (!keeps_services()) continue;
    fold.exact(std::ranges::lower_bound(services, service_at(input)) - services.begin());
    fold.part(Fold::Part::kService, links[input]);
    fold.latest(services_[input].time);
    fold.part(Fold::Part::kOrder, links[input]);
    fold.base(services_[input].order);
  }
}

// Their order stays: a shift moves all of a scope equally far. come_back tells that it is known there alone.
void InputOrder::fold_services(Fold& fold, const Scope& scope) {
  if (later_at_ < later_.size()) fold.horizon(later_[later_at_].service.time);
  for (std::uint32_t input = 0; input < links.size(); ++input) {
    if (!keeps_services() || scope.links[links[input]] == 0) continue;
    fold.part(Fold::Part::kService, links[input]);
    fold.latest(services_[input].time);
  }
}

// Sorts the keys: into as many buckets as there are, which leaves nearly nothing to do in each.
void ArrivalBatch::sort_keys(std::size_t count) {
  std::uint64_t* own = keys.data();
  if (count > 8) {
    const auto bits = std::min<unsigned>(static_cast<unsigned>(std::bit_width(count)) - 1, kBucketBits);
    const unsigned shift = 64 - bits;
    const std::size_t buckets = std::size_t{1} << bits;
    std::uint32_t* const place_of = places.data();
    std::fill_n(place_of, buckets + 1, std::uint32_t{0});
    for (std::size_t at = 0; at < count; ++at) ++place_of[(own[at] >> shift) + 1];
    for (std::size_t bucket = 1; bucket < buckets; ++bucket) place_of[bucket] += place_of[bucket - 1];
    std::uint64_t* const target = sorted.data();
    for (std::size_t at = 0; at < count; ++at) target[place_of[own[at] >> shift]++] = own[at];
    keys.swap(sorted);
    own = target;
  }
  for (std::size_t at = 1; at < count; ++at) {
    const std::uint64_t key = own[at];
    if (own[at - 1] <= key) [[likely]]
      continue;
    std::size_t hole = at;
    for (; hole > 0 && key < own[hole - 1]; --hole) own[hole] = own[hole - 1];
    own[hole] = key;
  }
}

}  // namespace genie::twin
