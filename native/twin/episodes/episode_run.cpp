#include "twin/episodes/episode_run.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"

namespace genie::twin {
namespace {

constexpr const char* kSameLinks = "packets that are not played apart use the same links";

std::uint64_t key_of(const Operation& operation) {
  return pair_key(static_cast<std::uint32_t>(operation.peer), operation.tag);
}

std::int32_t row_of(const Operation& operation) { return static_cast<std::int32_t>(operation.handle >> 32); }

}  // namespace

EpisodeRun::EpisodeRun(EpisodeMemo& memo, Simulator& simulator, std::uint64_t checkpoint_packets)
    : memo_(&memo),
      simulator_(&simulator),
      services_(*memo.job.network, simulator.links()),
      claims_(*memo.job.network, services_),
      components_(memo.job.plans.size(), memo.places, claims_, memo.costs, simulator),
      expected_(memo.job, memo.kinds, memo.places, claims_, components_, simulator),
      forecasts_(memo, services_, claims_, components_, expected_, simulator, checkpoint_packets) {}

void EpisodeRun::began(const std::vector<RankStart>& starts, TimePs now) {
  forecasts_.finish_until(starts.front().time);
  for (const RankStart& start : starts) {
    if (start.kind == RankStart::Kind::kHeld) begin(start);
    if (start.kind == RankStart::Kind::kTold) note_live(start);
  }
  expected_.notice_missing(starts.back().time);
  forecasts_.go_on(now);
  forecasts_.make_due(now);
  check_live();
}

void EpisodeRun::check_live() {
  Links& links = simulator_->links();
  Refusals& refusals = memo_->refusals;
  if (simulator_->hosts().ranks().has_tie()) refusals.give_up("two ends come together");
  if (links.has_drawn_turn()) refusals.give_up("the seed puts packets in order");
  if (links.has_doubtful_turn()) refusals.give_up("packets of several ports come together for one");
  if (has_live_ && links.buffers().was_near()) refusals.give_up("a shared buffer is near a threshold");
}

// Packets of the simulator's own use the links of a place from now on.
void EpisodeRun::note_live(const RankStart& start) {
  has_live_ = true;
  const EpisodePlace* place = nullptr;
  if (start.operation.type == Operation::Type::kSend) {
    place = &memo_->places.of_pair(start.rank, start.operation.peer, *simulator_);
  } else {
    place = &memo_->places.of_group(start.operation.peer, *simulator_);
    std::uint32_t& begun = told_[key_of(start.operation)];
    const bool is_first = begun++ == 0;
    if (begun == place->ranks.size()) told_.erase(key_of(start.operation));
    if (!is_first) return;
  }
  for (const std::uint32_t cable : place->cables) {
    const Claim& own = claims_[cable];
    if (own.is_alive() && own.is_used_at(start.time))
      return memo_->refusals.refuse(own.component->kinds(), kSameLinks);
    for (const std::uint32_t link : {2 * cable, 2 * cable + 1}) {
      if (!own.is_live && simulator_->links().target_of(link) >= memo_->job.network->hosts)
        simulator_->links().inputs().set_service(link, services_.latest_of(link, own).service);
    }
    claims_.set_live(cable);
  }
}

void EpisodeRun::begin(const RankStart& start) {
  if (takes_expected(start)) return;
  Act& act = act_of(start);
  const std::size_t own = act.place->place_of(start.rank);
  Act::Member& member = act.members[own];
  assert(member.node < 0);
  join(act, act.place->cables_of[own], start.time);
  // Members that wait may send now, so that their cables are in use again.
  const bool is_released = std::exchange(act.is_released, false);
  for (std::size_t other = 0; other < act.members.size() && is_released; ++other) {
    if (act.members[other].node >= 0) join(act, act.place->cables_of[other], start.time);
  }
  member.node = row_of(start.operation);
  member.start = start.time;
  member.is_by_timer = start.is_by_timer;
  components_.set_begun(act, own);
  if (!act.is_message() && act.has_begun()) components_.forget_key(act);
  Component& component = *act.component;
  component.first = std::min(component.first, start.time);
  component.must_forecast |= act.has_begun();
  components_.set_changed(component);
}

// A new one where none is known, in a component of its own.
Act& EpisodeRun::act_of(const RankStart& start) {
  const Operation& operation = start.operation;
  if (operation.type == Operation::Type::kSend) {
    const EpisodePlace& place = memo_->places.of_pair(start.rank, operation.peer, *simulator_);
    Act& own = components_.add_act(components_.make(), place, kMessages);
    own.sender = start.rank;
    own.operation = operation;
    return own;
  }
  if (Act* const known = components_.find(key_of(operation))) return *known;
  const EpisodePlace& place = memo_->places.of_group(operation.peer, *simulator_);
  const Kind kind = memo_->kinds.of(*memo_->job.plans[index(start.rank)], row_of(operation));
  return components_.add_act(components_.make(), place, kind, key_of(operation));
}

// True for a start that the component's episode has. Another of the same member takes that one's place.
bool EpisodeRun::takes_expected(const RankStart& start) {
  if (start.operation.type == Operation::Type::kSend) return false;
  Act* const known = components_.find(key_of(start.operation));
  if (known == nullptr) return false;
  Act& act = *known;
  Act::Member& member = act.members[act.place->place_of(start.rank)];
  if (!member.is_expected) return false;
  const bool is_alike = member.start == start.time && member.node == row_of(start.operation);
  --act.expected;
  if (!is_alike) {
    member = Act::Member{};
    act.component->must_forecast = true;
    return false;
  }
  member.is_expected = false;
  member.follows = nullptr;
  components_.set_begun(act, act.place->place_of(start.rank));
  if (!act.has_begun()) return true;
  components_.forget_key(act);
  act.component->must_forecast |= act.component->is_changed;  // since a forecast that has no end of it
  return true;
}

// Its component and those that use its links become one.
void EpisodeRun::join(const Act& act, const std::vector<std::uint32_t>& cables, TimePs time) {
  if (act.component->entries.empty()) act.component->entries.reserve(2 * cables.size());
  for (const std::uint32_t cable : cables) {
    const Claim& own = claims_[cable];
    if (own.is_live) memo_->refusals.refuse(act.kind, kSameLinks);
    if (own.is_alive() && own.component != act.component && own.is_used_at(time)) {
      Component& into = *own.component;
      components_.absorb(into, *act.component);
      components_.set_changed(into);
    }
    claims_.claim(*act.component, cable);
  }
}

}  // namespace genie::twin
