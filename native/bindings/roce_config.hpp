// The queue pair's configuration and counters as Python sees them.
#pragma once
#include <string>

#include "bindings/bindings.hpp"
#include "roce/types.hpp"

namespace genie::bindings {

const char* status_name(roce::Status status);
// Throws when there is none of this name.
roce::Verb verb_named(const std::string& name);
nb::dict counters_of(const roce::QueuePairCounters& counters);

}  // namespace genie::bindings
