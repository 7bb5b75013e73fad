// genie_core.QueuePairConfig.
#include "bindings/roce_config.hpp"

#include <nanobind/stl/string.h>

namespace genie::bindings {

const char* status_name(roce::Status status) {
  switch (status) {
    case roce::Status::kOk:
      return "ok";
    case roce::Status::kRetryExceeded:
      return "retry exceeded";
    case roce::Status::kRnrRetryExceeded:
      return "RNR retry exceeded";
    case roce::Status::kInvalidRequest:
      return "invalid request";
    case roce::Status::kRemoteAccess:
      return "remote access";
    case roce::Status::kRemoteOperation:
      return "remote operation";
    case roce::Status::kBadResponse:
      return "bad response";
    case roce::Status::kTooLong:
      return "too long";
    default:
      return "flushed";
  }
}

roce::Verb verb_named(const std::string& name) {
  if (name == "send") return roce::Verb::kSend;
  if (name == "send_imm") return roce::Verb::kSendImm;
  if (name == "write") return roce::Verb::kWrite;
  if (name == "write_imm") return roce::Verb::kWriteImm;
  if (name == "read") return roce::Verb::kRead;
  throw nb::value_error("verb must be 'send', 'send_imm', 'write', 'write_imm' or 'read'");
}

nb::dict counters_of(const roce::QueuePairCounters& counters) {
  nb::dict out;
  out["data_sent"] = counters.data_sent;
  out["data_received"] = counters.data_received;
  out["acks_sent"] = counters.acks_sent;
  out["acks_received"] = counters.acks_received;
  out["retransmitted"] = counters.retransmitted;
  out["duplicates"] = counters.duplicates;
  out["out_of_sequence"] = counters.out_of_sequence;
  out["naks_sent"] = counters.naks_sent;
  out["naks_received"] = counters.naks_received;
  out["rnr_naks_sent"] = counters.rnr_naks_sent;
  out["rnr_naks_received"] = counters.rnr_naks_received;
  out["timeouts"] = counters.timeouts;
  out["refused"] = counters.refused;
  out["responses_sent"] = counters.responses_sent;
  out["responses_received"] = counters.responses_received;
  out["congestion_marks"] = counters.congestion_marks;
  out["cnps_sent"] = counters.cnps_sent;
  out["cnps_received"] = counters.cnps_received;
  out["reads_dropped"] = counters.reads_dropped;
  out["forged_requests"] = counters.forged_requests;
  out["forged_acks"] = counters.forged_acks;
  out["forged_naks"] = counters.forged_naks;
  out["forged_cnps"] = counters.forged_cnps;
  return out;
}

void register_roce_config(nb::module_& m) {
  using roce::QueuePairConfig;
  nb::class_<QueuePairConfig>(m, "QueuePairConfig",
                              "What both ends of a reliable connection agree on; times in ps.")
      .def(nb::init<>())
      .def_rw("mtu_bytes", &QueuePairConfig::mtu_bytes)
      .def_rw("window_packets", &QueuePairConfig::window_packets)
      .def_rw("ack_every_packets", &QueuePairConfig::ack_every_packets)
      .def_rw("ack_timeout_ps", &QueuePairConfig::ack_timeout)
      .def_rw("retry_limit", &QueuePairConfig::retry_limit)
      .def_rw("rnr_retry_limit", &QueuePairConfig::rnr_retry_limit)
      .def_rw("rnr_timer", &QueuePairConfig::rnr_timer)
      .def_rw("rnr_unit_ps", &QueuePairConfig::rnr_unit)
      .def_rw("reads_max", &QueuePairConfig::reads_max)
      .def_rw("peer_window_packets", &QueuePairConfig::peer_window_packets,
              "Requests farther ahead are not the peer's; 0: not known.")
      .def_rw("reordering_packets", &QueuePairConfig::reordering_packets)
      .def_rw("selective_repeat", &QueuePairConfig::selective_repeat)
      .def_rw("spray", &QueuePairConfig::spray, "UDP source ports that packets take in turn.")
      .def_rw("recycle_ports", &QueuePairConfig::recycle_ports, "Whether senders choose among them by REPS.")
      .def_rw("congestion", &QueuePairConfig::congestion);
}

}  // namespace genie::bindings
