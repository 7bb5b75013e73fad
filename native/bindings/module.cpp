// The Python module genie_core. Each register_* function lives in a file named after its room.
#include "bindings/bindings.hpp"

NB_MODULE(native, m) {
  m.doc() = "Genie's native core: walker, RoCE, soft NIC and the twin's kernel.";
  nb::set_leak_warnings(false);
  genie::bindings::register_congestion_config(m);
  genie::bindings::register_roce_config(m);
  genie::bindings::register_roce_wire(m);
  genie::bindings::register_roce_endpoint(m);
  genie::bindings::register_plan(m);
  genie::bindings::register_shortest_paths(m);
  genie::bindings::register_network(m);
  genie::bindings::register_twin(m);
  genie::bindings::register_twin_levels(m);
  genie::bindings::register_soft_nic(m);
  genie::bindings::register_live(m);
  m.attr("build_flags") = GENIE_BUILD_FLAGS;
}
