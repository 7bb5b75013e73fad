#include "twin/episodes/expected_starts.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"

namespace genie::twin {
namespace {

// Bytes that a rank is expected to begin, as a multiple of those that it has begun.
constexpr std::int64_t kExpectedMost = 3;

}  // namespace

void ExpectedStarts::add_to(Component& component, TimePs now) {
  while (true) {
    const std::vector<Chain> chains = possible_chains(component, now);
    const std::set<Component*> in_the_way = others_in_the_way(component, chains, now);
    if (in_the_way.empty()) {
      for (const Chain& chain : chains) add(component, chain);
      return;
    }
    for (const std::unique_ptr<Component>& other : components_->all()) {
      if (in_the_way.contains(other.get())) components_->absorb(component, *other);
    }
    components_->take_back(component);
    components_->withdraw(component);
  }
}

std::vector<ExpectedStarts::Chain> ExpectedStarts::possible_chains(const Component& component, TimePs now) {
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
std::set<Component*> ExpectedStarts::others_in_the_way(const Component& component,
                                                       const std::vector<Chain>& chains, TimePs now) {
  std::set<Component*> others;
  for (const Chain& chain : chains) {
    for (std::size_t at = 0; at < chain.keys.size() && chain.other != nullptr; ++at) {
      const EpisodePlace& place = place_of(chain, at);
      const bool are_free = std::ranges::all_of(
          place.cables_of[place.place_of(chain.rank)],
          [&](std::uint32_t cable) { return claims_->is_free_for(component, cable, now); });
      if (!are_free) others.insert(chain.other);
    }
  }
  return others;
}

bool ExpectedStarts::may_begin(const Component& component, const Chain& chain, std::size_t at,
                               const Candidate& candidate, TimePs now) {
  const EpisodePlace& place = place_of(chain, at);
  const bool needs_all = candidate.act == nullptr && !candidate.has_cables;
  if (!candidate.are_free || (needs_all && candidate.members < place.ranks.size())) return false;
  return std::ranges::all_of(place.cables_of[place.place_of(chain.rank)], [&](std::uint32_t cable) {
    return claims_->is_free_for(component, cable, now) ||
           (chain.other != nullptr && claims_->is_owned(*chain.other, cable));
  });
}

const EpisodePlace& ExpectedStarts::place_of(const Chain& chain, std::size_t at) {
  return places_->of_group(job_->plans[index(chain.rank)]->bound(chain.nodes[at]).group, *simulator_);
}

// Collectives that begin when those in progress end, by their ranks. The bytes that a rank may begin are
// bounded by those that it has begun, so that little is played in vain.
std::vector<ExpectedStarts::Chain> ExpectedStarts::chains_of(const Component& component) {
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->is_message(); ++at) {
      const std::int32_t rank = act->place->ranks[at], node = act->members[at].node;
      if (node >= 0)
        bytes_left_[index(rank)] += kExpectedMost * job_->plans[index(rank)]->table->size_bytes[index(node)];
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

ExpectedStarts::Chain ExpectedStarts::chain_from(std::int32_t rank, const Act::Member& own,
                                                 std::int64_t& bytes_left) {
  const Walker& walker = simulator_->hosts().ranks().walker(rank);
  const RankPlan& plan = *job_->plans[index(rank)];
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
std::vector<ExpectedStarts::Chain> ExpectedStarts::chains_from_others(const Component& component,
                                                                      TimePs now) {
  std::set<std::int32_t> missing;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->has_begun(); ++at) {
      if (act->members[at].node < 0) missing.insert(act->place->ranks[at]);
    }
  }
  std::vector<Chain> chains;
  for (const std::int32_t rank : missing) {
    for (const Components::InProgress& own : components_->in_progress(rank)) {
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
ExpectedStarts::Chain ExpectedStarts::chain_to(const Component& component, const Act& act,
                                               std::size_t member) {
  const Act::Member& own = act.members[member];
  const std::int32_t rank = act.place->ranks[member];
  std::int64_t bytes_left = kExpectedMost * job_->plans[index(rank)]->table->size_bytes[index(own.node)];
  Chain chain = chain_from(rank, own, bytes_left);
  chain.other = act.component;
  const auto last = std::find_if(chain.keys.rbegin(), chain.keys.rend(), [&](std::uint64_t key) {
    const Act* const known = components_->find(key);
    return known != nullptr && known->component == &component;
  });
  chain.keys.erase(last.base(), chain.keys.end());
  return chain;
}

ExpectedStarts::Candidate ExpectedStarts::candidate_of(const Component& component, const Chain& chain,
                                                       std::size_t at, TimePs now) {
  const EpisodePlace& place = place_of(chain, at);
  const auto is_own = [&](std::uint32_t cable) { return claims_->is_owned(component, cable); };
  const auto is_free = [&](std::uint32_t cable) { return claims_->is_free_for(component, cable, now); };
  Candidate candidate;
  if (const Act* const known = components_->find(chain.keys[at])) {
    candidate.act = known;
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

void ExpectedStarts::add(Component& component, const Chain& chain) {
  const Act::Member* before = chain.from;
  for (std::size_t at = 0; at < chain.keys.size(); ++at) {
    const EpisodePlace& place = place_of(chain, at);
    Act* act = components_->find(chain.keys[at]);
    if (act == nullptr) {
      const Kind kind = kinds_->of(*job_->plans[index(chain.rank)], chain.nodes[at]);
      act = &components_->add_act(component, place, kind, chain.keys[at]);
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
    next.sequence = components_->make_sequence();
    ++act->expected;
    claim(component, place, place.place_of(chain.rank));
    // Members that wait may send then, so that their cables are in use again.
    for (std::size_t member = 0; member < act->members.size() && act->expected == 1; ++member) {
      if (act->members[member].node >= 0) claim(component, place, member);
    }
  }
}

// The component keeps the cables of a member, and this part of the network, until it is over.
void ExpectedStarts::claim(Component& component, const EpisodePlace& place, std::size_t member) {
  bool is_new = false;
  for (const std::uint32_t cable : place.cables_of[member]) {
    if ((*claims_)[cable].is_of(component)) continue;
    claims_->claim(component, cable);
    is_new = true;
  }
  if (is_new) component.claimed_places.push_back(place.number);
}

TimePs ExpectedStarts::wake_at(Component& component, std::uint32_t forecast) {
  TimePs after = 0;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && act->expected > 0; ++at) {
      Act::Member& member = act->members[at];
      if (!member.is_expected) continue;
      if (member.follows != nullptr) member.start = member.follows->end;
      if (member.start == kNever) continue;
      after = std::max(after, member.start + 1);
      simulator_->hosts().ranks().wake(act->place->ranks[at], member.start);
      waited_for_.push({member.start, forecast, act.get(), at});
    }
  }
  return after;
}

bool ExpectedStarts::ends_at_once(const Component& component, TimePs lead_ps) {
  return std::ranges::any_of(component.acts, [&](const auto& act) {
    return act->expected > 0 && std::ranges::any_of(act->members, [&](const Act::Member& it) {
             return it.is_expected && it.start != kNever && it.end < it.start + lead_ps;
           });
  });
}

void ExpectedStarts::notice_missing(TimePs time) {
  for (; !waited_for_.empty() && waited_for_.top().time <= time; waited_for_.pop()) {
    const WaitedFor& own = waited_for_.top();
    if (simulator_->hosts().ranks().is_taken_back(own.forecast)) continue;
    if (!own.act->members[own.member].is_expected) continue;
    own.act->component->must_forecast = true;
    components_->set_changed(*own.act->component);
  }
}

}  // namespace genie::twin
