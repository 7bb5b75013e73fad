// Starts that a component expects: of a collective that waits for one in progress, or for its slot, at the
// end of that one. That one may be another component's. Episodes have these starts too, so that fewer are
// played. A start that does not come is noticed.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"
#include "twin/episodes/episodes.hpp"

namespace genie::twin {
namespace {

// Bytes that a rank is expected to begin, as a multiple of those that it has begun.
constexpr std::int64_t kExpectedMost = 3;

}  // namespace

// Adds the collectives that ranks are expected to begin. All members that may send then must have their
// cables. One that no member has begun is added if the component has all of its cables, or if all members
// begin it. Other components may become part of this one.
void Episodes::expect_starts(Component& component, TimePs now) {
  while (true) {
    const std::vector<Chain> chains = possible_chains(component, now);
    const std::set<Component*> in_the_way = others_in_the_way(component, chains, now);
    if (in_the_way.empty()) {
      for (const Chain& chain : chains) add_expected(component, chain);
      return;
    }
    for (const std::unique_ptr<Component>& other : components_) {
      if (in_the_way.contains(other.get())) absorb(component, *other);
    }
    take_back(component);
    withdraw(component);
  }
}

std::vector<Episodes::Chain> Episodes::possible_chains(const Component& component, TimePs now) {
  std::vector<Chain> chains = chains_of(component);
  std::ranges::move(chains_from_others(component, now), std::back_inserter(chains));
  std::map<std::uint64_t, Candidate> candidates;
  for (const Chain& chain : chains) {
    for (std::size_t at = 0; at < chain.keys.size(); ++at) {
      const auto [known, is_new] = candidates.try_emplace(chain.keys[at]);
      if (is_new) known->second = candidate_of(component, chain, at, now);
      ++known->second.members;
    }
  }
  // Where one is left out, the rank's later ones are, too; these may then lack a member.
  for (bool any_left_out = true; std::exchange(any_left_out, false);) {
    for (Chain& chain : chains) {
      for (std::size_t at = 0; at < chain.keys.size(); ++at) {
        if (may_begin(component, chain, at, candidates.at(chain.keys[at]), now)) continue;
        for (std::size_t later = at; later < chain.keys.size(); ++later)
          --candidates.at(chain.keys[later]).members;
        chain.keys.resize(at);
        any_left_out = true;
      }
    }
  }
  return chains;
}

// A rank that begins at the end of another component's collective uses cables that the other component still
// has. Its last packets are hardly over by then, so that both come together anyway.
std::set<Episodes::Component*> Episodes::others_in_the_way(const Component& component,
                                                           const std::vector<Chain>& chains, TimePs now) {
  std::set<Component*> others;
  for (const Chain& chain : chains) {
    for (std::size_t at = 0; at < chain.keys.size() && chain.other != nullptr; ++at) {
      const EpisodePlace& place = place_of(chain, at);
      const bool are_free =
          std::ranges::all_of(place.cables_of[place.place_of(chain.rank)],
                              [&](std::uint32_t cable) { return is_free_for(component, cable, now); });
      if (!are_free) others.insert(chain.other);
    }
  }
  return others;
}

bool Episodes::may_begin(const Component& component, const Chain& chain, std::size_t at,
                         const Candidate& candidate, TimePs now) {
  const EpisodePlace& place = place_of(chain, at);
  const bool needs_all = candidate.act == nullptr && !candidate.has_cables;
  if (!candidate.are_free || (needs_all && candidate.members < place.ranks.size())) return false;
  return std::ranges::all_of(place.cables_of[place.place_of(chain.rank)], [&](std::uint32_t cable) {
    return is_free_for(component, cable, now) || (chain.other != nullptr && is_owned(*chain.other, cable));
  });
}

const EpisodePlace& Episodes::place_of(const Chain& chain, std::size_t at) {
  return places_.of_group(plans_[index(chain.rank)]->bound(chain.nodes[at]).group, *simulator_);
}

// Collectives that begin when those in progress end, by their ranks. The bytes that a rank may begin are
// bounded by those that it has begun, so that little is played in vain.
std::vector<Episodes::Chain> Episodes::chains_of(const Component& component) {
  bytes_left_.resize(plans_.size());
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->is_message(); ++at) {
      const std::int32_t rank = act->place->ranks[at], node = act->members[at].node;
      if (node >= 0)
        bytes_left_[index(rank)] += kExpectedMost * plans_[index(rank)]->table->size_bytes[index(node)];
    }
  }
  std::vector<Chain> chains;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->is_message(); ++at) {
      const Act::Member& own = act->members[at];
      const std::int32_t rank = act->place->ranks[at];
      if (own.node < 0 || simulator_->hosts().ranks().walker(rank).has_ended(own.node)) continue;
      Chain chain = chain_from(rank, own, bytes_left_[index(rank)]);
      if (!chain.keys.empty()) chains.push_back(std::move(chain));
    }
  }
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (const std::int32_t rank : act->place->ranks) bytes_left_[index(rank)] = 0;
  }
  return chains;
}

Episodes::Chain Episodes::chain_from(std::int32_t rank, const Act::Member& own, std::int64_t& bytes_left) {
  const Walker& walker = simulator_->hosts().ranks().walker(rank);
  const RankPlan& plan = *plans_[index(rank)];
  Chain chain{.rank = rank, .from = &own, .nodes = {}, .keys = {}};
  following_.follow(walker);
  for (std::int32_t node = following_.next(own.node); node >= 0; node = following_.next(node)) {
    const bool is_collective = plan.table->kind[index(node)] == static_cast<std::uint8_t>(NodeKind::kColl);
    if (!is_collective || walker.play_of(node) != Walker::Play::kHeld) break;
    bytes_left -= plan.table->size_bytes[index(node)];
    if (bytes_left < 0) break;
    chain.nodes.push_back(node);
    chain.keys.push_back(pair_key(static_cast<std::uint32_t>(plan.bound(node).group), plan.tag(node)));
  }
  return chain;
}

// To the component's collectives that lack members, from those of other components that their ranks are in.
// Their ends are known.
std::vector<Episodes::Chain> Episodes::chains_from_others(const Component& component, TimePs now) {
  std::set<std::int32_t> missing;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->has_begun(); ++at) {
      if (act->members[at].node < 0) missing.insert(act->place->ranks[at]);
    }
  }
  std::vector<Chain> chains;
  for (const std::int32_t rank : missing) {
    for (const InProgress& own : in_progress_[index(rank)]) {
      const Component& other = *own.act->component;
      const TimePs end = own.act->members[own.member].end;
      const bool is_known = other.episode != nullptr && !other.is_changed && end > now && end != kNever;
      if (&other == &component || !is_known) continue;
      Chain chain = chain_to(component, *own.act, own.member);
      if (!chain.keys.empty()) chains.push_back(std::move(chain));
    }
  }
  return chains;
}

// From another component's member to the last collective of the component that it leads to.
Episodes::Chain Episodes::chain_to(const Component& component, const Act& act, std::size_t member) {
  const Act::Member& own = act.members[member];
  const std::int32_t rank = act.place->ranks[member];
  std::int64_t bytes_left = kExpectedMost * plans_[index(rank)]->table->size_bytes[index(own.node)];
  Chain chain = chain_from(rank, own, bytes_left);
  chain.other = act.component;
  const auto last = std::find_if(chain.keys.rbegin(), chain.keys.rend(), [&](std::uint64_t key) {
    Act* const* const known = act_of_.find(key);
    return known != nullptr && (*known)->component == &component;
  });
  chain.keys.erase(last.base(), chain.keys.end());
  return chain;
}

Episodes::Candidate Episodes::candidate_of(const Component& component, const Chain& chain, std::size_t at,
                                           TimePs now) {
  const EpisodePlace& place = place_of(chain, at);
  const auto is_own = [&](std::uint32_t cable) { return is_owned(component, cable); };
  const auto is_free = [&](std::uint32_t cable) { return is_free_for(component, cable, now); };
  Candidate candidate;
  if (Act* const* const known = act_of_.find(chain.keys[at])) {
    candidate.act = *known;
    candidate.are_free = candidate.act->component == &component;
    for (std::size_t member = 0; member < place.ranks.size() && candidate.are_free; ++member) {
      if (candidate.act->members[member].node >= 0)
        candidate.are_free = std::ranges::all_of(place.cables_of[member], is_free);
    }
    return candidate;
  }
  candidate.has_cables = std::ranges::all_of(place.cables, is_own);
  candidate.are_free = candidate.has_cables || std::ranges::all_of(place.cables, is_free);
  return candidate;
}

bool Episodes::is_owned(const Component& component, std::uint32_t cable) const {
  return claims_[cable].is_of(component) && !claims_[cable].is_live;
}

bool Episodes::is_free_for(const Component& component, std::uint32_t cable, TimePs time) const {
  const Claim& own = claims_[cable];
  return is_owned(component, cable) || (!own.is_live && !(own.is_alive() && uses(own, time)));
}

void Episodes::add_expected(Component& component, const Chain& chain) {
  const Act::Member* before = chain.from;
  for (std::size_t at = 0; at < chain.keys.size(); ++at) {
    const EpisodePlace& place = place_of(chain, at);
    Act*& act = act_of_[chain.keys[at]];
    if (act == nullptr) {
      const Kind kind = kinds_.of(*plans_[index(chain.rank)], chain.nodes[at]);
      act = &add_act(component, place, kind, chain.keys[at]);
    }
    Act::Member& next = act->members[place.place_of(chain.rank)];
    if (next.node >= 0) return;  // another collective in progress leads to it, too
    next.node = chain.nodes[at];
    next.is_by_timer = false;
    next.is_expected = true;
    if (at == 0 && chain.other != nullptr) {
      next.start = before->end;
    } else {
      next.follows = before;
    }
    before = &next;
    next.sequence = ++latest_sequence_;
    ++act->expected;
    claim(component, place, place.place_of(chain.rank));
    // Members that wait may send then, so that their cables are in use again.
    for (std::size_t member = 0; member < act->members.size() && act->expected == 1; ++member) {
      if (act->members[member].node >= 0) claim(component, place, member);
    }
  }
}

// The component keeps the cables of a member, and this part of the network, until it is over.
void Episodes::claim(Component& component, const EpisodePlace& place, std::size_t member) {
  bool is_new = false;
  for (const std::uint32_t cable : place.cables_of[member]) {
    if (claims_[cable].is_of(component)) continue;
    enter(component, cable, claims_[cable]);
    claims_[cable].take(component);
    is_new = true;
  }
  if (is_new) component.claimed_places.push_back(place.number);
}

// A rank looks at each of these starts, so that one which does not come is noticed. Returns the time after
// the last.
TimePs Episodes::wake_at_expected(Component& component, std::uint32_t forecast) {
  TimePs after = 0;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && act->expected > 0; ++at) {
      Act::Member& member = act->members[at];
      if (!member.is_expected) continue;
      if (member.follows != nullptr) member.start = member.follows->end;
      if (member.start == kNever) continue;
      after = std::max(after, member.start + 1);
      simulator_->hosts().ranks().wake(act->place->ranks[at], member.start);
      expected_.push({member.start, forecast, act.get(), at});
    }
  }
  return after;
}

// True where an expected member ends about when it begins. A start that does not come would be noticed too
// late: its rank would have heard of the end.
bool Episodes::ends_at_once(const Component& component) const {
  const TimePs least = lead_ps();
  return std::ranges::any_of(component.acts, [&](const auto& act) {
    return act->expected > 0 && std::ranges::any_of(act->members, [&](const Act::Member& it) {
             return it.is_expected && it.start != kNever && it.end < it.start + least;
           });
  });
}

// Components of which a start has not come are forecast anew.
void Episodes::notice_missing(TimePs time) {
  for (; !expected_.empty() && expected_.top().time <= time; expected_.pop()) {
    const Expected& own = expected_.top();
    if (simulator_->hosts().ranks().is_taken_back(own.forecast)) continue;
    if (!own.act->members[own.member].is_expected) continue;
    own.act->component->must_forecast = true;
    set_changed(*own.act->component);
  }
}

// False where nothing was expected.
bool Episodes::withdraw(Component& component) {
  bool any = false;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (Act::Member& member : act->members) {
      if (!member.is_expected) continue;
      member = Act::Member{};
      any = true;
    }
    act->expected = 0;
    if (act->begun == 0 && !act->is_message()) act_of_.erase(act->key);
  }
  std::erase_if(component.acts, [](const auto& act) { return act->begun == 0 && !act->is_message(); });
  return any;
}

}  // namespace genie::twin
