#include "walker/plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/flat_map.hpp"
#include "core/mix.hpp"

namespace genie {
namespace {

// Reverses a CSR of dependencies into one of successors.
void reverse(const std::vector<std::int32_t>& start, const std::vector<std::int32_t>& deps,
             std::vector<std::int32_t>& successor_start, std::vector<std::int32_t>& successors) {
  const std::size_t rows = start.size() - 1;
  successor_start.assign(rows + 1, 0);
  for (std::int32_t dep : deps) ++successor_start[static_cast<std::size_t>(dep) + 1];
  for (std::size_t row = 0; row < rows; ++row) successor_start[row + 1] += successor_start[row];
  successors.resize(deps.size());
  std::vector<std::int32_t> fill(successor_start.begin(), successor_start.end() - 1);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::int32_t at = start[row]; at < start[row + 1]; ++at) {
      const auto dep = static_cast<std::size_t>(deps[static_cast<std::size_t>(at)]);
      successors[static_cast<std::size_t>(fill[dep]++)] = static_cast<std::int32_t>(row);
    }
  }
}

bool valid_csr(const std::vector<std::int32_t>& start, const std::vector<std::int32_t>& deps,
               std::size_t rows) {
  if (start.size() != rows + 1 || start.front() != 0 ||
      start.back() != static_cast<std::int32_t>(deps.size()))
    return false;
  if (!std::is_sorted(start.begin(), start.end())) return false;
  return std::all_of(deps.begin(), deps.end(),
                     [rows](std::int32_t dep) { return dep >= 0 && static_cast<std::size_t>(dep) < rows; });
}

}  // namespace

std::string StepTemplate::set_times(TimePs start, std::vector<TimePs> of_delay,
                                    std::vector<TimePs> of_delay_per_kib,
                                    std::vector<TimePs> of_work_per_kib) {
  const auto fits = [this](const std::vector<TimePs>& times) {
    return times.size() == action.size() &&
           std::all_of(times.begin(), times.end(), [](TimePs time) { return time >= 0; });
  };
  if (start < 0 || !fits(of_delay) || !fits(of_delay_per_kib) || !fits(of_work_per_kib))
    return "a template's times of GPUs are negative, or are not one for each step";
  start_delay = start;
  channels = channel.empty() ? 1 : 1 + *std::max_element(channel.begin(), channel.end());
  delay = std::move(of_delay);
  delay_per_kib = std::move(of_delay_per_kib);
  work_per_kib = std::move(of_work_per_kib);
  return "";
}

std::string StepTemplate::prepare() {
  const std::size_t count = action.size();
  if (peer.size() != count || block_base.size() != count || block.size() != count ||
      channel.size() != count || credit.size() != count)
    return "a template's columns differ in length";
  if (!valid_csr(dep_start, deps, count)) return "a template's dependencies point outside it";
  for (std::size_t step = 0; step < count; ++step) {
    if (peer[step] < 0 || peer[step] >= members) return "a template's peer is not a member";
    if (relative && (block[step] < 0 || block[step] >= members)) return "a template's block is out of range";
    for (std::int32_t at = dep_start[step]; at < dep_start[step + 1]; ++at) {
      if (deps[static_cast<std::size_t>(at)] >= static_cast<std::int32_t>(step))
        return "a template's step depends on a later one";
    }
    const std::int32_t low = block_base[step] + (relative ? 0 : block[step]);
    const std::int32_t high = relative ? low + members - 1 : low;
    lowest_block = step == 0 ? low : std::min(lowest_block, low);
    highest_block = step == 0 ? high : std::max(highest_block, high);
  }
  reverse(dep_start, deps, successor_start, successors);
  transfer.resize(count);
  next_receive.assign(count, -1);
  first_receives.clear();
  std::map<std::pair<std::int32_t, std::uint8_t>, std::size_t> last;
  std::map<std::int32_t, std::int32_t> seen[2];
  last_free = last_free_lead = -1;
  for (std::size_t step = 0; step < count; ++step) {
    if (dep_start[step] == dep_start[step + 1]) {
      last_free = static_cast<std::int32_t>(step);
      if (successor_start[step] < successor_start[step + 1]) last_free_lead = last_free;
    }
    const bool sends = is_send(step);
    const auto [known, added] =
        seen[sends].try_emplace(peer[step], static_cast<std::int32_t>(seen[sends].size()));
    if (added) (sends ? send_peers : receive_peers).push_back(peer[step]);
    transfer[step] = known->second;
    if (sends) continue;
    const auto [previous, first] = last.try_emplace({peer[step], channel[step]}, step);
    if (first) {
      first_receives.push_back(static_cast<std::int32_t>(step));
    } else {
      next_receive[previous->second] = static_cast<std::int32_t>(step);
      previous->second = step;
    }
  }
  return "";
}

std::string NodeTable::prepare() {
  const std::size_t count = kind.size();
  for (std::size_t size :
       {slot.size(), duration_ps.size(), release_ps.size(), size_bytes.size(), tag.size(), binding.size()}) {
    if (size != count) return "a plan's columns differ in length";
  }
  if (!valid_csr(dep_start, deps, count)) return "a plan's dependencies point outside it";
  std::int32_t highest_slot = -1, highest_binding = -1;
  for (std::size_t row = 0; row < count; ++row) {
    highest_slot = std::max(highest_slot, slot[row]);
    highest_binding = std::max(highest_binding, binding[row]);
    if (duration_ps[row] < 0) return "a node has a negative duration";
    const auto own = static_cast<NodeKind>(kind[row]);
    const bool is_bound = own == NodeKind::kSend || own == NodeKind::kRecv || own == NodeKind::kColl;
    if (is_bound != (binding[row] >= 0))
      return "a message or a collective has no binding, or another node has";
  }
  slots = highest_slot + 1;
  of_collective.assign(static_cast<std::size_t>(highest_binding + 1), false);
  std::vector<bool> of_message = of_collective;
  for (std::size_t row = 0; row < count; ++row) {
    if (binding[row] < 0) continue;
    const bool collective = kind[row] == static_cast<std::uint8_t>(NodeKind::kColl);
    (collective ? of_collective : of_message)[static_cast<std::size_t>(binding[row])] = true;
  }
  for (std::size_t at = 0; at < of_message.size(); ++at) {
    if (of_message[at] && of_collective[at]) return "a message and a collective share a binding";
  }
  reverse(dep_start, deps, successor_start, successors);
  return "";
}

std::string RankPlan::check(const SharedPlan& shared) const {
  if (bindings.size() != table->of_collective.size()) return "a rank has too few bindings, or too many";
  for (std::size_t at = 0; at < bindings.size(); ++at) {
    const Binding& own = bindings[at];
    if (!table->of_collective[at] || own.template_id < 0) continue;
    if (static_cast<std::size_t>(own.template_id) >= shared.templates.size()) return "no such template";
    const StepTemplate& steps = shared.templates[static_cast<std::size_t>(own.template_id)];
    const auto in_group = static_cast<std::size_t>(own.group);
    if (own.group < 0 || in_group + 1 >= shared.group_start.size()) return "no such group";
    const std::int64_t members = shared.group_start[in_group + 1] - shared.group_start[in_group];
    if (members != steps.members || own.position < 0 || own.position >= members)
      return "a collective's template does not fit its group";
    if (own.sizes_start + steps.lowest_block < 0 ||
        own.sizes_start + steps.highest_block >= static_cast<std::int64_t>(shared.block_sizes.size()))
      return "no such block size";
  }
  return "";
}

std::vector<std::int32_t> peers_of(const SharedPlan& shared, const RankPlan& plan) {
  std::vector<std::int32_t> peers;
  FlatMap<bool> seen;  // (template, group) at this rank's only position there
  for (std::size_t at = 0; at < plan.bindings.size(); ++at) {
    const Binding& own = plan.bindings[at];
    if (!plan.table->of_collective[at]) peers.push_back(own.peer);
    if (!plan.table->of_collective[at] || own.template_id < 0) continue;
    bool& known =
        seen[pair_key(static_cast<std::uint32_t>(own.template_id), static_cast<std::uint32_t>(own.group))];
    if (known) continue;
    known = true;
    const StepTemplate& steps = shared.templates[static_cast<std::size_t>(own.template_id)];
    for (const std::int32_t peer : steps.send_peers) peers.push_back(shared.peer_rank(own, peer));
    for (const std::int32_t peer : steps.receive_peers) peers.push_back(shared.peer_rank(own, peer));
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace genie
