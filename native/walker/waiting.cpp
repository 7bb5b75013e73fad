// Descriptions of the operations for which a walker waits.
#include <algorithm>
#include <string>
#include <utility>

#include "walker/parts.hpp"
#include "walker/walker.hpp"

namespace genie {

using namespace walker_parts;

// Missing steps of a collective in progress: those with the first peer that has any, receives before sends.
std::string Walker::missing_steps(std::int32_t node) const {
  if (whole_) return "collective that not all of its group have begun";
  if (states_[index(node)].place < 0) return "collective that is played apart";
  const Instance& instance = instances_[index(states_[index(node)].place)];
  const StepTemplate& steps = steps_of(node);
  std::vector<std::int64_t> receives(steps.receive_peers.size(), 0), sends(steps.send_peers.size(), 0);
  for (std::int32_t step = 0; step < steps.steps(); ++step) {
    if (block_size(node, step) == 0 && !steps.empty_messages) continue;
    const bool send = steps.is_send(index(step));
    ++(send ? sends : receives)[index(steps.transfer[index(step)])];
  }
  std::string text = "collective with " + std::to_string(instance.remaining_steps) + " steps left";
  for (std::size_t at = 0; at < receives.size(); ++at) {
    const ReceiveRecord& record = receives_[instance.first_receive + at];
    if (record.messages < receives[at])
      return text + ", " + std::to_string(record.messages) + " of " + std::to_string(receives[at]) +
             " messages received from rank " + std::to_string(record.peer);
  }
  for (std::size_t at = 0; at < sends.size(); ++at) {
    const SendRecord& record = sends_[instance.first_send + at];
    const std::int64_t acknowledged = record.messages - record.outstanding;
    if (acknowledged < sends[at])
      return text + ", " + std::to_string(acknowledged) + " of " + std::to_string(sends[at]) +
             " messages acknowledged by rank " + std::to_string(record.peer);
  }
  return text;
}

std::vector<std::string> Walker::waiting(std::size_t limit) const {
  std::vector<std::string> lines;
  std::int32_t not_ready = -1;
  for (std::int32_t node = 0; node < table_->nodes() && lines.size() < limit; ++node) {
    const std::size_t row = index(node);
    if (states_[row].waits_for >= 0 && not_ready < 0) not_ready = node;
    if (states_[row].waits_for != kStarted) continue;
    std::string line = "rank " + std::to_string(plan_->rank) + ", node row " + std::to_string(node) + ": ";
    switch (static_cast<NodeKind>(table_->kind[row])) {
      case NodeKind::kRecv:
        line += "receive of " + std::to_string(table_->size_bytes[row]) + " bytes from rank " +
                std::to_string(plan_->bound(node).peer) + ", tag " + std::to_string(plan_->tag(node));
        break;
      case NodeKind::kSend:
        line += "send of " + std::to_string(table_->size_bytes[row]) + " bytes to rank " +
                std::to_string(plan_->bound(node).peer) + ", tag " + std::to_string(plan_->tag(node));
        break;
      case NodeKind::kColl:
        line += missing_steps(node);
        break;
      default:
        line += "sleep";
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty() && not_ready >= 0 && limit > 0)
    lines.push_back("rank " + std::to_string(plan_->rank) + ", node row " + std::to_string(not_ready) +
                    ": not started: what it depends on or its release time has not come");
  return lines;
}

bool all_done(const std::vector<Walker>& walkers) {
  return std::all_of(walkers.begin(), walkers.end(), [](const Walker& walker) { return walker.done(); });
}

std::vector<std::string> problems_of(const std::vector<Walker>& walkers) {
  constexpr std::size_t kLines = 8, kEach = 2;
  std::vector<std::string> lines;
  for (const Walker& walker : walkers) {
    if (!walker.error().empty()) lines.push_back(walker.error());
  }
  if (!lines.empty()) return lines;
  for (const Walker& walker : walkers) {
    if (walker.done() || lines.size() >= kLines) continue;
    for (std::string& line : walker.waiting(kEach)) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace genie
