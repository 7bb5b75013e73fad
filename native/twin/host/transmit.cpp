// Transmission by the NIC ports of hosts.
#include <algorithm>

#include "twin/host/queue_pair_sink.hpp"
#include "twin/host/wire_packets.hpp"

namespace genie::twin {

// A NIC port has something to send, or may send again.
void Hosts::wake(Process& process, std::uint32_t number) {
  Nic& nic = nics_[number];
  if (nic.finish_packet(process.now)) {
    transmit(process, number);
  } else {
    expect(process, nic);
  }
}

// Sends the next packet of a NIC port that is free.
void Hosts::transmit(Process& process, std::uint32_t number) {
  Nic& nic = nics_[number];
  const Nic::Allowed may_send = allowed(nic);
  roce::NicPort::Pick pick;
  while (!nic.is_sending() && nic.port.pick(process.now, pick, may_send.control, may_send.data)) {
    const std::uint32_t id = nic.queue_pair(pick.id);
    if (id == Nic::kMoved) continue;
    HostQueuePair& own = queue_pairs_[id];
    Sink sink{*this, process, id};
    roce::Packet packet;
    const bool taken = pick.control ? own.queue_pair.take_control(packet, sink)
                                    : own.queue_pair.take_data(process.now, packet, sink);
    if (own.queue_pair.has_control()) nic.port.mark_control(pick.id, process.now);
    if (!taken) continue;
    Packet on_wire = address(own, nic, packet, pick.control);
    const std::uint32_t wire_bytes = links_.wire_bytes_of(on_wire);
    TimePs serialisation = links_.occupancy(nic.link(), wire_bytes, process.now);
    if (nic.is_limited()) [[unlikely]]
      serialisation = std::max(serialisation, network_->nic.occupancy(on_wire.payload_bytes));
    TimePs departure = nic.port.depart(process.now, serialisation);
    const TimePs begin = links_.has_bucket(nic.link()) ? departure : departure - serialisation;
    bool lost = false;
    if (!pick.control) {
      on_wire.paced = begin > nic.busy_until() && begin == own.queue_pair.data_from();
      own.queue_pair.departed(wire_bytes, begin);
      if (id == watched_) [[unlikely]]
        departures_.push_back(begin);
      if (own.queue_pair.has_data()) nic.port.mark_more(pick.id, false, own.queue_pair.data_from());
      ++process.data_packets;
      lost = own.loss != nullptr && own.loss->lose_next();
      if (lost && nic.retries() && !links_.is_down(nic.link())) {
        lost = false;
        links_.corrupt_next(nic.link());
      }
    }
    if (keep_trace_) process.trace.push_back({departure, own.rank, own.peer_rank, packet, lost});
    if (!lost) links_.launch(nic.link(), on_wire, wire_bytes, begin);
    if (lost) links_.telemetry().give(on_wire.telemetry);
    if (nic.retries()) [[unlikely]]
      departure = nic.port.keep(links_.busy_until(nic.link()));
    nic.send_until(departure, process.now);
  }
  if (const std::uint32_t* next = nic.port.next_data();
      next != nullptr && nic.queue_pair(*next) != Nic::kMoved)
    queue_pairs_[nic.queue_pair(*next)].fetch();
  expect(process, nic);
}

// A packet with its path, its class and what it asks of the network.
Packet Hosts::address(HostQueuePair& own, const Nic& nic, const roce::Packet& packet, bool is_control) {
  Packet on_wire = on_wire_of(packet);
  on_wire.connection = own.peer;
  on_wire.route = queue_pairs_.route(own, packet.port);
  on_wire.priority = (is_control ? network_->control_class : network_->data_class) & 7u;
  on_wire.ect = !is_control && sends_ect_;
  if (!is_control && own.is_free) on_wire.route = Packet::kFree | nic.link();
  if (asks_telemetry_) on_wire.telemetry = is_control ? own.telemetry : links_.telemetry().take();
  if (is_control) own.telemetry = 0;
  return on_wire;
}

void Hosts::expect(const Process& process, Nic& nic) {
  TimePs at = kNever;
  if (nic.expect(process.now, allowed(nic), at)) schedule_.set(nic_source_ + nic.link(), at);
}

}  // namespace genie::twin
