#include "twin/host/hosts.hpp"

#include <algorithm>
#include <utility>

#include "twin/host/queue_pair_sink.hpp"
#include "twin/host/wire_packets.hpp"

namespace genie::twin {

Hosts::Hosts(const Network& network, const roce::QueuePairConfig& config, RankDriver ranks,
             QueuePairs queue_pairs, Links& links, Schedule& schedule)
    : network_(&network),
      links_(links),
      schedule_(schedule),
      ranks_(std::move(ranks)),
      queue_pairs_(std::move(queue_pairs)),
      nics_(links.links()),
      nic_source_(links.sources()),
      rank_source_(nic_source_ + links.links()),  // a NIC's event has the number of its link
      timer_source_(rank_source_ + ranks_.ranks()),
      sends_ect_(congestion::needs_marks(config.congestion.control) || config.recycle_ports),
      asks_telemetry_(congestion::needs_telemetry(config.congestion.control)) {
  ranks_.attach(schedule, rank_source_);
}

void Hosts::connect() {
  queue_pairs_.connect(ranks_, nics_, links_);
  std::vector<std::int32_t> host_of_queue_pair;
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    host_of_queue_pair.push_back(ranks_.host_of(queue_pairs_[id].rank));
  links_.set_targets(std::move(host_of_queue_pair));
  if (!network_->nic.delays_messages()) return;
  message_queues_.resize(queue_pairs_.size());
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    message_queues_.set_delays(id, network_->nic.is_port(nics_[queue_pairs_[id].nic].link()));
}

Hosts::State Hosts::state() const {
  State state{.ranks = ranks_, .queue_pairs = {}, .nics = nics_, .nic_times = {}, .timer_times = {}};
  keep_queue_pairs(state);
  return state;
}

void Hosts::keep(State& state) const {
  state.ranks = ranks_;
  state.nics = Nics(nics_);  // a port is moved, not assigned
  keep_queue_pairs(state);
}

void Hosts::keep_queue_pairs(State& state) const {
  queue_pairs_.keep(state.queue_pairs);
  state.nic_times.clear();
  state.timer_times.clear();
  for (std::uint32_t nic = 0; nic < nics_.size(); ++nic)
    state.nic_times.push_back(schedule_.time_of(nic_source_ + nics_[nic].link()));
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    state.timer_times.push_back(schedule_.time_of(timer_source_ + id));
}

std::size_t Hosts::State::memory_bytes() const {
  constexpr std::size_t kRequests = 4 * sizeof(roce::SendQueue::Entry), kEvents = 256;
  std::size_t bytes = queue_pairs.queue_pairs.size() * (sizeof(HostQueuePair) + kRequests + sizeof(TimePs)) +
                      nics.size() * (sizeof(Nic) + sizeof(TimePs));
  for (const Walker& walker : ranks.walkers()) bytes += walker.memory_bytes() + kEvents;
  return bytes;
}

void Hosts::take_over(const State& earlier, const Renumbering& to) {
  const std::vector<std::uint8_t> latest = queue_pairs_.latest_of(earlier.queue_pairs, to);
  std::vector<std::uint8_t> is_latest(earlier.nics.size(), 0), is_taken(nics_.size(), 0);
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    is_taken[queue_pairs_[id].nic] |= queue_pairs_.is_used(id);
  for (std::uint32_t id = 0; id < latest.size(); ++id) {
    const HostQueuePair& own = earlier.queue_pairs.queue_pairs[id];
    if (!earlier.queue_pairs.is_used(id)) continue;
    const std::uint32_t nic = nics_.find(to.links[earlier.nics[own.nic].link()]);
    is_latest[own.nic] |= to.is_latest(own.rank) || is_taken[nic] == 0;
  }
  ranks_.take_over(earlier.ranks, to);
  queue_pairs_.take_over(earlier.queue_pairs, to, latest);
  for (std::uint32_t nic = 0; nic < earlier.nics.size(); ++nic) {
    if (is_latest[nic] == 0) continue;
    const std::uint32_t link = to.links[earlier.nics[nic].link()];
    nics_[nics_.find(link)].take_over(earlier.nics[nic], [&](std::uint32_t id) {
      const std::uint32_t own = to.queue_pairs[id];
      return own == Renumbering::kNone ? roce::NicPort::kNone : queue_pairs_[own].on_port;
    });
    schedule_.set(nic_source_ + link, earlier.nic_times[nic]);
  }
  for (std::uint32_t id = 0; id < earlier.timer_times.size(); ++id) {
    if (latest[id] != 0) schedule_.set(timer_source_ + to.queue_pairs[id], earlier.timer_times[id]);
  }
}

void Hosts::restore(const State& earlier) {
  ranks_ = earlier.ranks;
  ranks_.attach(schedule_, rank_source_);
  ranks_.see_none();
  ranks_.renew_events();
  queue_pairs_.restore(earlier.queue_pairs);
  nics_ = Nics(earlier.nics);  // a port is moved, not assigned
  for (std::uint32_t nic = 0; nic < nics_.size(); ++nic)
    schedule_.set(nic_source_ + nics_[nic].link(), earlier.nic_times[nic]);
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
    schedule_.set(timer_source_ + id, earlier.timer_times[id]);
}

bool Hosts::handle(Process& process, std::uint32_t source) {
  assert(source >= nic_source_ && source < sources());
  if (source < rank_source_) {
    wake(process, nics_.find(source - nic_source_));
  } else if (source < timer_source_) {
    return ranks_.handle(process, static_cast<std::int32_t>(source - rank_source_), *this);
  } else {
    const std::uint32_t id = source - timer_source_;
    Sink sink{*this, process, id};
    schedule_.set(source, kNever);
    return queue_pairs_[id].queue_pair.timer(process.now, sink);
  }
  return true;
}

// A rank's message, in parts where its connection has several queue pairs that share it.
void Hosts::post(Process& process, std::int32_t rank, const Operation& operation) {
  const std::uint32_t first = queue_pairs_.first(rank, operation.peer);
  if (any_guarded_ && guarded_[first] != 0) [[unlikely]]
    touched_.push_back(first);
  queue_pairs_.connection_of(queue_pairs_[first])
      .send(operation.handle, operation.tag, static_cast<std::uint64_t>(operation.size_bytes),
            [&](const roce::Connection::Part& part) {
              if (!part.is_credit) return send_by_nic(process, first + part.queue_pair, part.request());
              Sink sink{*this, process, first};
              queue_pairs_[first].queue_pair.post(part.request(), sink);
            });
}

// Through the NIC, which may take its time.
void Hosts::send_by_nic(Process& process, std::uint32_t id, const roce::SendRequest& request) {
  HostQueuePair& own = queue_pairs_[id];
  if (!message_queues_.delays(id)) {
    Sink sink{*this, process, id};
    return own.queue_pair.post(request, sink);
  }
  ranks_.send_at(own.rank, message_queues_.add(network_->nic, id, request, process.now), id);
}

void Hosts::send(Process& process, std::uint32_t id) {
  const roce::SendRequest request = message_queues_.take(id);
  Sink sink{*this, process, id};
  queue_pairs_[id].queue_pair.post(request, sink);
}

void Hosts::notify(Process& process, std::uint32_t id) {
  Sink sink{*this, process, id};
  roce::Packet packet;
  packet.opcode = roce::Opcode::kCnp;
  queue_pairs_[id].queue_pair.receive(packet, process.now, sink);
}

void Hosts::receive(Process& process, const Packet& on_wire) {
  assert(on_wire.connection < queue_pairs_.size());
  Sink sink{*this, process, on_wire.connection};
  HostQueuePair& own = queue_pairs_[on_wire.connection];
  if (on_wire.trimmed != 0 && roce::is_request(on_wire.opcode)) [[unlikely]] {
    links_.telemetry().give(on_wire.telemetry);
    return own.queue_pair.receive_trimmed(on_wire.psn, sink);
  }
  if (on_wire.opcode == roce::Opcode::kCnp && network_->notification_latency > 0) [[unlikely]]
    return ranks_.notify_at(own.rank, process.now + network_->notification_latency, on_wire.connection);
  TelemetryPool& pool = links_.telemetry();
  const congestion::Telemetry* told = nullptr;
  if (on_wire.telemetry != 0) [[unlikely]] {
    if (on_wire.opcode == roce::Opcode::kAcknowledge) {
      told = &pool.at(on_wire.telemetry);
    } else {
      pool.give(own.telemetry);
      own.telemetry = on_wire.telemetry;  // for the acknowledgement
    }
  }
  own.queue_pair.receive(packet_of(on_wire), process.now, sink, told);
  if (told != nullptr) [[unlikely]]
    pool.give(on_wire.telemetry);
}

void Hosts::reroute(Processes& processes, TimePs now) {
  queue_pairs_.reroute(ranks_, nics_, links_, [&](std::uint32_t id) {
    HostQueuePair& own = queue_pairs_[id];
    Process& process = processes.of(ranks_.host_of(own.rank), now);
    Sink{*this, process, id}.ready(own.queue_pair);
  });
}

void Hosts::add_dead_links(std::uint32_t queue_pair, std::vector<std::uint32_t>& dead) const {
  const auto is_known = [&](std::uint32_t link) {
    return std::find(dead.begin(), dead.end(), link) != dead.end();
  };
  for (const std::uint32_t route : queue_pairs_.routes_of(queue_pair)) {
    for (const std::uint32_t link : links_.path_from(route)) {
      if (links_.is_down(link) && !is_known(link) && !is_known(link ^ 1)) dead.push_back(link);
    }
  }
}

}  // namespace genie::twin
