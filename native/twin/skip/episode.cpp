#include "twin/skip/episode.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "core/fold.hpp"
#include "core/index.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::twin {
namespace {

// A queue pair is as it was before its first packet, but for its numbers.
bool is_at_rest(roce::QueuePair& own, const roce::QueuePairConfig& config, TimePs now) {
  roce::QueuePair fresh(config, own.id(), 0, 0);
  Observe of_own(now), of_fresh(now);
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
  for (std::uint32_t id = 0; id < queue_pairs.size(); ++id) {
    if (!is_at_rest(queue_pairs[id].queue_pair, config, simulator.now())) return false;
  }
  return true;
}

// Why it cannot stand for others, from what has happened so far.
std::string refusal_of(Simulator& simulator) {
  if (simulator.is_failed()) return "it fails";
  Links& links = simulator.links();
  if (simulator.hosts().ranks().has_tie()) return "a start and a packet come together";
  if (links.has_drawn_turn()) return "the seed puts packets in order";
  if (links.has_doubtful_turn()) return "packets of several ports come together for one";
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

std::vector<TimePs> cable_rests_of(const Network& part, Simulator& simulator) {
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

}  // namespace

std::size_t Episode::memory_bytes() const {
  std::size_t bytes = sizeof(Episode) + links.size() * sizeof(LinkCounters) +
                      cable_rests.size() * sizeof(TimePs) + services.size() * sizeof(InputService);
  for (const std::vector<Node>& of_rank : nodes) {
    bytes += sizeof(of_rank) + sizeof(roce::QueuePairCounters);
    for (const Node& node : of_rank)
      bytes += sizeof(Node) + node.sends.size() * sizeof(SendRecord) +
               node.receives.size() * sizeof(ReceiveRecord);
  }
  return bytes;
}

void EpisodePlan::add_rank(std::int32_t host, const std::vector<Node>& nodes) {
  auto table = std::make_shared<NodeTable>();
  auto own = std::make_unique<RankPlan>();
  table->dep_start = {0};
  for (const Node& node : nodes) {
    table->kind.push_back(static_cast<std::uint8_t>(node.kind));
    table->slot.push_back(-1);
    table->duration_ps.push_back(0);
    table->release_ps.push_back(node.after >= 0 ? 0 : node.start);
    table->size_bytes.push_back(node.size_bytes);
    table->tag.push_back(node.tag);
    table->binding.push_back(static_cast<std::int32_t>(own->bindings.size()));
    if (node.after >= 0) table->deps.push_back(node.after);
    table->dep_start.push_back(static_cast<std::int32_t>(table->deps.size()));
    own->bindings.push_back(node.binding);
  }
  [[maybe_unused]] const std::string problem = table->prepare();
  assert(problem.empty());
  own->rank = static_cast<std::int32_t>(ranks.size());
  own->table = std::move(table);
  ranks.push_back(std::move(own));
  hosts.push_back(host);
  std::vector<std::uint8_t>& watched = is_watched.emplace_back();
  for (const Node& node : nodes) watched.push_back(!node.is_by_timer && node.after < 0);
}

Episode play_apart(const Network& part, const roce::QueuePairConfig& config, const EpisodePlan& plan,
                   const InputServices& services) {
  constexpr std::uint64_t kEvents = 1 << 16;  // between two looks whether it can stand for others
  constexpr std::uint64_t kSeed = 1;          // nothing may be drawn
  std::vector<const RankPlan*> plans;
  for (const std::unique_ptr<RankPlan>& own : plan.ranks) plans.push_back(own.get());
  Simulator simulator(part, config, plan.shared, plans, plan.hosts, kSeed);
  simulator.hosts().ranks().watch(plan.is_watched);
  Recurrence recurrence(simulator, true);
  simulator.start();
  Links& links = simulator.links();
  links.keep_services();
  std::uint32_t mark = 0;
  for (std::size_t at = 0; at < services.size(); ++at) {
    const InputService& own = services[at];
    if (at == 0 || own.mark != services[at - 1].mark)
      mark = own.mark == 0 ? 0 : links.make_service_mark(own.link);
    const InputOrder::Service service{own.time, at, mark};
    if (own.is_later) links.add_later_service(own.link, service);
    if (!own.is_later) links.set_service(own.link, service);
  }
  Episode episode;
  while (episode.refusal.empty() && recurrence.run(kEvents)) episode.refusal = refusal_of(simulator);
  roce::QueuePairConfig paced = config;
  paced.pacing_unit = part.serialisation_unit;
  std::map<std::uint32_t, std::uint64_t> order_of;
  episode.is_over = simulator.done();
  episode.last = simulator.now();
  if (episode.refusal.empty()) episode.refusal = refusal_of(simulator);
  if (episode.refusal.empty() && any_waiting(links)) episode.refusal = "packets wait on its links";
  episode.is_at_rest = episode.refusal.empty() && all_at_rest(simulator, paced);
  // All nodes have ended, so that nothing is under way.
  if (episode.refusal.empty() && episode.is_over && !episode.is_at_rest)
    episode.refusal = "it leaves queue pairs in another state";
  episode.data_packets = simulator.data_packets();
  episode.played_packets = episode.data_packets - recurrence.report().packets;
  if (!episode.refusal.empty()) return episode;
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const Walker& walker = simulator.walkers()[rank];
    std::vector<Episode::Node>& nodes = episode.nodes.emplace_back(walker.nodes().size());
    for (std::size_t row = 0; row < nodes.size(); ++row) {
      if (walker.nodes()[row].end >= 0) nodes[row].end = walker.nodes()[row].end;
    }
    for (const SendRecord& record : walker.sends()) nodes[index(record.node)].sends.push_back(record);
    for (const ReceiveRecord& record : walker.receives())
      nodes[index(record.node)].receives.push_back(record);
    episode.end_order.push_back(walker.end_order());
    for (std::size_t at = 0; at < walker.end_order().size(); ++at)
      nodes[index(walker.end_order()[at])].end_link =
          simulator.hosts().ranks().end_links(static_cast<std::int32_t>(rank))[at];
    episode.counters.push_back(simulator.totals(static_cast<std::int32_t>(rank)));
  }
  for (std::int32_t link = 0; link < part.links(); ++link)
    episode.links.push_back(simulator.links().totals(static_cast<std::uint32_t>(link)));
  episode.cable_rests = cable_rests_of(part, simulator);
  episode.rooms = rooms_of(part, simulator.links());
  for (std::uint32_t link = 0; link < static_cast<std::uint32_t>(part.links()); ++link) {
    if (part.link_target[link] < part.hosts || simulator.links().totals(link).packets == 0) continue;
    const InputOrder::Service own = links.service_of(link);
    order_of[link] = own.order;
    episode.services.push_back({.link = link, .time = own.time, .mark = own.mark});
  }
  std::ranges::sort(episode.services, {}, [&](const InputService& it) {
    return std::tuple(part.link_target[it.link], it.time, order_of[it.link]);
  });
  for (std::size_t at = 1; at < episode.services.size(); ++at) {
    InputService &one = episode.services[at - 1], &next = episode.services[at];
    if (part.link_target[one.link] != part.link_target[next.link] || one.time != next.time) continue;
    one.is_alone = next.is_alone = false;
  }
  return episode;
}

}  // namespace genie::twin
