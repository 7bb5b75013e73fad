// A simulation at an instant to which all have come, for others that go on from it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/time.hpp"
#include "twin/host/hosts.hpp"
#include "twin/host/process.hpp"
#include "twin/network/links.hpp"

namespace genie::twin {

struct Checkpoint {
  TimePs now = 0;
  Hosts::State hosts;
  Links::State links;
  std::vector<Process> processes;  // by node
  std::uint64_t data_packets = 0;
  std::uint64_t events = 0;

  std::size_t memory_bytes() const;  // about
};

}  // namespace genie::twin
