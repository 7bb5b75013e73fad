// Common parts of the bindings of the soft NIC and of the engine on it.
#pragma once
#include <string>

#include "bindings/bindings.hpp"
#include "live/soft_nic.hpp"

namespace genie::bindings {

// Throws when it is none.
live::IpAddress address_of(const std::string& text);
// Counters of the NIC and of all its queue pairs.
nb::dict nic_counters_of(const live::SoftNic& nic);
// Where refused packets came from: (counter, address, UDP port of the first, packets).
nb::list refused_senders_of(const live::SoftNic& nic);

}  // namespace genie::bindings
