// Shared by the binding files.
#pragma once
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace genie::bindings {

void register_plan(nb::module_& m);
void register_congestion_config(nb::module_& m);
void register_roce_config(nb::module_& m);
void register_roce_wire(nb::module_& m);
void register_roce_endpoint(nb::module_& m);
void register_shortest_paths(nb::module_& m);
void register_network(nb::module_& m);
void register_twin(nb::module_& m);
void register_twin_levels(nb::module_& m);
void register_soft_nic(nb::module_& m);
void register_live(nb::module_& m);
}  // namespace genie::bindings
