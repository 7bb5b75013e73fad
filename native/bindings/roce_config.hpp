// The queue pair's configuration and counters as Python sees them.
#pragma once
#include "bindings/bindings.hpp"
#include "roce/types.hpp"

namespace genie::bindings {

nb::dict counters_of(const roce::QueuePairCounters& counters);

}  // namespace genie::bindings
