// genie_core.Plan: the arrays of genie/plan.
#include "bindings/plan.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bindings/arrays.hpp"
#include "walker/alone.hpp"

namespace genie::bindings {
namespace {

void refuse(const std::string& problem) {
  if (!problem.empty()) throw std::invalid_argument(problem);
}

std::int32_t add_template(Plan& plan, std::int32_t members, bool relative, bool empty_messages,
                          const Column<std::uint8_t>& action, const Column<std::int32_t>& peer,
                          const Column<std::int32_t>& block_base, const Column<std::int32_t>& block,
                          const Column<std::uint8_t>& channel, const Column<std::uint8_t>& credit,
                          const Column<std::int32_t>& dep_start, const Column<std::int32_t>& deps) {
  StepTemplate steps;
  steps.members = members;
  steps.relative = relative;
  steps.empty_messages = empty_messages;
  steps.action = to_vector(action);
  steps.peer = to_vector(peer);
  steps.block_base = to_vector(block_base);
  steps.block = to_vector(block);
  steps.channel = to_vector(channel);
  steps.credit = to_vector(credit);
  steps.dep_start = to_vector(dep_start);
  steps.deps = to_vector(deps);
  refuse(steps.prepare());
  plan.shared.templates.push_back(std::move(steps));
  return static_cast<std::int32_t>(plan.shared.templates.size()) - 1;
}

void set_pools(Plan& plan, const Column<std::int64_t>& block_sizes, const Column<std::int64_t>& group_start,
               const Column<std::int32_t>& group_members) {
  plan.shared.block_sizes = to_vector(block_sizes);
  plan.shared.group_start = to_vector(group_start);
  plan.shared.group_members = to_vector(group_members);
}

void set_timing(Plan& plan, std::int32_t number, TimePs start_ps, const Column<std::int64_t>& delay_ps,
                const Column<std::int64_t>& delay_ps_per_kib, const Column<std::int64_t>& work_ps_per_kib) {
  refuse(
      plan.shared.templates.at(static_cast<std::size_t>(number))
          .set_times(start_ps, to_vector(delay_ps), to_vector(delay_ps_per_kib), to_vector(work_ps_per_kib)));
}

void set_slice_delay(Plan& plan, TimePs delay) { plan.shared.slice_delay = delay; }

// The number of the table.
std::int32_t add_table(Plan& plan, const Column<std::uint8_t>& kind, const Column<std::int32_t>& slot,
                       const Column<std::int64_t>& duration_ps, const Column<std::int64_t>& release_ps,
                       const Column<std::int64_t>& size_bytes, const Column<std::uint32_t>& tag,
                       const Column<std::int32_t>& binding, const Column<std::int32_t>& dep_start,
                       const Column<std::int32_t>& deps) {
  auto table = std::make_shared<NodeTable>();
  table->kind = to_vector(kind);
  table->slot = to_vector(slot);
  table->duration_ps = to_vector(duration_ps);
  table->release_ps = to_vector(release_ps);
  table->size_bytes = to_vector(size_bytes);
  table->tag = to_vector(tag);
  table->binding = to_vector(binding);
  table->dep_start = to_vector(dep_start);
  table->deps = to_vector(deps);
  refuse(table->prepare());
  plan.tables.push_back(std::move(table));
  return static_cast<std::int32_t>(plan.tables.size()) - 1;
}

// Columns: one row per binding.
void add_rank(Plan& plan, std::int32_t rank, std::int32_t table, const Column<std::int32_t>& template_id,
              const Column<std::int64_t>& sizes_start, const Column<std::int32_t>& group,
              const Column<std::int32_t>& position, const Column<std::int32_t>& peer,
              const Column<std::uint32_t>& tag_bits) {
  auto own = std::make_unique<RankPlan>();
  own->rank = rank;
  own->table = plan.tables.at(static_cast<std::size_t>(table));
  const std::size_t count = template_id.size();
  for (const std::size_t size :
       {sizes_start.size(), group.size(), position.size(), peer.size(), tag_bits.size()}) {
    if (size != count) throw std::invalid_argument("the columns of a rank's bindings differ in length");
  }
  own->bindings.reserve(count);
  for (std::size_t at = 0; at < count; ++at)
    own->bindings.push_back({.template_id = template_id(at),
                             .group = group(at),
                             .position = position(at),
                             .peer = peer(at),
                             .sizes_start = sizes_start(at),
                             .tag_bits = tag_bits(at)});
  refuse(own->check(plan.shared));
  plan.ranks.push_back(std::move(own));
}

// A walker driven from Python, for tests and for transports whose completions come to Python.
class PythonWalker {
 public:
  PythonWalker(const Plan& plan, std::size_t which) : walker_(plan.shared, *plan.ranks.at(which)) {}
  nb::list begin(TimePs now) {
    operations_.clear();
    walker_.begin(now, operations_);
    return operations();
  }
  // completions: tuples ("timer", handle, time), ("sent", handle, time, retransmits) or
  // ("arrived", peer, tag, size_bytes, first, time).
  nb::list advance(TimePs now, const nb::list& completions) {
    std::vector<Completion> batch;
    for (nb::handle item : completions) {
      const auto entry = nb::cast<nb::tuple>(item);
      const auto type = nb::cast<std::string>(entry[0]);
      Completion completion;
      if (type == "arrived") {
        completion.type = Completion::Type::kArrived;
        completion.peer = nb::cast<std::int32_t>(entry[1]);
        completion.tag = nb::cast<std::uint32_t>(entry[2]);
        completion.size_bytes = nb::cast<std::int64_t>(entry[3]);
        completion.first = nb::cast<TimePs>(entry[4]);
        completion.time = nb::cast<TimePs>(entry[5]);
      } else {
        completion.type = type == "timer" ? Completion::Type::kTimer : Completion::Type::kSent;
        completion.handle = nb::cast<std::uint64_t>(entry[1]);
        completion.time = nb::cast<TimePs>(entry[2]);
        if (entry.size() > 3) completion.retransmits = nb::cast<std::uint32_t>(entry[3]);
      }
      batch.push_back(completion);
    }
    operations_.clear();
    walker_.advance(now, batch, operations_);
    return operations();
  }
  bool done() const { return walker_.done(); }
  std::int64_t unfinished() const { return walker_.unfinished(); }
  const std::string& error() const { return walker_.error(); }
  std::vector<std::string> waiting(std::size_t limit) const { return walker_.waiting(limit); }
  nb::dict records() const { return records_of(walker_); }

 private:
  nb::list operations() const {
    nb::list out;
    for (const Operation& operation : operations_) {
      if (operation.type == Operation::Type::kTimer) {
        out.append(nb::make_tuple("timer", operation.handle, operation.at));
      } else {
        out.append(
            nb::make_tuple("send", operation.handle, operation.peer, operation.tag, operation.size_bytes));
      }
    }
    return out;
  }
  Walker walker_;
  std::vector<Operation> operations_;
};

nb::dict walk_all(const Plan& plan) {
  AloneResult result;
  {
    nb::gil_scoped_release released;
    std::vector<const RankPlan*> plans;
    for (const auto& rank : plan.ranks) plans.push_back(rank.get());
    result = walk_alone(plan.shared, plans);
  }
  nb::dict out;
  out["steps"] = result.steps;
  out["messages"] = result.messages;
  out["end_ps"] = result.end;
  out["problems"] = result.problems;
  return out;
}

}  // namespace

nb::dict records_of(const Walker& walker) {
  nb::dict nodes, sends, receives, out;
  nodes["ready_ps"] = column_of<std::int64_t>(walker.nodes(), &NodeRecord::ready);
  nodes["start_ps"] = column_of<std::int64_t>(walker.nodes(), &NodeRecord::start);
  nodes["end_ps"] = column_of<std::int64_t>(walker.nodes(), &NodeRecord::end);
  nodes["overshoot_ps"] = column_of<std::int64_t>(walker.nodes(), &NodeRecord::overshoot);
  sends["node"] = column_of<std::int32_t>(walker.sends(), &SendRecord::node);
  sends["peer"] = column_of<std::int32_t>(walker.sends(), &SendRecord::peer);
  sends["messages"] = column_of<std::int64_t>(walker.sends(), &SendRecord::messages);
  sends["size_bytes"] = column_of<std::int64_t>(walker.sends(), &SendRecord::size_bytes);
  sends["retransmits"] = column_of<std::int64_t>(walker.sends(), &SendRecord::retransmits);
  sends["post_ps"] = column_of<std::int64_t>(walker.sends(), &SendRecord::post);
  sends["acked_ps"] = column_of<std::int64_t>(walker.sends(), &SendRecord::acked);
  sends["busy_ps"] = column_of<std::int64_t>(walker.sends(), &SendRecord::busy);
  receives["node"] = column_of<std::int32_t>(walker.receives(), &ReceiveRecord::node);
  receives["peer"] = column_of<std::int32_t>(walker.receives(), &ReceiveRecord::peer);
  receives["messages"] = column_of<std::int64_t>(walker.receives(), &ReceiveRecord::messages);
  receives["size_bytes"] = column_of<std::int64_t>(walker.receives(), &ReceiveRecord::size_bytes);
  receives["first_ps"] = column_of<std::int64_t>(walker.receives(), &ReceiveRecord::first);
  receives["last_ps"] = column_of<std::int64_t>(walker.receives(), &ReceiveRecord::last);
  out["nodes"] = nodes;
  out["sends"] = sends;
  out["receives"] = receives;
  return out;
}

void register_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Plan>(m, "Plan",
                   "Templates, size tables, groups and each rank's nodes, as the walker plays them.")
      .def(nb::init<>())
      .def("add_template", &add_template, "members"_a, "relative"_a, "empty_messages"_a, "action"_a, "peer"_a,
           "block_base"_a, "block"_a, "channel"_a, "credit"_a, "dep_start"_a, "deps"_a,
           "Add a collective's template; returns its number. ValueError when its arrays do not fit together.")
      .def(
          "set_timing", &set_timing, "template"_a, "start_ps"_a, "delay_ps"_a, "delay_ps_per_kib"_a,
          "work_ps_per_kib"_a,
          "Set the times that GPUs take for a template, a row per step, as genie.collectives.template.Timing "
          "has them. ValueError when a time is negative or the rows are not the steps.")
      .def("set_slice_delay", &set_slice_delay, "delay_ps"_a,
           "How long a step that takes a credit waits before it is sent, as NCCL's do for the GPU.")
      .def("set_pools", &set_pools, "block_sizes"_a, "group_start"_a, "group_members"_a,
           "Set the block sizes in bytes of all collectives and the members of all groups.")
      .def("add_table", &add_table, "kind"_a, "slot"_a, "duration_ps"_a, "release_ps"_a, "size_bytes"_a,
           "tag"_a, "binding"_a, "dep_start"_a, "deps"_a,
           "Add the nodes of a class of ranks, one row per node; returns their number. ValueError when an "
           "index "
           "points outside.")
      .def("add_rank", &add_rank, "rank"_a, "table"_a, "template_id"_a, "sizes_start"_a, "group"_a,
           "position"_a, "peer"_a, "tag_bits"_a,
           "Add a rank with the nodes of a table, one row per binding. ValueError when an index points "
           "outside.")
      .def_prop_ro("ranks", [](const Plan& plan) { return plan.ranks.size(); });
  m.def("walk_alone", &walk_all, "plan"_a,
        "Play all ranks of a plan (0, 1, ... in order) over a network without delay; gives the steps of "
        "collectives, the messages, the last node's end_ps and the problems.");

  nb::class_<PythonWalker>(m, "Walker", "One rank's plan in motion, driven from Python; times in ps.")
      .def(nb::init<const Plan&, std::size_t>(), "plan"_a, "which"_a, nb::keep_alive<1, 2>())
      .def("begin", &PythonWalker::begin, "now"_a)
      .def("advance", &PythonWalker::advance, "now"_a, "completions"_a)
      .def("waiting", &PythonWalker::waiting, "limit"_a = 8)
      .def("records", &PythonWalker::records)
      .def_prop_ro("done", &PythonWalker::done)
      .def_prop_ro("unfinished", &PythonWalker::unfinished)
      .def_prop_ro("error", &PythonWalker::error);
}

}  // namespace genie::bindings
