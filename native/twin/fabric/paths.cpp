#include "twin/fabric/paths.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/index.hpp"
#include "core/mix.hpp"

namespace genie::twin {
namespace {

constexpr std::uint16_t kRocePort = 4791;
constexpr std::uint32_t kFirstAddress = 0x0A000001;  // 10.0.0.1 is host 0

// A counter-based random number: the same for the same seed and counter, in any order of asking.
std::uint64_t random_of(std::uint64_t seed, std::uint64_t counter) {
  return mixed(seed * kGoldenGamma + counter + 0x632BE59BD9B4E019ull);
}

}  // namespace

std::vector<std::uint64_t> connected_pairs(const std::vector<Walker>& walkers) {
  std::vector<std::uint64_t> pairs;
  for (std::uint32_t rank = 0; rank < walkers.size(); ++rank) {
    for (const std::int32_t peer : walkers[rank].peers()) {
      pairs.push_back(pair_key(rank, static_cast<std::uint32_t>(peer)));
      pairs.push_back(pair_key(static_cast<std::uint32_t>(peer), rank));
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

std::uint16_t source_port(const SourcePorts& ports, std::uint64_t seed, std::uint32_t queue_pairs,
                          const Ends& ends) {
  const auto from = static_cast<std::uint32_t>(ends.rank), to = static_cast<std::uint32_t>(ends.peer);
  if (ports.rule == SourcePorts::Rule::kRange) {
    const std::uint64_t place = std::uint64_t{to} * queue_pairs + ends.number;
    return static_cast<std::uint16_t>(ports.first + place % (ports.last - ports.first + 1u));
  }
  if (ports.rule == SourcePorts::Rule::kRanks) {
    const std::uint32_t hash = from * 0x9E3779B1u ^ to * 0x85EBCA77u ^ ends.number * 0xC2B2AE3Du;
    return static_cast<std::uint16_t>(0xC000u | (hash >> 13 & 0x3FFFu));
  }
  // Queue pairs are numbered from a number that differs from run to run.
  const std::uint64_t first = 2 + (mixed(seed + kGoldenGamma) & 0xFFFFFu);
  std::uint64_t label = ((first + ends.own) & 0xFFFFFFu) * ((first + ends.other) & 0xFFFFFFu);
  label ^= label >> 20;
  label ^= label >> 40;
  label &= 0xFFFFFu;
  return static_cast<std::uint16_t>(0xC000u | ((label ^ label >> 14) & 0x3FFFu));
}

std::vector<std::uint16_t> sprayed_ports(const SourcePorts& ports, std::uint64_t seed, std::uint32_t count,
                                         const Ends& ends) {
  std::vector<std::uint16_t> out;
  for (std::uint32_t place = 0; place < count; ++place) {
    Ends one = ends;
    one.number = place;
    const std::uint32_t port = source_port(ports, seed, count, one);
    // Those of a device's queue pair follow on the one that its number gives.
    const bool follows = ports.rule == SourcePorts::Rule::kQueuePairs;
    out.push_back(static_cast<std::uint16_t>(follows ? 0xC000u | ((port + place) & 0x3FFFu) : port));
  }
  return out;
}

const Pinned* pinned_path(const Network& network, std::int32_t from, std::int32_t to, std::int32_t place) {
  if (network.is_pinned_in_order) {
    const auto ends_of = [](const Pinned& path) { return std::pair(path.from, path.to); };
    const auto known = std::ranges::lower_bound(network.pinned, std::pair(from, to), {}, ends_of);
    return known == network.pinned.end() || ends_of(*known) != std::pair(from, to) ? nullptr : &*known;
  }
  const auto known = std::find_if(network.pinned.begin(), network.pinned.end(), [&](const Pinned& path) {
    return path.from == from && path.to == to && (path.port < 0 || path.port == place);
  });
  return known == network.pinned.end() ? nullptr : &*known;
}

void find_path(const Network& network, const Routes& routes, std::int32_t from, std::int32_t to,
               std::uint16_t port, std::vector<std::uint32_t>& path, const SprayedPlace& sprayed) {
  assert(from >= 0 && from < network.hosts && to >= 0 && to < network.hosts);
  path.clear();
  if (from == to) path.push_back(static_cast<std::uint32_t>(network.links() + from));
  if (const Pinned* pinned = from == to ? nullptr : pinned_path(network, from, to, sprayed.place)) {
    path = pinned->links;
    assert(network.link_source[path.front()] == from && network.link_target[path.back()] == to);
    return;
  }
  const std::uint64_t addresses = pair_key(kFirstAddress + static_cast<std::uint32_t>(from),
                                           kFirstAddress + static_cast<std::uint32_t>(to));
  const std::uint64_t hash = mixed(addresses ^ mixed(std::uint64_t{port} << 16 | kRocePort));
  std::vector<std::uint32_t> choices;
  std::int32_t node = from;
  if (sprayed.first_link != SprayedPlace::kAnyLink && from != to) {
    path.push_back(sprayed.first_link);
    node = network.link_target[sprayed.first_link];
  }
  while (node != to) {
    choices.clear();
    network.each_next_hop(routes, node, to, [&](std::uint32_t link) { choices.push_back(link); });
    if (choices.empty()) return path.clear();
    // Differs from switch to switch.
    path.push_back(
        choices[choices.size() > 1 ? random_of(static_cast<std::uint64_t>(node), hash) % choices.size() : 0]);
    assert(network.link_source[path.back()] == node && path.size() < index(network.nodes));
    node = network.link_target[path.back()];
  }
}

}  // namespace genie::twin
