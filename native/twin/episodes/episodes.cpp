#include "twin/episodes/episodes.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/clear_to_send.hpp"
#include "core/index.hpp"
#include "core/mix.hpp"

namespace genie::twin {
namespace {

constexpr std::uint64_t kBeginningsMost = 8;

std::uint64_t key_of(const Operation& operation) {
  return pair_key(static_cast<std::uint32_t>(operation.peer), operation.tag);
}

std::int32_t row_of(const Operation& operation) { return static_cast<std::int32_t>(operation.handle >> 32); }

}  // namespace

Episodes::Episodes(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
                   std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
                   const roce::SpreadConfig& spread, std::uint64_t memory_bytes,
                   std::uint64_t checkpoint_packets, std::uint64_t free_packets)
    : network_(&network),
      shared_(&shared),
      plans_(std::move(plans)),
      host_of_rank_(std::move(host_of_rank)),
      kinds_(shared, plans_),
      places_(network, shared, plans_, host_of_rank_),
      planned_(shared, plans_, config.mtu_bytes),
      memory_max_bytes_(memory_bytes),
      checkpoint_packets_(checkpoint_packets),
      free_packets_(free_packets) {
  assert(checkpoint_packets > 0);
  rank_of_host_.assign(index(network.hosts), -1);
  for (std::size_t rank = 0; rank < host_of_rank_.size(); ++rank)
    rank_of_host_[index(host_of_rank_[rank])] = static_cast<std::int32_t>(rank);
  roce::QueuePairConfig paced = config;
  paced.pacing_unit = network.serialisation_unit;
  config_ = std::make_shared<const roce::QueuePairConfig>(paced);
  unusable_ = problem_of(spread);
}

std::string Episodes::problem_of(const roce::SpreadConfig& spread) const {
  using congestion::Control;
  const Control control = config_->congestion.control;
  if (!kinds_.any_again()) return "no collective comes again";
  if (control != Control::kNone && control != Control::kDcqcn)
    return "congestion controls other than DCQCN keep what they have learned";
  if (spread.queue_pairs > 1 || config_->spray > 1 || network_->balance != Balance::kPath)
    return "packets between two ranks take several paths";
  if (!network_->changes.empty()) return "the network changes";
  if (network_->cut_through) return "switches cut through, which depends on all of their ports";
  if (network_->strict_classes != 0xFF) return "weighted classes keep their turns while a link is idle";
  if (std::ranges::any_of(network_->link_errors,
                          [](const LinkErrors& it) { return it.chance > 0 || it.round_trip >= 0; }))
    return "links corrupt frames";
  if (std::ranges::any_of(network_->link_burst_bytes, [](std::int64_t bytes) { return bytes > 0; }))
    return "token buckets fill while a link is idle";
  const auto is_positive = [](TimePs time) { return time > 0; };
  if (network_->doorbell_latency > 0 || std::ranges::any_of(network_->message_latency_ps, is_positive) ||
      network_->nic.delays_messages() || network_->nic.limits_ports())
    return "hosts or their NICs take time for messages";
  std::vector<std::int32_t> hosts = host_of_rank_;
  std::sort(hosts.begin(), hosts.end());
  if (std::ranges::adjacent_find(hosts) != hosts.end()) return "ranks share a host";
  return "";
}

void Episodes::attach(Simulator& simulator) {
  ++report_.beginnings;
  if (!simulator.is_divided()) unusable_ = "links without any time join nodes";
  if (unusable_.empty()) unusable_ = simulator.unfoldable();
  if (unusable_.empty() && simulator.threads() > 1) unusable_ = "several threads play";
  if (!unusable_.empty()) return;
  forget_simulator();
  simulator_ = &simulator;
  for (std::size_t rank = 0; rank < plans_.size(); ++rank)
    simulator.hosts()
        .ranks()
        .walker(static_cast<std::int32_t>(rank))
        .set_plays(kinds_.plays_of(*plans_[rank]));
  simulator.set_listener(*this);
}

void Episodes::forget_simulator() {
  simulator_ = nullptr;
  reason_.clear();
  claims_.assign(static_cast<std::size_t>(network_->links() / 2 + 1), Claim{});
  act_of_.clear();
  told_.clear();
  tag_of_.clear();
  components_.clear();
  free_.clear();
  changed_.clear();
  partly_known_.clear();
  ends_ = {};
  expected_ = {};
  in_progress_.assign(plans_.size(), {});
  marks_in_step_.clear();
  standing_packets_ = 0;
  has_live_ = false;
  report_.replayed = report_.packets = 0;
}

bool Episodes::begins_again(const Simulator& simulator) {
  if (simulator_ == nullptr) return false;
  if (!simulator.is_abandoned()) check_live();
  if (!simulator.is_abandoned() && simulator.done()) {
    finish_until(kNever);
    simulator_ = nullptr;
    return false;
  }
  if (!simulator.is_abandoned()) give_up("ranks wait for ever");
  const bool is_vain = report_.beginnings >= kBeginningsMost || !kinds_.any_left();
  if (unusable_.empty() && is_vain) give_up(reason_);
  forget_simulator();
  return true;
}

void Episodes::stop() {
  if (simulator_ == nullptr) return;
  finish_until(simulator_->now());
  simulator_ = nullptr;
}

void Episodes::give_up(const std::string& reason) {
  unusable_ = reason;
  if (simulator_ != nullptr) simulator_->abandon();
}

void Episodes::conflict(Kind one, Kind other, const std::string& reason) {
  kinds_.set_live(one);
  kinds_.set_live(other);
  reason_ = reason;
  if (report_.reasons.empty() || report_.reasons.back() != reason) report_.reasons.push_back(reason);
  simulator_->abandon();
}

void Episodes::refuse(const Component& component, const std::string& reason) {
  for (const std::unique_ptr<Act>& act : component.acts) conflict(act->kind, act->kind, reason);
}

void Episodes::began(std::vector<RankStart> starts, TimePs now) {
  if (simulator_ == nullptr) return;  // the run was stopped
  std::ranges::stable_sort(starts, {}, [](const RankStart& it) { return std::pair(it.time, it.rank); });
  finish_until(starts.front().time);
  for (const RankStart& start : starts) {
    if (start.kind == RankStart::Kind::kHeld) begin(start);
    if (start.kind == RankStart::Kind::kTold) note_live(start);
  }
  notice_missing(starts.back().time);
  go_on(now);
  std::size_t kept = 0;
  for (std::size_t at = 0; at < changed_.size() && !simulator_->is_abandoned(); ++at) {
    Component& own = *changed_[at];
    if (!own.is_changed) continue;  // it has become part of another
    if (waits(own, now)) {
      changed_[kept++] = &own;
    } else {
      own.is_changed = own.must_forecast = false;
      forecast(own, now);
    }
  }
  changed_.resize(kept);
  check_live();
}

// Packets of the simulator's own must not depend on those that were played apart.
void Episodes::check_live() {
  Links& links = simulator_->links();
  if (simulator_->hosts().ranks().has_tie()) give_up("two ends come together");
  if (links.has_drawn_turn()) give_up("the seed puts packets in order");
  if (links.has_doubtful_turn()) give_up("packets of several ports come together for one");
  if (has_live_ && links.buffers().was_near()) give_up("a shared buffer is near a threshold");
}

// Packets of the simulator's own use the links of a place from now on.
void Episodes::note_live(const RankStart& start) {
  has_live_ = true;
  const EpisodePlace* place = nullptr;
  if (start.operation.type == Operation::Type::kSend) {
    place = &places_.of_pair(start.rank, start.operation.peer, *simulator_);
  } else {
    place = &places_.of_group(start.operation.peer, *simulator_);
    std::uint32_t& begun = told_[key_of(start.operation)];
    const bool is_first = begun++ == 0;
    if (begun == place->ranks.size()) told_.erase(key_of(start.operation));
    if (!is_first) return;
  }
  for (const std::uint32_t cable : place->cables) {
    Claim& own = claims_[cable];
    if (own.is_alive() && uses(own, start.time))
      return refuse(*own.component, "packets that are not played apart use the same links");
    for (const std::uint32_t link : {2 * cable, 2 * cable + 1}) {
      if (!own.is_live && simulator_->links().target_of(link) >= network_->hosts)
        simulator_->links().set_service(link, latest_of(link, own).service);
    }
    own.is_live = true;
  }
}

void Episodes::begin(const RankStart& start) {
  if (takes_expected(start)) return;
  const bool is_message = start.operation.type == Operation::Type::kSend;
  Act* act = nullptr;
  if (is_message) {
    const EpisodePlace& place = places_.of_pair(start.rank, start.operation.peer, *simulator_);
    act = &add_act(take_component(), place, kMessages);
    act->sender = start.rank;
    act->operation = start.operation;
  } else {
    Act*& known = act_of_[key_of(start.operation)];
    if (known == nullptr) {
      known =
          &add_act(take_component(), places_.of_group(start.operation.peer, *simulator_),
                   kinds_.of(*plans_[index(start.rank)], row_of(start.operation)), key_of(start.operation));
    }
    act = known;
  }
  const std::size_t own = act->place->place_of(start.rank);
  Act::Member& member = act->members[own];
  assert(member.node < 0);
  join(*act, act->place->cables_of[own], start.time);
  // Members that wait may send now, so that their cables are in use again.
  const bool is_released = std::exchange(act->is_released, false);
  for (std::size_t other = 0; other < act->members.size() && is_released; ++other) {
    if (act->members[other].node >= 0) join(*act, act->place->cables_of[other], start.time);
  }
  member.node = row_of(start.operation);
  member.start = start.time;
  member.is_by_timer = start.is_by_timer;
  set_begun(*act, own);
  if (!is_message && act->has_begun()) forget_key(*act);
  Component& component = *act->component;
  component.first = std::min(component.first, start.time);
  component.must_forecast |= act->has_begun();
  set_changed(component);
}

void Episodes::set_changed(Component& component) {
  component.play.reset();
  if (!std::exchange(component.is_changed, true)) changed_.push_back(&component);
}

void Episodes::set_begun(Act& act, std::size_t member) {
  act.members[member].sequence = ++latest_sequence_;
  ++act.begun;
  if (!act.is_message()) in_progress_[index(act.place->ranks[member])].push_back({&act, member});
}

// True for a start that the component's episode has. Another of the same member takes that one's place.
bool Episodes::takes_expected(const RankStart& start) {
  if (start.operation.type == Operation::Type::kSend) return false;
  Act** const known = act_of_.find(key_of(start.operation));
  if (known == nullptr) return false;
  Act& act = **known;
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
  set_begun(act, act.place->place_of(start.rank));
  if (!act.has_begun()) return true;
  forget_key(act);
  act.component->must_forecast |= act.component->is_changed;  // since a forecast that has no end of it
  return true;
}

// `key`: of a collective, in act_of_. One that is expected again has the tag that it had.
Episodes::Act& Episodes::add_act(Component& component, const EpisodePlace& place, Kind kind,
                                 std::uint64_t key) {
  constexpr std::uint32_t kTagsOfAct = 256;  // channels add to them
  const bool is_collective = kind != kMessages;
  auto act = std::make_unique<Act>();
  Act& own = *act;
  own.place = &place;
  own.kind = kind;
  own.key = key;
  std::uint32_t& known = is_collective ? tag_of_[key] : own.tag;
  if (known == 0) {
    latest_tag_ = (latest_tag_ + kTagsOfAct) & (kCreditTag - 1);
    known = latest_tag_ = std::max(latest_tag_, kTagsOfAct);
  }
  own.tag = known;
  own.members.resize(place.ranks.size());
  own.component = &component;
  own.component->acts.push_back(std::move(act));
  return own;
}

// All members have begun: another collective may have its key.
void Episodes::forget_key(const Act& act) {
  act_of_.erase(act.key);
  tag_of_.erase(act.key);
}

Episodes::Component& Episodes::take_component() {
  if (free_.empty()) {
    components_.push_back(std::make_unique<Component>());
    free_.push_back(components_.back().get());
  }
  Component& own = *free_.back();
  free_.pop_back();
  own.numbers = {++latest_number_};
  return own;
}

// Its component and those that use its links become one.
void Episodes::join(const Act& act, const std::vector<std::uint32_t>& cables, TimePs time) {
  if (act.component->entries.empty()) act.component->entries.reserve(2 * cables.size());
  for (const std::uint32_t cable : cables) {
    Claim& own = claims_[cable];
    if (own.is_live) conflict(act.kind, act.kind, "packets that are not played apart use the same links");
    const bool is_alive = own.is_alive();
    if (is_alive && own.component != act.component && uses(own, time)) merge(*own.component, *act.component);
    if (!is_alive || own.component != act.component) enter(*act.component, cable, own);
    own.take(*act.component);
  }
}

// Keeps the latest services of a cable's links before the component uses them.
void Episodes::enter(Component& component, std::uint32_t cable, const Claim& before) {
  for (const std::uint32_t link : {2 * cable, 2 * cable + 1}) {
    if (simulator_->links().target_of(link) >= network_->hosts)
      component.entries.push_back(latest_of(link, before));
  }
}

Episodes::Component::Entry Episodes::latest_of(std::uint32_t link, const Claim& claim) {
  if (!claim.is_alive()) return {link, simulator_->links().service_of(link), 0};
  // Its results are not yet the simulator's.
  const Component& other = *claim.component;
  if (other.episode != nullptr) {
    const std::uint32_t own = other.place->part.link(link);
    const auto& services = other.episode->services;
    const auto last = std::ranges::find(services, own, &InputService::link);
    if (last != services.end())
      return {link, service_after(other, static_cast<std::size_t>(last - services.begin())),
              other.numbers.front()};
  }
  const auto entry = std::ranges::find(other.entries, link, &Component::Entry::link);
  return entry == other.entries.end() ? Component::Entry{link, simulator_->links().service_of(link), 0}
                                      : *entry;
}

void Episodes::hand_over(const std::vector<std::uint32_t>& cables, const Component& from, Component& into) {
  for (const std::uint32_t cable : cables) {
    if (claims_[cable].is_of(from)) claims_[cable].take(into);
  }
}

void Episodes::merge(Component& into, Component& other) {
  absorb(into, other);
  set_changed(into);
}

void Episodes::absorb(Component& into, Component& other) {
  if (!into.sources.empty() || !other.sources.empty()) {
    keep_source(into);
    keep_source(other);
  }
  for (std::unique_ptr<Act>& act : other.acts) {
    hand_over(act->place->cables, other, into);
    act->component = &into;
    into.acts.push_back(std::move(act));
  }
  into.first = std::min(into.first, other.first);
  into.numbers.insert(into.numbers.end(), other.numbers.begin(), other.numbers.end());
  into.entries.insert(into.entries.end(), other.entries.begin(), other.entries.end());
  into.must_forecast |= other.must_forecast;
  into.forecasts.insert(into.forecasts.end(), other.forecasts.begin(), other.forecasts.end());
  into.known_until = std::min(into.known_until, other.known_until);
  into.claimed_places.insert(into.claimed_places.end(), other.claimed_places.begin(),
                             other.claimed_places.end());
  for (const std::uint32_t place : other.claimed_places) hand_over(places_.at(place).cables, other, into);
  into.rooms.insert(into.rooms.end(), other.rooms.begin(), other.rooms.end());
  std::ranges::move(other.sources, std::back_inserter(into.sources));
  release(other);
}

void Episodes::release(Component& component) {
  for (const std::unique_ptr<Act>& act : component.acts) {
    if (act == nullptr) continue;  // another component has it now
    for (const std::int32_t rank : act->place->ranks)
      std::erase_if(in_progress_[index(rank)], [&](const InProgress& it) { return it.act == act.get(); });
  }
  set_played(component, 0);
  const std::uint64_t serial = component.serial + 1;
  component = Component{};
  component.serial = serial;
  free_.push_back(&component);
}

void Episodes::take_back(Component& component) {
  for (const std::uint32_t forecast : component.forecasts) simulator_->hosts().ranks().take_back(forecast);
  component.forecasts.clear();
  give_back_rooms(component);
}

void Episodes::give_back_rooms(Component& component) {
  for (const auto& [node, bytes] : component.rooms) simulator_->links().buffers().give_back(node, bytes);
  component.rooms.clear();
}

// True where no rank hears of an end before a later time, at which the component will be forecast. What
// begins until then counts too.
bool Episodes::waits(Component& component, TimePs now) {
  if (component.must_forecast) return false;
  TimePs next = kNever;
  std::int32_t rank = -1;
  for (const std::unique_ptr<Act>& act : component.acts) {
    for (std::size_t at = 0; at < act->members.size(); ++at) {
      const TimePs end = act->members[at].end;
      if (end < now || end >= next) continue;
      next = end;
      rank = act->place->ranks[at];
    }
  }
  if (component.known_until < next) {
    next = component.known_until;
    rank = component.acts.front()->place->ranks.front();
  }
  if (next == kNever) return true;
  const TimePs time = next - lead_ps();
  if (time <= now) return false;
  if (component.wakes_at < now || component.wakes_at > time) {
    component.wakes_at = time;
    simulator_->hosts().ranks().wake(rank, time);
  }
  return true;
}

}  // namespace genie::twin
