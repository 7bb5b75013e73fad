// The plan: what the walker plays. Arrays only; built in Python (genie/plan), immutable afterwards.
//
// Ranks of a class have equal nodes (NodeTable). They differ in bindings: each names a collective's group,
// with this rank's place in it, or a message's peer. Many nodes share one binding.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clear_to_send.hpp"
#include "core/time.hpp"

namespace genie {

// Kinds of nodes, as in genie/workload/graph.py.
enum class NodeKind : std::uint8_t { kMeta, kComp, kMem, kSend, kRecv, kColl };
// Actions of steps, as in genie/collectives/template.py.
enum class StepAction : std::uint8_t { kSend, kRecv, kReduce };

// One member's steps of one collective algorithm, with what the walker derives once per template.
struct StepTemplate {
  std::int32_t members = 0;
  bool relative = false;
  bool empty_messages = false;
  std::vector<std::uint8_t> action;
  std::vector<std::int32_t> peer;
  std::vector<std::int32_t> block_base;
  std::vector<std::int32_t> block;
  std::vector<std::uint8_t> channel;
  std::vector<std::uint8_t> credit;
  std::vector<std::int32_t> dep_start;
  std::vector<std::int32_t> deps;
  // Times of GPUs, as in genie/collectives/template.py; empty: they take none. Of a KiB: of a block.
  TimePs start_delay = 0;
  std::int32_t channels = 1;
  std::vector<TimePs> delay, delay_per_kib, work_per_kib;

  // Derived by prepare().
  std::vector<std::int32_t> successor_start, successors;
  std::vector<std::int32_t> transfer;        // step -> which of its direction's peers, in order of appearance
  std::vector<std::int32_t> next_receive;    // step -> next receive of the same peer and channel, or -1
  std::vector<std::int32_t> first_receives;  // first receive of every peer and channel
  std::vector<std::int32_t> send_peers, receive_peers;  // `peer` values, in order of appearance
  std::int32_t lowest_block = 0, highest_block = -1;    // that any member's steps name
  // The last step that waits for no other, and the last of these that leads to others.
  std::int32_t last_free = -1, last_free_lead = -1;

  bool has_times() const { return !delay.empty(); }
  bool is_send(std::size_t step) const {
    return action[step] == static_cast<std::uint8_t>(StepAction::kSend);
  }
  std::int32_t steps() const { return static_cast<std::int32_t>(action.size()); }
  std::int32_t dependencies(std::size_t step) const { return dep_start[step + 1] - dep_start[step]; }
  std::int32_t position_of_peer(std::int32_t peer_value, std::int32_t position) const {
    if (!relative) return peer_value;
    const std::int32_t sum = position + peer_value;
    return sum >= members ? sum - members : sum;
  }
  std::int32_t block_of(std::int32_t step, std::int32_t position) const {
    const auto s = static_cast<std::size_t>(step);
    if (!relative) return block_base[s] + block[s];
    const std::int32_t sum = position + block[s];
    return block_base[s] + (sum >= members ? sum - members : sum);
  }
  // Checks the arrays against each other and fills the derived ones; returns what is wrong, or "".
  std::string prepare();
  // Sets the times of GPUs, a row per step; returns what is wrong, or "".
  std::string set_times(TimePs start, std::vector<TimePs> of_delay, std::vector<TimePs> of_delay_per_kib,
                        std::vector<TimePs> of_work_per_kib);
};

// Common values of a rank's collectives of one shape, or of its messages with one peer.
struct Binding {
  std::int32_t template_id = -1;  // coll; -1: no traffic
  std::int32_t group = -1;        // coll
  std::int32_t position = 0;      // coll: this rank's place in the group
  std::int32_t peer = -1;         // send, recv: rank
  std::int64_t sizes_start = 0;   // coll
  std::uint32_t tag_bits = 0;     // of the group, in the tag of channel 0; channels add to it
};

// Part of a plan that all ranks share: templates, block sizes and groups.
struct SharedPlan {
  std::vector<StepTemplate> templates;
  std::vector<std::int64_t> block_sizes;    // pool; a collective's table starts at `sizes_start`
  std::vector<std::int64_t> group_start;    // groups + 1
  std::vector<std::int32_t> group_members;  // ranks
  TimePs slice_delay = 0;                   // from when a step that takes a credit could be sent until it is

  std::int32_t peer_rank(const Binding& own, std::int32_t peer_value) const {
    const StepTemplate& steps = templates[static_cast<std::size_t>(own.template_id)];
    return group_members[static_cast<std::size_t>(group_start[static_cast<std::size_t>(own.group)] +
                                                  steps.position_of_peer(peer_value, own.position))];
  }
};

// The nodes of all ranks of a class, in ascending id: one row per node.
struct NodeTable {
  std::vector<std::uint8_t> kind;
  std::vector<std::int32_t> slot;         // resource that runs one node at a time; -1: none
  std::vector<std::int64_t> duration_ps;  // comp, mem
  std::vector<std::int64_t> release_ps;   // not ready before this time
  std::vector<std::int64_t> size_bytes;   // send, recv
  std::vector<std::uint32_t> tag;         // send, recv, coll; a binding's tag bits are added
  std::vector<std::int32_t> binding;      // send, recv, coll: place in RankPlan::bindings; -1: of others
  std::vector<std::int32_t> dep_start, deps;

  // Derived by prepare().
  std::vector<std::int32_t> successor_start, successors;
  std::vector<bool> of_collective;  // binding -> a collective has it
  std::int32_t slots = 0;

  std::int32_t nodes() const { return static_cast<std::int32_t>(kind.size()); }
  // Checks every index and fills the derived arrays; returns what is wrong, or "".
  std::string prepare();
};

// One rank's nodes and what they are bound to.
struct RankPlan {
  std::int32_t rank = 0;
  std::shared_ptr<const NodeTable> table;  // prepared
  std::vector<Binding> bindings;

  const Binding& bound(std::int32_t node) const {
    return bindings[static_cast<std::size_t>(table->binding[static_cast<std::size_t>(node)])];
  }
  std::uint32_t tag(std::int32_t node) const {
    return table->tag[static_cast<std::size_t>(node)] + bound(node).tag_bits;
  }
  // Checks the bindings; returns what is wrong, or "".
  std::string check(const SharedPlan& shared) const;
};

// The ranks that a rank exchanges messages with, ascending.
std::vector<std::int32_t> peers_of(const SharedPlan& shared, const RankPlan& plan);

}  // namespace genie
