#include "twin/network/arbitration.hpp"

#include <algorithm>

#include "core/mix.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

// Those that arrive at one instant, the first of which is at `first`; the place after them. Whose input was
// served longest ago goes first, so that trains in step keep their order. Among packets that a rate has let
// go those meet by chance that did not come together before: the seed draws who is first.
[[gnu::noinline]] std::size_t Links::take_turns(Scratch& scratch, Inputs& inputs, std::size_t first,
                                                std::size_t count, unsigned number_bits) const {
  std::uint64_t* const keys = scratch.keys.data();
  const std::uint64_t number_mask = (std::uint64_t{1} << number_bits) - 1;
  std::vector<Contender>& turns = scratch.turns;
  turns.clear();
  std::size_t end = first, paced = 0;
  bool in_order = true;
  for (; end < count && (keys[first] ^ keys[end]) >> number_bits == 0; ++end) {
    const Arrival& arrival = scratch.arrivals[keys[end] & number_mask];
    const Contender turn{inputs.served[arrival.input], keys[end]};
    in_order &= turns.empty() || turns.back() < turn;
    paced += arrival.packet->paced;
    turns.push_back(turn);
  }
  if (!in_order) {
    std::sort(turns.begin(), turns.end());
    for (std::size_t at = 0; at < turns.size(); ++at) keys[first + at] = turns[at].key;
  }
  if (paced > 1) [[unlikely]]
    draw_turns(scratch, inputs, first, end, number_mask);
  const std::uint64_t after = inputs.clock + turns.size();
  for (const Contender& turn : turns) inputs.met[scratch.arrivals[turn.key & number_mask].input] = after;
  return end;
}

// Among the packets of one instant that a rate has let go; those of one meeting keep their order. Only where
// a link takes no time, or a token bucket none, do several of one input come at one instant, and then of
// other connections.
[[gnu::noinline]] void Links::draw_turns(Scratch& scratch, const Inputs& inputs, std::size_t first,
                                         std::size_t end, std::uint64_t number_mask) const {
  std::uint64_t* const keys = scratch.keys.data();
  const auto arrival_of = [&](std::uint64_t key) -> const Arrival& {
    return scratch.arrivals[key & number_mask];
  };
  const std::uint64_t own = std::uint64_t{inputs.links.front()} << 32;
  std::vector<Contender>& drawn = scratch.drawn;
  drawn.clear();
  for (std::size_t place = first; place < end; ++place) {
    const std::uint64_t key = scratch.sorted[place] = keys[place];
    if (!arrival_of(key).packet->paced) continue;
    drawn.push_back({mixed(seed_ ^ mixed(own ^ inputs.meeting(arrival_of(key).input))), place});
  }
  std::sort(drawn.begin(), drawn.end());
  auto next = drawn.begin();
  for (std::size_t place = first; place < end; ++place) {
    if (arrival_of(scratch.sorted[place]).packet->paced) keys[place] = scratch.sorted[(next++)->key];
  }
}

}  // namespace genie::twin
