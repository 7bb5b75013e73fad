// Logical processes as hosts and the run loop see them: what each has come to; see kernel/schedule.hpp.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "core/time.hpp"
#include "roce/types.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

struct PacketTrace {
  TimePs time;                  // departure: end of serialisation at the sender's NIC
  std::int32_t source, target;  // ranks
  roce::Packet packet;
  bool lost;
};

// Written by the thread that plays the process.
struct Process {
  TimePs now = 0;
  std::uint32_t source = 0;  // of the event at hand
  TimePs played_at = -1;     // when a part of an episode that was played apart was over last
  std::uint64_t data_packets = 0;
  std::vector<std::int32_t> to_walk;  // ranks with completions for their walkers
  std::vector<Operation> operations;  // of the walker at hand
  std::vector<PacketTrace> trace;
  std::vector<std::string> errors;
  std::vector<std::uint32_t> given_up;  // queue pairs
};

class Processes {
 public:
  void divide(std::vector<std::uint32_t> process_of_node, std::uint32_t count) {
    process_of_node_ = std::move(process_of_node);
    processes_.resize(count);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(processes_.size()); }
  Process& operator[](std::uint32_t number) { return processes_[number]; }
  const Process& operator[](std::uint32_t number) const { return processes_[number]; }
  const std::vector<std::uint32_t>& of_nodes() const { return process_of_node_; }
  std::uint32_t number_of(std::int32_t node) const { return process_of_node_[index(node)]; }
  Process& of(std::int32_t node) { return processes_[number_of(node)]; }
  // The process of a node comes to a change of the network at `now`.
  Process& of(std::int32_t node, TimePs now) {
    Process& process = of(node);
    process.now = std::max(process.now, now);
    return process;
  }
  auto begin() const { return processes_.begin(); }
  auto end() const { return processes_.end(); }

 private:
  std::vector<Process> processes_;
  std::vector<std::uint32_t> process_of_node_;
};

}  // namespace genie::twin
