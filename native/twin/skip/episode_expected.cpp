// Starts that a component expects: a collective that waits for its slot begins when the one before it ends,
// unless another that comes first becomes ready. An episode has them too, so that fewer are played.
#include <algorithm>
#include <map>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"
#include "twin/skip/episodes.hpp"

namespace genie::twin {
namespace {

constexpr std::size_t kChainMost = 256;

}  // namespace

// Each rank may begin as many bytes as it has begun: what is played in vain is less than what had to be
// played.
void Episodes::expect(Component& component, TimePs now) {
  std::vector<Chain> chains = chains_of(component);
  std::map<std::uint64_t, std::size_t> members;  // that begin each collective, by its key
  for (const Chain& chain : chains) {
    for (const std::uint64_t key : chain.keys) ++members[key];
  }
  // Where one is left out, the rank's later ones are, too; others may then miss it.
  for (bool is_changed = true; std::exchange(is_changed, false);) {
    for (Chain& chain : chains) {
      for (std::size_t at = 0; at < chain.keys.size(); ++at) {
        if (may_expect(component, chain, at, members[chain.keys[at]], now)) continue;
        for (std::size_t left = at; left < chain.keys.size(); ++left) --members[chain.keys[left]];
        chain.keys.resize(at);
        is_changed = true;
      }
    }
  }
  for (const Chain& chain : chains) expect(component, chain);
}

// Collectives that begin when those in progress end, by their ranks.
std::vector<Episodes::Chain> Episodes::chains_of(const Component& component) {
  std::map<std::int32_t, std::int64_t> bytes;  // by rank
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->is_message(); ++at) {
      const std::int32_t rank = act->place->ranks[at], node = act->members[at].node;
      if (node >= 0) bytes[rank] += plans_[index(rank)]->table->size_bytes[index(node)];
    }
  }
  std::vector<Chain> chains;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && !act->is_message(); ++at) {
      const Act::Member& own = act->members[at];
      const std::int32_t rank = act->place->ranks[at];
      const Walker& walker = simulator_->hosts().ranks().walker(rank);
      if (own.node < 0 || walker.has_ended(own.node)) continue;
      Chain chain{.rank = rank, .from = &own, .nodes = walker.next_after(own.node, kChainMost), .keys = {}};
      const RankPlan& plan = *plans_[index(rank)];
      for (const std::int32_t node : chain.nodes) {
        if (walker.play_of(node) != Walker::Play::kHeld ||
            plan.table->kind[index(node)] != static_cast<std::uint8_t>(NodeKind::kColl) ||
            (bytes[rank] -= plan.table->size_bytes[index(node)]) < 0)
          break;
        chain.keys.push_back(pair_key(static_cast<std::uint32_t>(plan.bound(node).group), plan.tag(node)));
      }
      if (!chain.keys.empty()) chains.push_back(std::move(chain));
    }
  }
  return chains;
}

// Of one that some have begun the rank's cables must be free for it. Of one that none has begun, either the
// component has all cables, or all members begin it and all cables are free.
bool Episodes::may_expect(const Component& component, const Chain& chain, std::size_t at, std::size_t members,
                          TimePs now) {
  const RankPlan& plan = *plans_[index(chain.rank)];
  const EpisodePlace& place = places_.of_group(plan.bound(chain.nodes[at]).group, *simulator_);
  const auto is_own = [&](std::uint32_t cable) { return owns(component, claims_[cable]); };
  const auto is_free = [&](std::uint32_t cable) {
    const Claim& own = claims_[cable];
    const bool is_alive = own.component != nullptr && own.serial == own.component->serial;
    return is_own(cable) || (!own.is_live && !(is_alive && uses(own, now)));
  };
  if (const Act* const* const known = act_of_.find(chain.keys[at])) {
    return (*known)->component == &component &&
           std::ranges::all_of(place.cables_of[place.place_of(chain.rank)], is_free);
  }
  return std::ranges::all_of(place.cables, is_own) ||
         (members == place.ranks.size() && std::ranges::all_of(place.cables, is_free));
}

void Episodes::expect(Component& component, const Chain& chain) {
  const RankPlan& plan = *plans_[index(chain.rank)];
  const Act::Member* before = chain.from;
  for (std::size_t at = 0; at < chain.keys.size(); ++at) {
    const std::int32_t node = chain.nodes[at];
    const EpisodePlace& place = places_.of_group(plan.bound(node).group, *simulator_);
    const std::size_t own = place.place_of(chain.rank);
    Act*& known = act_of_[chain.keys[at]];
    if (known == nullptr) {
      known = &add_act(component, place, kinds_.of(plan, node));
      known->key = chain.keys[at];
    }
    Act::Member& next = known->members[own];
    if (next.node >= 0) return;
    next.node = node;
    next.is_by_timer = false;
    next.follows = std::exchange(before, &next);
    next.sequence = ++latest_sequence_;
    ++known->expected;
    claim(component, place, own);
  }
}

// The component keeps the cables of a member, and this part of the network, until it is over.
void Episodes::claim(Component& component, const EpisodePlace& place, std::size_t member) {
  bool is_new = false;
  for (const std::uint32_t cable : place.cables_of[member]) {
    Claim& own = claims_[cable];
    if (owns(component, own)) continue;
    enter(component, cable, own);
    own.component = &component;
    own.serial = component.serial;
    own.until = kNever;
    is_new = true;
  }
  if (is_new) component.claimed_places.push_back(place.number);
}

// A rank looks at each of these starts, so that one which does not come is noticed.
void Episodes::hear_expected(Component& component, std::uint32_t forecast) {
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size() && act->expected > 0; ++at) {
      Act::Member& member = act->members[at];
      if (member.follows == nullptr) continue;
      member.start = member.follows->end;
      if (member.start == kNever) continue;
      simulator_->hosts().ranks().wake(act->place->ranks[at], member.start);
      expected_.push({member.start, forecast, act.get(), at});
    }
  }
}

// Components of which a start has not come are forecast anew.
void Episodes::check_expected(TimePs time) {
  for (; !expected_.empty() && expected_.top().time <= time; expected_.pop()) {
    const Expected& own = expected_.top();
    if (simulator_->hosts().ranks().is_taken_back(own.forecast)) continue;
    if (own.act->members[own.member].follows == nullptr) continue;
    own.act->component->must_forecast = true;
    set_changed(*own.act->component);
  }
}

// False where nothing was expected.
bool Episodes::withdraw(Component& component) {
  bool any = false;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (Act::Member& member : act->members) {
      if (member.follows == nullptr) continue;
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
