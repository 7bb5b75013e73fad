// genie_core.ShortestPaths: the routes of a network.
#include "twin/fabric/shortest_paths.hpp"

#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <utility>

#include "bindings/arrays.hpp"

namespace genie::bindings {
namespace {

using twin::NextHops;
using twin::ShortestPaths;

constexpr std::int32_t kLengthMax = 1024;  // each link's, in links

void check_nodes(const std::vector<std::int32_t>& numbers, std::int32_t nodes) {
  for (const std::int32_t node : numbers) {
    if (node < 0 || node >= nodes) throw nb::value_error("no such node");
  }
}

struct Search {
  std::int32_t nodes;
  ShortestPaths paths;
};

std::unique_ptr<Search> make_search(std::int32_t nodes, const Column<std::int32_t>& source,
                                    const Column<std::int32_t>& target, const Column<std::int32_t>& length) {
  if (nodes < 0) throw nb::value_error("a network has no fewer than 0 nodes");
  if (source.size() != target.size() || source.size() != length.size())
    throw nb::value_error("every link needs a source, a target and a length");
  std::vector<std::int32_t> from = to_vector(source), to = to_vector(target), links = to_vector(length);
  check_nodes(from, nodes);
  check_nodes(to, nodes);
  for (const std::int32_t each : links) {
    if (each < 1 || each > kLengthMax) throw nb::value_error("a link's length is 1 to 1024");
  }
  return std::make_unique<Search>(nodes,
                                  ShortestPaths(nodes, std::move(from), std::move(to), std::move(links)));
}

}  // namespace

void register_shortest_paths(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NextHops>(m, "NextHops", "Links by which nodes send to groups of hosts, kept where they change.")
      .def(
          "of",
          [](const NextHops& hops, std::int32_t node, std::int32_t group) {
            check_nodes({node}, static_cast<std::int32_t>(hops.run_start.size()) - 1);
            const auto links = hops.of(node, group);
            return to_numpy(std::vector<std::int32_t>(links.begin(), links.end()));
          },
          "node"_a, "group"_a, "A node's links to a group, ascending: int32.")
      .def(
          "to",
          [](const NextHops& hops, std::int32_t group) {
            std::vector<std::int32_t> all;
            for (std::size_t node = 0; node + 1 < hops.run_start.size(); ++node) {
              const auto links = hops.of(static_cast<std::int32_t>(node), group);
              all.insert(all.end(), links.begin(), links.end());
            }
            return to_numpy(std::move(all));
          },
          "group"_a, "All nodes' links to a group, node after node: int32.")
      .def(
          "renamed",
          [](NextHops hops, const Column<std::int32_t>& links) {
            for (std::int32_t& link : hops.links) {
              if (link < 0 || static_cast<std::size_t>(link) >= links.size())
                throw nb::value_error("a link without a name");
              link = links(static_cast<std::size_t>(link));
            }
            return hops;
          },
          "links"_a, "The same with other numbers of links: int32, by the number here.")
      .def_prop_ro(
          "runs", [](const NextHops& hops) { return hops.run_group.size(); },
          "Runs of groups that a node treats alike; 8 B each.");
  nb::class_<Search>(
      m, "ShortestPaths",
      "Links on the shortest paths from all nodes to groups of hosts. Link i leads from source[i] to "
      "target[i] and counts as length[i] links; arrays of int32, (links,).")
      .def(nb::new_(&make_search), "nodes"_a, "source"_a, "target"_a, "length"_a)
      .def(
          "add",
          [](Search& search, const Column<std::int32_t>& nearest) {
            const std::vector<std::int32_t> group = to_vector(nearest);
            check_nodes(group, search.nodes);
            std::vector<std::int32_t> distance;
            {
              nb::gil_scoped_release released;
              distance = search.paths.add(group);
            }
            return to_numpy(std::move(distance));
          },
          "nearest"_a,
          "Add the group of hosts that hang on these nodes. Returns each node's distance to the nearest of "
          "them in "
          "links, -1 where no path leads there: int32, (nodes,).")
      .def(
          "take",
          [](Search& search) {
            nb::gil_scoped_release released;
            return search.paths.take();
          },
          "All groups' links, once.");
  m.def(
      "components_of",
      [](std::int32_t nodes, const Column<std::int32_t>& source, const Column<std::int32_t>& target) {
        const std::vector<std::int32_t> from = to_vector(source), to = to_vector(target);
        if (nodes < 0 || from.size() != to.size())
          throw nb::value_error("every link needs a source and a target");
        check_nodes(from, nodes);
        check_nodes(to, nodes);
        return to_numpy(twin::components_of(nodes, from, to));
      },
      "nodes"_a, "source"_a, "target"_a,
      "For each node the number of its component, 0, 1, ..., whichever way links lead: int32, (nodes,).");
}

}  // namespace genie::bindings
