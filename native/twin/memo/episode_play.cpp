#include "twin/memo/episode_play.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/index.hpp"
#include "core/snapshot.hpp"

namespace genie::twin {
namespace {

constexpr std::uint64_t kSeed = 1;  // nothing may be drawn

std::vector<const RankPlan*> plans_of(const EpisodePlan& plan) {
  std::vector<const RankPlan*> plans;
  for (const std::unique_ptr<RankPlan>& own : plan.ranks) plans.push_back(own.get());
  return plans;
}

void set_services(Links& links, const InputServices& services) {
  links.inputs().keep_services();
  std::uint32_t mark = 0;
  for (std::size_t at = 0; at < services.size(); ++at) {
    const InputService& own = services[at];
    if (at == 0 || own.mark != services[at - 1].mark)
      mark = own.mark == 0 ? 0 : links.inputs().make_mark(own.link);
    const InputOrder::Service service{own.time, at, mark};
    if (own.is_later) links.inputs().add_later_service(own.link, service);
    if (!own.is_later) links.inputs().set_service(own.link, service);
  }
}

// A timer that has lost its meaning still comes, and changes nothing.
class ObserveWithoutTimers final : public Observe {
 public:
  using Observe::Observe;
  void timer(TimePs&) override { word(0); }
};

// A queue pair is as it was before its first packet, but for its numbers.
bool is_at_rest(roce::QueuePair& own, const roce::QueuePairConfig& config, TimePs now) {
  roce::QueuePair fresh(config, own.id(), 0, 0);
  ObserveWithoutTimers of_own(now), of_fresh(now);
  own.fold(of_own);
  fresh.fold(of_fresh);
  const Snapshot &at = of_own.found(), &before = of_fresh.found();
  const auto is_same = [](const Snapshot::Either& one, const Snapshot::Either& other) {
    return ((one.value - one.base) & one.mask) == ((other.value - other.base) & other.mask);
  };
  return at.words == before.words && at.rare == before.rare && at.left == before.left &&
         at.replayed.empty() && std::ranges::equal(at.either, before.either, is_same);
}

bool all_at_rest(Simulator& simulator, const roce::QueuePairConfig& config) {
  QueuePairs& queue_pairs = simulator.hosts().queue_pairs();
  const TimePs now = simulator.now();
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    if (!is_at_rest(queue_pairs[id].queue_pair, config, now)) return false;
  }
  return true;
}

// The reason for a refusal, from what has happened so far; "": it may stand for others.
std::string refusal_of(Simulator& simulator) {
  if (simulator.is_failed()) return "it fails";
  Links& links = simulator.links();
  if (simulator.hosts().ranks().has_tie()) return "a start and a packet come together";
  if (links.has_drawn_turn()) return "the seed puts packets in order";
  if (links.buffers().was_near()) return "a shared buffer is near a threshold";
  for (std::uint32_t link = 0; link < links.links(); ++link) {
    const LinkCounters counters = links.totals(link);
    if (links.has_drawn_mark(link) || counters.dropped > 0 || counters.marked > 0 || counters.trimmed > 0 ||
        counters.pauses > 0 || counters.replays > 0)
      return "its links mark, pause or lose packets";
  }
  return "";
}

bool any_waiting(const Links& links) {
  for (std::uint32_t link = 0; link < links.links(); ++link) {
    if (!links.is_empty(link)) return true;
  }
  return false;
}

// Cables of queue pairs that are not at rest are in use.
std::vector<TimePs> cable_rests_of(const Network& part, Simulator& simulator,
                                   const roce::QueuePairConfig& config, bool is_whole) {
  const Links& links = simulator.links();
  QueuePairs& queue_pairs = simulator.hosts().queue_pairs();
  std::vector<TimePs> rests(static_cast<std::size_t>(part.links()) / 2, 0);
  // A queue pair's pacing counts for its first cable.
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    TimePs& rest = rests[links.link_at(queue_pairs[id].route) / 2];
    rest = std::max(rest, queue_pairs[id].queue_pair.data_from());
  }
  for (std::uint32_t link = 0; link < static_cast<std::uint32_t>(part.links()); ++link) {
    if (links.totals(link).packets == 0) continue;
    const std::int32_t target = part.link_target[link];
    const TimePs latency = target < part.hosts ? part.packet_latency_ps[index(target)] : 0;
    rests[link / 2] = std::max(rests[link / 2], links.free_at(link) + part.link_delay_ps[link] + latency + 1);
    if (!links.is_empty(link)) rests[link / 2] = kNever;
  }
  const TimePs now = simulator.now();
  for (std::uint32_t id = 0; id < queue_pairs.size() && !is_whole; ++id) {
    roce::QueuePair& own = queue_pairs[id].queue_pair;
    if (!own.is_used() || is_at_rest(own, config, now)) continue;
    for (const std::uint32_t route : queue_pairs.routes_of(id)) {
      for (const std::uint32_t link : links.path_from(route)) rests[link / 2] = kNever;
    }
  }
  return rests;
}

std::vector<Episode::Room> rooms_of(const Network& part, const Links& links) {
  std::vector<Episode::Room> rooms;
  for (std::int32_t node = part.hosts; node < part.nodes; ++node) {
    if (part.shared_bytes[index(node)] == 0) continue;
    Episode::Room room{.node = node};
    for (std::uint32_t link = 0; link < static_cast<std::uint32_t>(part.links()); ++link) {
      if (part.link_source[link] != node) continue;
      room.bytes += links.totals(link).longest_queue_bytes;
    }
    if (room.bytes > 0) rooms.push_back(room);
  }
  return rooms;
}

// The latest of each link to a switch, by time.
InputServices services_of(const Network& network, const Links& links) {
  InputServices services;
  std::map<std::uint32_t, std::uint64_t> order_of;
  for (std::uint32_t link = 0; link < static_cast<std::uint32_t>(network.links()); ++link) {
    if (network.link_target[link] < network.hosts || links.totals(link).packets == 0) continue;
    const InputOrder::Service own = links.inputs().service_of(link);
    order_of[link] = own.order;
    services.push_back({.link = link, .time = own.time, .mark = own.mark});
  }
  std::ranges::sort(services, {}, [&](const InputService& it) {
    return std::tuple(network.link_target[it.link], it.time, order_of[it.link]);
  });
  for (std::size_t at = 1; at < services.size(); ++at) {
    InputService &one = services[at - 1], &next = services[at];
    if (network.link_target[one.link] != network.link_target[next.link] || one.time != next.time) continue;
    one.is_alone = next.is_alone = false;
  }
  return services;
}

}  // namespace

EpisodePlay::EpisodePlay(const Network& network, std::shared_ptr<const roce::QueuePairConfig> config,
                         std::shared_ptr<const EpisodePlan> plan, const InputServices& services,
                         const std::vector<Past>& past, const std::vector<Past>& services_of)
    : network_(network),
      config_(std::move(config)),
      plan_(std::move(plan)),
      simulator_(network, *config_, plan_->shared, plans_of(*plan_), plan_->hosts, kSeed),
      recurrence_(simulator_, true) {
  simulator_.hosts().ranks().watch(plan_->is_watched);
  simulator_.share_config(config_);
  simulator_.connect();
  set_services(simulator_.links(), services);
  for (const Past& own : services_of)
    simulator_.links().take_over_services(own.from->state.links, own.to, false);
  for (const Past& own : past) simulator_.take_over(own.from->state, own.to, past.size() == 1);
  if (!past.empty()) simulator_.links().inputs().take_later(past.front().from->now());
  simulator_.begin(past.empty() ? 0 : past.front().from->now());
  before_ = simulator_.data_packets();
}

EpisodePlay::EpisodePlay(const Network& network, const EpisodeCheckpoint& from)
    : network_(network),
      config_(from.state.hosts.queue_pairs.config),
      plan_(from.plan),
      simulator_(network, *config_, plan_->shared, plans_of(*plan_), plan_->hosts, kSeed),
      recurrence_(simulator_, true) {
  simulator_.share_config(config_);
  simulator_.connect();
  simulator_.links().inputs().keep_services();
  simulator_.restore(from.state);
  recurrence_.restore(from.recurrence);
  before_ = simulator_.data_packets();
}

std::string EpisodePlay::refusal() {
  if (refusal_.empty()) refusal_ = refusal_of(simulator_);
  return refusal_;
}

// As of a short while ago: a look at all links takes time.
bool EpisodePlay::was_refused() {
  constexpr std::uint64_t kEventsEachLink = 64;
  const std::uint64_t events = simulator_.events();
  if (events - looked_at_ >= kEventsEachLink * simulator_.links().links()) {
    looked_at_ = events;
    refusal();
  }
  return !refusal_.empty();
}

bool EpisodePlay::run(std::uint64_t packets, TimePs until, Interrupt& interrupt) {
  // Events between two looks whether it can stand for others, and how far it has come.
  constexpr std::uint64_t kEventsMost = 1 << 16, kEventsLeast = 1 << 8, kEachPacket = 8;
  const std::uint64_t events =
      std::clamp(std::min(packets, kEventsMost) * kEachPacket, kEventsLeast, kEventsMost);
  if (simulator_.links().has_doubtful_turn() && refusal_.empty())
    refusal_ = "packets of several ports come together for one";
  for (const std::uint64_t from = played(); !was_refused() && played() - from < packets;) {
    sound_until_ = simulator_.next();
    const std::uint64_t before = simulator_.events();
    const bool more = recurrence_.run(events, until);
    interrupt.look(simulator_.events() - before);
    if (simulator_.links().has_doubtful_turn()) return refusal().empty();
    if (!more) return refusal().empty() && !simulator_.over();
    if (interrupt.is_set()) break;
  }
  return refusal().empty();
}

// Checkpoints are made as objects that are not const, so that the last one that holds one may change it.
SharedCheckpoint EpisodePlay::checkpoint(TimePs at, SharedCheckpoint reused) {
  std::optional<Checkpoint> state;
  if (reused.use_count() == 1) state = std::move(std::const_pointer_cast<EpisodeCheckpoint>(reused)->state);
  return std::make_shared<EpisodeCheckpoint>(
      EpisodeCheckpoint{simulator_.checkpoint(at, std::move(state)), plan_, recurrence_.kept()});
}

SharedCheckpoint EpisodePlay::whole_checkpoint(TimePs at) {
  const bool has_come = is_sound() && recurrence_.bring_all_to(at) && is_sound();
  return has_come ? checkpoint(at, nullptr) : nullptr;
}

// Until what is known of it.
void EpisodePlay::add_rank(Episode& episode, std::size_t rank) {
  const Walker& walker = simulator_.walkers()[rank];
  std::vector<Episode::Node>& nodes = episode.nodes.emplace_back(walker.nodes().size());
  std::vector<std::int32_t>& end_order = episode.end_order.emplace_back();
  for (std::size_t at = 0; at < walker.end_order().size(); ++at) {
    const std::int32_t row = walker.end_order()[at];
    if (walker.nodes()[index(row)].end >= episode.until) continue;  // it has gone further than is known
    nodes[index(row)].end = walker.nodes()[index(row)].end;
    nodes[index(row)].end_link = simulator_.hosts().ranks().end_links(static_cast<std::int32_t>(rank))[at];
    end_order.push_back(row);
  }
  const auto& kinds = plan_->ranks[rank]->table->kind;
  const auto is_kept = [&](std::int32_t node) {
    return episode.is_whole() || kinds[index(node)] == static_cast<std::uint8_t>(NodeKind::kRecv);
  };
  for (const SendRecord& record : walker.sends()) {
    if (is_kept(record.node)) nodes[index(record.node)].sends.push_back(record);
  }
  for (const ReceiveRecord& record : walker.receives()) {
    if (is_kept(record.node)) nodes[index(record.node)].receives.push_back(record);
  }
  episode.counters.push_back(simulator_.totals(static_cast<std::int32_t>(rank)));
}

Episode EpisodePlay::result(bool is_whole) {
  Links& links = simulator_.links();
  Episode episode;
  episode.refusal = refusal();
  episode.until = is_whole ? kNever : known_until();
  episode.is_over = is_whole && simulator_.done();
  episode.last = simulator_.now();
  if (is_whole && episode.refusal.empty() && any_waiting(links))
    episode.refusal = "packets wait on its links";
  episode.is_at_rest = is_whole && episode.refusal.empty() && all_at_rest(simulator_, *config_);
  // All nodes have ended, so that nothing is under way.
  if (episode.refusal.empty() && episode.is_over && !episode.is_at_rest)
    episode.refusal = "it leaves queue pairs in another state";
  episode.data_packets = simulator_.data_packets();
  if (!episode.refusal.empty()) return episode;
  links.inputs().take_later(episode.until);
  for (std::size_t rank = 0; rank < plan_->ranks.size(); ++rank) add_rank(episode, rank);
  for (std::int32_t link = 0; link < network_.links(); ++link)
    episode.links.push_back(simulator_.links().totals(static_cast<std::uint32_t>(link)));
  episode.cable_rests = cable_rests_of(network_, simulator_, *config_, is_whole);
  episode.rooms = rooms_of(network_, simulator_.links());
  episode.services = services_of(network_, links);
  return episode;
}

}  // namespace genie::twin
