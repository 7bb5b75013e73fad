// All links of the network with their queues: what a packet meets between two hosts.
//
// A directed link is the output port of its source. Packets of a class (data, control, pause frames) lie in
// one ring. First come those on the wire, by arrival, then those that wait. A start moves the line between
// the two. A packet that finds its port free starts at once. When a waiting packet starts, nothing else
// happens than that it leaves the switch's buffer. Starts are therefore worked out late, in order, whenever
// an arrival or a pause looks at the port. They are worked out at the latest at the end of a window, and cost
// no event of their own. Arrivals at an instant come before starts.
//
// Two kinds of ports have events for starts. One is links inside a process, whose packets may arrive in the
// same window. The other is ports of a switch that pauses a sender. Thresholds of a shared buffer first use
// upper bounds (what has left but has not been worked out still counts). When these reach a threshold, all
// ports of the switch are worked out.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "twin/fabric/network.hpp"
#include "twin/kernel/huge_pages.hpp"
#include "twin/kernel/renumbering.hpp"
#include "twin/kernel/schedule.hpp"
#include "twin/kernel/scope.hpp"
#include "twin/network/arbitration.hpp"
#include "twin/network/frame_sizes.hpp"
#include "twin/network/link_counters.hpp"
#include "twin/network/load_balancer.hpp"
#include "twin/network/mailboxes.hpp"
#include "twin/network/packet_bases.hpp"
#include "twin/network/path_table.hpp"
#include "twin/network/shared_buffers.hpp"
#include "twin/port/class_order.hpp"
#include "twin/port/ecn_marker.hpp"
#include "twin/port/error_models.hpp"
#include "twin/port/packet.hpp"
#include "twin/port/pause_frame.hpp"
#include "twin/port/port.hpp"
#include "twin/port/ring_arena.hpp"
#include "twin/port/telemetry.hpp"
#include "twin/port/token_bucket.hpp"

namespace genie::twin {

inline constexpr std::uint32_t kHeaderBytes = 64;  // after which a switch that cuts through knows the way

class Links {
 public:
  Links(const Network& network, Schedule& schedule, std::uint64_t seed);

  // Events that are theirs: a link's arrivals are source `link`, starts at its port source links() + `link`.
  std::uint32_t links() const { return count_; }
  std::uint32_t sources() const { return 2 * count_; }
  std::int32_t source_of(std::uint32_t link) const { return ports_[link].node; }
  std::int32_t target_of(std::uint32_t link) const { return targets_[link]; }
  // Least time from a packet's start on a link to its arrival.
  TimePs lookahead(std::uint32_t link) const;
  // The schedule has its plan now; by node: its process.
  void attach(const std::vector<std::uint32_t>& process_of_node);
  bool is_switch(std::uint32_t process) const { return inputs_.is_switch(process); }

  // Routes of paths, by which packets find their way; see PathTable.
  std::uint32_t add_path(const std::vector<std::uint32_t>& path) { return paths_.add(path); }
  std::uint32_t link_at(std::uint32_t route) const { return paths_[route]; }
  // The links from a route to the host that its packets end at.
  std::vector<std::uint32_t> path_from(std::uint32_t route) const;
  bool is_path(std::uint32_t route, const std::vector<std::uint32_t>& path) const {
    return paths_.is_at(route, path);
  }

  // A host's port begins to send at `now`. The packet's route is its place on `link`.
  void launch(std::uint32_t link, const Packet& packet, std::uint32_t wire_bytes, TimePs now) {
    Port& port = ports_[link];
    assert(port.node < network_->hosts);
    if (port.is(Port::kDown)) [[unlikely]]
      return drop(link, packet, wire_bytes);
    start(port, link, packet, wire_bytes, now);
  }
  // Time for which a host's port that is free at `now` is busy with a packet. Behind a token bucket it waits
  // for as many tokens as the packet needs, which then leaves at once.
  TimePs occupancy(std::uint32_t link, std::uint32_t wire_bytes, TimePs now) const {
    const Port& port = ports_[link];
    const TimePs time = serialisation(port, wire_bytes);
    return port.is(Port::kBucket) ? buckets_[link].start(now, time) - now : time;
  }
  bool has_bucket(std::uint32_t link) const { return ports_[link].is(Port::kBucket); }
  // Link-level retry; see ErrorModels.
  bool retries(std::uint32_t link) const { return ports_[link].is(Port::kErrors) && errors_.retries(link); }
  void corrupt_next(std::uint32_t link) { errors_.corrupt_next(link); }
  TimePs busy_until(std::uint32_t link) const { return errors_.busy_until(link); }
  std::uint32_t wire_bytes_of(const Packet& packet) const { return sizes_.of(packet); }
  std::uint32_t paused(std::uint32_t link) const { return ports_[link].paused; }  // bit of each class

  // By connection: the host at which its packets arrive. For switches that pick a way for each packet.
  // fn(link) holds for each link of the path from a route on.
  template <class Function>
  bool all_on_path(std::uint32_t route, Function fn) const {
    while (fn(paths_[route])) {
      if (targets_[paths_[route++]] < network_->hosts) return true;
    }
    return false;
  }
  void set_targets(std::vector<std::int32_t> host_of_connection) {
    host_of_connection_ = std::move(host_of_connection);
  }

  // An arrival, which is event `at` of its process's tree. For hosts, the sink has these functions.
  //   void received(packet)   A packet has come.
  //   void coming(packet)     The next packet will be this one.
  //   void resumed(link)      A port that was paused may send again.
  template <class Sink>
  [[gnu::always_inline]] inline void arrive(std::uint32_t number, TimePs now, TournamentTree& tree,
                                            std::uint32_t at, Sink& sink) {
    Port& port = ports_[inbound_[number]];
    Packet packet = port.take_first();
    if (port.flying == 0) {
      tree.set(at, kNever);
    } else {
      const Packet& next = port.first_on_wire().at(0);
      tree.set(at, next.arrival);
      if (port.to_host) sink.coming(next);
    }
    if (is_pause_frame(packet)) {
      if (paused_by(packet, number, now) && port.to_host) sink.resumed(number ^ 1);
    } else if (port.to_host) {
      sink.received(packet);
    } else {
      const std::uint32_t next = packet.is_free() ? choose(packet, number, now) : paths_[++packet.route];
      if (next == kNowhere) return lose(number, packet);
      forward(packet, number, next, now);
    }
  }
  // A port whose starts have events may start its next packet.
  void starts(std::uint32_t number, TimePs now);
  // A switch that is a process of its own plays until `end`; the number of events. Its arrivals have no
  // tree: all of a window are on their wires when it begins.
  std::uint64_t play_switch(std::uint32_t process, TimePs end);
  // Packets that came from other threads in the last window are on their wires now.
  void take_mail(std::uint32_t thread);
  // A process has done all events before `end`: packets that start before it are put on their wires. When the
  // next one starts; kNever: none waits, or it has an event.
  TimePs finish(std::uint32_t process, TimePs end);

  // Changes of the network at `now`, between windows or at a point of time to which all have come.
  void apply(const Change& change, TimePs now);
  bool is_down(std::uint32_t link) const { return ports_[link].is(Port::kDown); }
  const Routes& routes() const { return *routes_; }

  LinkCounters totals(std::uint32_t link) const;
  // The same at `now`, to which all have come. Of what is being sent, only what has been sent by then counts.
  // Pauses that go on count. The longest queue is the one since the counters were last asked for.
  LinkCounters look(std::uint32_t link, TimePs now);
  std::int64_t rate_bps(std::uint32_t link) const { return ports_[link].rate_bps; }
  TimePs delay_ps(std::uint32_t link) const { return ports_[link].delay; }
  // Links whose ports wait for each other in a circle: each is paused, by a switch in which what it sent
  // waits for the next. Empty when there is none.
  std::vector<std::uint32_t> deadlock() const;
  TelemetryPool& telemetry() { return telemetry_; }
  void fold_telemetry(Fold& fold, std::uint32_t place);
  // All switches, and the ports of a scope.
  void fold(Fold& fold, const PacketBases& bases, const Scope& scope);
  // All that a scope has for itself.
  void fold_own(Fold& fold, const PacketBases& bases, const Scope& scope);

  // Links at an instant, with the times of arrivals at hosts. Slots of their ports' rings mean nothing.
  struct State {
    std::vector<std::int32_t> targets;  // by link: node
    std::vector<Port> ports;
    std::vector<Packet> packets;  // of one port after the other, class by class
    std::vector<std::uint64_t> skipped_bytes;
    std::vector<TimePs> arrivals;
    SharedBuffers buffers;
    SwitchInputs inputs;

    bool is_used(std::uint32_t link) const;  // packets have come to it
    // The time of a link's latest service, which is kept; kLongAgo: its target is a host.
    TimePs served_at(std::uint32_t link) const;
    std::size_t memory_bytes() const {  // about
      return ports.size() * (sizeof(Port) + 2 * sizeof(TimePs)) + packets.size() * sizeof(Packet) +
             ports.size() * kClasses * 32;  // shared buffers
    }
  };
  State state() const;
  // The same in the memory of an earlier one.
  void keep(State& state) const;
  // Before the first event, with kept services: goes on from the state of others. Of two states that have
  // used a link the packets of one have left it. `is_alone`: it is the only one.
  // renumbered(packet): with the numbers that it has here, but for the link that it has come by.
  void take_over(const State& earlier, const Renumbering& to, bool is_alone,
                 const std::function<Packet(const Packet&)>& renumbered);

  // The same, of one on the same network. Room may be reserved in it.
  void restore(const State& earlier);

  // Of the state of others, the services of used links that are here too.
  void take_over_services(const State& earlier, const Renumbering& to, bool is_alone);

  // Packets that were played apart have passed a link: how many, and their longest queue.
  void add_played(std::uint32_t link, const LinkCounters& counters);
  // The inputs of switches that are processes of their own.
  SwitchInputs& inputs() { return inputs_; }
  const SwitchInputs& inputs() const { return inputs_; }
  // Turns have mattered where the order of a switch's inputs is not known.
  bool has_doubtful_turn() const;
  // The seed has put packets that came together in order; it has drawn on a link whether to mark.
  bool has_drawn_turn() const;
  bool has_drawn_mark(std::uint32_t link) const { return marker_.has_drawn(link); }
  SharedBuffers& buffers() { return buffers_; }
  // Nothing is on its way over a link or waits for it; when it is free.
  bool is_empty(std::uint32_t link) const {
    const Port& port = ports_[link];
    return port.flying == 0 && port.waiting == 0 && port.paused == 0;
  }
  // Packets to one of two queue pairs are on their way over a link or wait for it.
  bool has_packets_of(std::uint32_t link, std::uint32_t one, std::uint32_t other) const;
  TimePs free_at(std::uint32_t link) const { return ports_[link].free; }

 private:
  static constexpr std::uint32_t kNowhere = kPauseFrame - 2;  // in place of a link: no way is left

  TimePs serialisation(const Port& port, std::uint32_t size_bytes) const {
    return port.ps_per_byte != 0 ? TimePs{port.ps_per_byte} * size_bytes
                                 : serialisation_ps(size_bytes, port.rate_bps, network_->serialisation_unit);
  }

  [[gnu::always_inline]] inline void start(Port& port, std::uint32_t number, const Packet& packet,
                                           std::uint32_t wire_bytes, TimePs at) {
    const TimePs arrival = occupy(port, packet, wire_bytes, at);
    if (port.is(Port::kAbroad | Port::kErrors)) return start_apart(port, number, packet, wire_bytes, arrival);
    put_on_wire(port, number, packet, arrival);
  }
  // A packet has started on a link to another thread, or on one that may have corrupted it.
  void start_apart(Port& port, std::uint32_t number, const Packet& packet, std::uint32_t wire_bytes,
                   TimePs arrival);
  // A packet's turn on the port; when it arrives, kNever: it is corrupted and lost.
  TimePs occupy(Port& port, const Packet& packet, std::uint32_t wire_bytes, TimePs at) {
    const TimePs time = serialisation(port, wire_bytes);
    port.free = at + time;
    ++port.packets;
    port.bytes += wire_bytes;
    if (port.is(Port::kCutThrough | Port::kBucket | Port::kErrors)) [[unlikely]]
      return other_arrival(port, packet, at, time);
    return port.free + port.delay;
  }
  TimePs other_arrival(Port& port, const Packet& packet, TimePs at, TimePs time);
  TimePs leave_bucket(Port& port, std::uint32_t number, TimePs at, TimePs time);
  TimePs header_arrival(const Port& port, TimePs at, TimePs time) const;
  bool send_beside_replay(Port& port, std::uint32_t number, const Packet& frame, std::uint32_t wire_bytes,
                          TimePs now);
  void lose_waiting(std::uint32_t number, PriorityQueue& queue, std::uint32_t wire_bytes);
  void put_before(Port& port, std::uint32_t number, const Packet& frame, TimePs arrival);
  void drop(std::uint32_t link, const Packet& packet, std::uint32_t wire_bytes) {
    counters_.drop(link, wire_bytes);
    telemetry_.give(packet.telemetry);
  }
  // At the end of a link, from which no way leads on.
  void lose(std::uint32_t ingress, const Packet& packet) {
    counters_.lose_at_end(ingress, wire_bytes_of(packet));
    telemetry_.give(packet.telemetry);
  }
  // To the end of a ring.
  [[gnu::always_inline]] inline Packet& append(const Port& port, PriorityQueue& queue, const Packet& packet) {
    const std::uint32_t count = queue.flying + queue.waiting;
    if (count == queue.capacity) [[unlikely]]
      fit(port, queue);
    Packet& last = queue.at(count);
    last = packet;
    return last;
  }
  void fit(const Port& port, PriorityQueue& queue);
  void trim_rings(Port& port);
  [[gnu::always_inline]] inline void put_on_wire(Port& port, std::uint32_t number, const Packet& packet,
                                                 TimePs arrival) {
    PriorityQueue& queue = port.queues[packet.priority];
    append(port, queue, packet).arrival = arrival;
    ++queue.flying;
    tell_target(port, number, packet.priority, arrival);
  }
  // A packet of a class is on the wire; where it is the first, the target may have to be woken.
  [[gnu::always_inline]] inline void tell_target(Port& port, std::uint32_t number, std::uint32_t priority,
                                                 TimePs arrival) {
    const bool first = port.flying == 0;
    port.flying |= static_cast<std::uint8_t>(1u << priority);
    if (!first) return;
    if (port.is(Port::kToSwitch)) {
      inputs_.set_busy(port.target_process, number);
      schedule_->wake(port.target_process, arrival);
    } else if (port.is(Port::kInside)) {
      schedule_->set(number, arrival);
    } else {
      schedule_->set_afar(number, arrival);
    }
  }
  void post(const Port& port, std::uint32_t number, const Packet& packet, TimePs arrival);

  // From a link to the next. The packet's route has its place there.
  [[gnu::always_inline]] inline void forward(const Packet& packet, std::uint32_t ingress,
                                             std::uint32_t number, TimePs now) {
    assert(number < count_ && ingress < count_ && targets_[ingress] == ports_[number].node);
    Port& port = ports_[number];
    if (port.waiting != 0 && port.free < now) drain(port, number, now);
    const std::uint32_t wire_bytes = wire_bytes_of(packet);
    // Nothing that may go waits before it, and its own class neither waits nor is paused.
    const unsigned waiting = port.waiting, paused = port.paused, own = 1u << packet.priority;
    const bool first = (waiting | paused) == 0 || ((waiting & ~paused) | ((waiting | paused) & own)) == 0;
    if (first && port.is(Port::kBucket)) [[unlikely]]
      port.free = buckets_[number].start(port.free, serialisation(port, wire_bytes));
    if (port.free <= now && first) {
      if (packet.telemetry != 0) [[unlikely]]
        describe(port, number, packet, now);
      start(port, number, packet, wire_bytes, now);
    } else {
      wait(port, number, packet, ingress, wire_bytes, now);
    }
  }
  // Data that starts on a switch's port is told of it; acknowledgements carry what data was told.
  void describe(const Port& port, std::uint32_t number, const Packet& packet, TimePs at) {
    if (packet.opcode == roce::Opcode::kAcknowledge) return;
    telemetry_.write(packet.telemetry, {at, port.waiting_bytes, port.bytes, port.rate_bps, number});
  }

  // The link by which a packet whose way is free goes on from the end of `ingress`.
  std::uint32_t choose(Packet& packet, std::uint32_t ingress, TimePs now);
  void take_over_ports(const State& earlier, const Renumbering& to,
                       const std::function<Packet(const Packet&)>& renumbered);
  void fold_ports(Fold& fold, const PacketBases& bases, const Scope& scope);
  void fold_port(Fold& fold, std::uint32_t number, const PacketBases& bases);
  // The time of all packets before a new one on a port.
  TimePs backlog(const Port& port, TimePs now) const {
    return std::max<TimePs>(port.free - now, 0) + serialisation_ps(port.waiting_bytes, port.rate_bps);
  }
  std::size_t collect(ArrivalBatch& batch, InputOrder& inputs, TimePs begin, TimePs end, unsigned number_bits,
                      TimePs& next);
  void fetch(const std::vector<std::uint32_t>& links, const std::vector<std::uint32_t>& inputs,
             std::size_t at) const;
  void set_rate(Port& port, std::int64_t rate_bps) const;
  void set_cut_through(std::uint32_t number);
  void change_bucket_rate(std::uint32_t number, std::int64_t rate_bps, TimePs now);
  void lift_pauses(std::uint32_t number, TimePs now);
  void take_down(std::uint32_t number, TimePs now);
  [[gnu::always_inline]] inline void put(Port& port, std::uint32_t number, const Packet& packet,
                                         std::uint32_t ingress, std::uint32_t wire_bytes) {
    PriorityQueue& queue = port.queues[packet.priority];
    Packet& last = append(port, queue, packet);
    last.paced = false;
    last.set_ingress(ingress);
    ++queue.waiting;
    queue.waiting_bytes += wire_bytes;
    port.waiting_bytes += wire_bytes;
    port.waiting |= static_cast<std::uint8_t>(1u << packet.priority);
    if (port.is(Port::kListed)) return;
    port.set(Port::kListed);
    waiting_[port.process].push_back(number);
  }
  bool trim(const Packet& packet, std::uint32_t ingress, std::uint32_t number, TimePs now);
  // A packet waits on a port, where it has room.
  [[gnu::always_inline]] inline void wait(Port& port, std::uint32_t number, const Packet& packet,
                                          std::uint32_t ingress, std::uint32_t wire_bytes, TimePs now) {
    // A header that is left of a packet has the buffer of its own class: data has filled the port's.
    const std::int64_t before =
        packet.trimmed != 0 ? port.queues[packet.priority].waiting_bytes : port.waiting_bytes;
    const bool full = port.buffer_bytes >= 0 && before + wire_bytes > port.buffer_bytes;
    if (port.is(Port::kDown) || full ||
        (buffers_.is_shared(port.node) && !admit(port.node, ingress, packet.priority, wire_bytes, now)))
        [[unlikely]]
      return refuse(port, number, packet, ingress, wire_bytes, now);
    put(port, number, packet, ingress, wire_bytes);
    port.longest_bytes = std::max(port.longest_bytes, port.waiting_bytes);
    if (has_start_events(port)) expect_start(port, number, now);
  }
  void refuse(const Port& port, std::uint32_t number, const Packet& packet, std::uint32_t ingress,
              std::uint32_t wire_bytes, TimePs now);
  void drain(Port& port, std::uint32_t number, TimePs now);
  [[gnu::always_inline]] inline void start_next(Port& port, std::uint32_t number);
  bool has_tokens(Port& port, std::uint32_t number) const;
  // Strict classes from the highest; then weighted ones.
  std::uint32_t next_class(Port& port, std::uint32_t number) {
    const unsigned ready = port.ready(), strict = ready & network_->strict_classes;
    if (strict != 0) return highest_class(strict);
    return next_weighted(port, number, ready);
  }
  std::uint32_t next_weighted(Port& port, std::uint32_t number, unsigned ready);

  // True if a packet may wait in a switch.
  bool admit(std::int32_t node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes,
             TimePs now) {
    return buffers_.admit_far(node, ingress, priority, wire_bytes) ||
           admit_near(node, ingress, priority, wire_bytes, now);
  }
  bool admit_near(std::int32_t node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes,
                  TimePs now);
  // A packet has left the buffer.
  [[gnu::always_inline]] inline void release(std::int32_t node, std::uint32_t ingress, std::uint32_t priority,
                                             std::uint32_t wire_bytes, TimePs now) {
    if (buffers_.release(node, ingress, priority, wire_bytes, now)) tell(ingress, priority, false, now);
  }
  void drain_all(std::int32_t node, TimePs now);
  void watch(std::int32_t node);
  void tell(std::uint32_t ingress, std::uint32_t priority, bool pause, TimePs now);
  bool paused_by(const Packet& packet, std::uint32_t link, TimePs now);
  bool has_start_events(const Port& port) const {
    return port.is(Port::kInside) || buffers_.is_pausing(port.node);
  }
  void expect_start(const Port& port, std::uint32_t number, TimePs now);

  const Network* network_;
  const Routes* routes_;
  Schedule* schedule_;
  std::uint64_t seed_;
  std::uint32_t count_;  // of links: the network's, then one from each host to itself
  SharedBuffers buffers_;
  std::vector<Port, HugeAllocator<Port>> ports_;           // by link; then far ends of links abroad
  std::vector<std::uint32_t> inbound_;                     // by link: port in which its packets arrive
  std::vector<std::int32_t> targets_;                      // by link: node
  std::vector<std::vector<std::uint32_t>> ports_of_node_;  // of switches
  std::vector<std::uint64_t> skipped_bytes_;               // by link; its port has not counted them
  RareCounters counters_;
  EcnMarker marker_;
  ErrorModels errors_;
  std::vector<TokenBucket> buckets_;                 // by link
  std::vector<DeficitRoundRobin> round_robins_;      // by link, of the weighted classes
  std::vector<std::vector<std::uint32_t>> waiting_;  // by process: links with packets that wait
  SwitchInputs inputs_;
  std::vector<ArrivalBatch> batches_;  // by thread
  std::vector<RingArena> arenas_;      // by thread
  Mailboxes mailboxes_;
  std::vector<LoadBalancer> balancers_;  // by node
  std::vector<std::int32_t> host_of_connection_;
  TelemetryPool telemetry_;  // of one thread: simulations that ask for it play in one
  PathTable paths_;
  FrameSizes sizes_;
};

}  // namespace genie::twin
