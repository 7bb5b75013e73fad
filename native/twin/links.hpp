// All links of the network with their queues: what a packet meets between two hosts.
//
// A directed link is the output port of its source. What is on its wire lies in a ring, with one pending event,
// for the first to arrive; what waits lies in a queue for each priority. A packet that finds its port free
// starts at once. Nothing happens when a waiting packet starts, except that it leaves the switch's buffer: starts are
// therefore worked out late, in order, whenever somebody looks at the port, at the latest at the end of a window, and cost
// no event of their own. Arrivals at an instant come before starts at that instant.
//
// What needs every start in time has events for starts: links inside a process, whose packets may arrive in the
// same window, and ports of a switch that pauses somebody. Thresholds of a shared buffer first use upper
// bounds (what has left but has not been worked out still counts); when these reach a threshold, all ports of the switch are
// worked out.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/time.hpp"
#include "twin/network.hpp"
#include "twin/packet.hpp"
#include "twin/schedule.hpp"

namespace genie::twin {

inline constexpr std::uint32_t kPriorities = 8;
inline constexpr std::uint32_t kLinkControl = 7;  // priority of pause frames, above all others and never paused
inline constexpr std::uint32_t kPauseFrame = ~std::uint32_t{0};  // in place of a connection

struct LinkCounters {
  std::uint64_t packets = 0, bytes = 0, dropped = 0, dropped_bytes = 0, marked = 0, pauses = 0;
  TimePs paused_ps = 0;
  std::int64_t longest_queue_bytes = 0;
};

class Links {
 public:
  Links(const Network& network, Schedule& schedule, std::uint64_t seed);

  // Events that are theirs: a link's arrivals are source `link`, starts at its port source links() + `link`.
  std::uint32_t links() const { return static_cast<std::uint32_t>(links_.size()); }
  std::uint32_t sources() const { return 2 * links(); }
  std::int32_t source_of(std::uint32_t link) const { return ports_[link].node; }
  std::int32_t target_of(std::uint32_t link) const { return ports_[link].target; }
  // Least time from a packet's start on a link to its arrival.
  TimePs lookahead(std::uint32_t link) const;
  // The schedule has its plan now; by node: its process.
  void attach(const std::vector<std::uint32_t>& process_of_node);
  bool is_switch(std::uint32_t process) const { return !inputs_[process].empty(); }

  // Places of a path's links in `paths`, by which packets find their way.
  std::uint32_t add_path(const std::vector<std::uint32_t>& path) {
    const auto first = static_cast<std::uint32_t>(paths_.size());
    paths_.insert(paths_.end(), path.begin(), path.end());
    return first;
  }

  std::uint32_t link_at(std::uint32_t route) const { return paths_[route]; }

  // A host's port begins to send at `now`; when it is free again. The flight's route is its place on `link`.
  TimePs launch(std::uint32_t link, const Flight& flight, std::uint32_t wire_bytes, TimePs now) {
    start(links_[link], link, flight, wire_bytes, now);
    return links_[link].free;
  }
  TimePs serialisation(std::uint32_t link, std::uint32_t wire_bytes) const {
    return serialisation(links_[link], link, wire_bytes);
  }
  std::uint32_t wire_bytes_of(const Flight& flight) const {
    return header_bytes_[static_cast<std::uint8_t>(flight.opcode)] + ((flight.payload_bytes + 3u) & ~3u);
  }
  std::uint32_t paused(std::uint32_t link) const { return links_[link].paused; }  // bit of each priority

  // An arrival, which is event `at` of its process's agenda. The sink has, for hosts:
  //   void received(flight)   a packet has come
  //   void resumed(link)      a port that was paused may send again
  template <class Sink>
  void arrive(std::uint32_t number, TimePs now, Agenda& agenda, std::uint32_t at, Sink& sink) {
    Link& link = links_[number];
    Flight& first = link.slots[link.head];
    if (!link.to_host && first.connection != kPauseFrame) {
      forward(first, number, now);  // to another link: this one's packets stay where they are
      return land(link, agenda, at);
    }
    const Flight flight = first;
    land(link, agenda, at);
    if (flight.connection != kPauseFrame) {
      sink.received(flight);
    } else if (paused_by(flight, number, now) && link.to_host) {
      sink.resumed(number ^ 1);
    }
  }
  // A port whose starts have events may start its next packet.
  void starts(std::uint32_t number, TimePs now);
  // What a switch that is a process of its own does before `end`; the number of events. Its arrivals have no
  // agenda: all of a window are on their wires when it begins.
  std::uint64_t play_switch(std::uint32_t process, TimePs end);
  // Packets that came from other threads in the last window are on their wires now.
  void take_mail(std::uint32_t thread);

  // A process has done all events before `end`: packets that start before it are put on their wires. When the next one
  // starts; kNever: none waits, or it has an event.
  TimePs finish(std::uint32_t process, TimePs end);

  const LinkCounters& counters(std::uint32_t link) const { return counters_[link]; }
  LinkCounters totals(std::uint32_t link) const;

 private:
  struct alignas(64) Link {  // a port and its wire: what every packet touches
    std::unique_ptr<Flight[]> slots;  // a ring of what is on the wire
    std::uint32_t head = 0, flying = 0, capacity = 0;
    std::uint32_t ps_per_byte = 0;  // 0: not a whole number, or no limit
    std::uint32_t target_process = 0;
    std::uint8_t waiting = 0;  // bit of each priority that has packets which have not started
    std::uint8_t paused = 0;
    std::uint8_t flags = 0;
    bool to_host = false;
    TimePs free = 0;   // when the port can start the next
    TimePs delay = 0;  // from the last bit sent until it is dealt with at the other end
    std::uint64_t packets = 0, bytes = 0;
  };
  static_assert(sizeof(Link) == 64);
  // Of Link::flags.
  static constexpr std::uint8_t kMarks = 1;   // ECN
  static constexpr std::uint8_t kInside = 2;  // both ends in one process
  static constexpr std::uint8_t kListed = 4;    // among those that finish() looks at
  static constexpr std::uint8_t kToSwitch = 8;  // that is a process of its own
  static constexpr std::uint8_t kAbroad = 16;   // to a process that another thread plays
  // The packets of one priority that wait for a port.
  struct Queue {
    std::unique_ptr<Flight[]> slots;
    std::uint32_t head = 0, count = 0, capacity = 0;
    std::int64_t bytes = 0;
  };
  struct alignas(64) Port {  // what only packets that wait touch
    std::int64_t rate_bps = 0;
    std::int64_t waiting_bytes = 0, longest_bytes = 0;
    std::int64_t buffer_bytes = -1;  // of this port alone; -1: no limit
    std::int32_t node = 0, target = 0;  // that it belongs to, and that its link leads to
    std::uint32_t process = 0;       // of that
    std::uint32_t turn = 0;          // of the weighted priorities
    std::uint64_t marks_drawn = 0;
    std::array<std::int64_t, kPriorities> deficit_bytes{};
  };
  struct Ingress {  // by link and priority: what has come by it and waits in its target
    std::int64_t bytes = 0, headroom_bytes = 0;
    TimePs paused_since = 0;
    bool pausing = false;  // its source has been told to pause
  };
  struct alignas(64) Switch {
    std::int64_t shared_bytes = 0;  // for all; 0: no shared buffer
    std::int64_t used_bytes = 0;    // of it
    std::uint32_t pausing = 0;      // (ingress, priority) that have been told to pause
    std::vector<std::uint32_t> ports;
  };

  Queue& queue(std::uint32_t number, std::uint32_t priority) {
    return queues_[std::size_t{number} * kPriorities + priority];
  }

  TimePs serialisation(const Link& link, std::uint32_t number, std::uint32_t size_bytes) const {
    return link.ps_per_byte != 0 ? TimePs{link.ps_per_byte} * size_bytes
                                 : serialisation_ps(size_bytes, ports_[number].rate_bps);
  }

  // The packet that has arrived first is not on the link any more.
  void land(Link& link, Agenda& agenda, std::uint32_t at) {
    link.head = (link.head + 1) & (link.capacity - 1);
    if (--link.flying == 0) return agenda.set(at, kNever);
    const Flight& next = link.slots[link.head];
    agenda.set(at, next.arrival);
    // Its turn comes when some other links have had theirs: time enough to fetch what it will touch.
    __builtin_prefetch(&link.slots[(link.head + 1) & (link.capacity - 1)]);
    if (!link.to_host) __builtin_prefetch(&links_[paths_[next.route + 1]], 1);
  }

  void start(Link& link, std::uint32_t number, const Flight& flight, std::uint32_t wire_bytes, TimePs at) {
    link.free = at + serialisation(link, number, wire_bytes);
    ++link.packets;
    link.bytes += wire_bytes;
    if ((link.flags & kAbroad) != 0) return post(number, flight, link.free + link.delay);
    put_on_wire(link, number, flight, link.free + link.delay);
  }
  void put_on_wire(Link& link, std::uint32_t number, const Flight& flight, TimePs arrival) {
    if (link.flying == link.capacity) grow(link.slots, link.head, link.capacity);
    Flight& on_wire = link.slots[(link.head + link.flying) & (link.capacity - 1)];
    on_wire = flight;
    on_wire.arrival = arrival;
    if (link.flying++ > 0) return;
    if ((link.flags & kToSwitch) != 0) {
      schedule_->wake(link.target_process, arrival);
    } else if ((link.flags & kInside) != 0) {
      schedule_->set(number, arrival);
    } else {
      schedule_->set_afar(number, arrival);
    }
  }
  void post(std::uint32_t number, const Flight& flight, TimePs arrival);
  static void grow(std::unique_ptr<Flight[]>& slots, std::uint32_t& head, std::uint32_t& capacity);

  void pass(std::uint32_t number, TimePs now);
  struct Scratch;
  static void sort_batch(Scratch& scratch, unsigned key_bits);
  void forward(Flight& flight, std::uint32_t ingress, TimePs now) {
    const std::uint32_t number = paths_[++flight.route];
    Link& link = links_[number];
    if (link.waiting != 0) work_out(link, number, now);
    const std::uint32_t wire_bytes = wire_bytes_of(flight);
    if (link.free <= now && (link.waiting & ~link.paused) == 0 && (link.paused >> flight.priority & 1) == 0) {
      start(link, number, flight, wire_bytes, now);
    } else {
      wait(link, number, flight, ingress, wire_bytes, now);
    }
  }

  void wait(Link& link, std::uint32_t number, const Flight& flight, std::uint32_t ingress,
            std::uint32_t wire_bytes, TimePs now);
  void work_out(Link& link, std::uint32_t number, TimePs now);
  void start_next(Link& link, std::uint32_t number, Port& port);
  void put(Link& link, std::uint32_t number, Port& port, const Flight& flight, std::uint32_t wire_bytes);
  std::uint32_t take_priority(const Link& link, std::uint32_t number, Port& port);
  const Flight& next_of(std::uint32_t number, std::uint32_t priority) {
    const Queue& own = queue(number, priority);
    return own.slots[own.head];
  }
  void mark(std::uint32_t number, Port& port, std::int64_t queued_bytes, Flight& flight);

  bool admit(Switch& node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes,
             TimePs now);
  void release(Switch& node, std::uint32_t ingress, std::uint32_t priority, std::uint32_t wire_bytes,
               TimePs now);
  void work_out_all(const Switch& node, TimePs now);
  void watch(const Switch& node);
  bool has_start_events(const Link& link, const Switch& node) const {
    return (link.flags & kInside) != 0 || node.pausing > 0;
  }
  Switch& switch_of(const Port& port) { return switches_[static_cast<std::size_t>(port.node)]; }
  void expect_start(const Link& link, std::uint32_t number, TimePs now);
  void tell(std::uint32_t ingress, std::uint32_t priority, bool pause, TimePs now);
  bool paused_by(const Flight& flight, std::uint32_t link, TimePs now);

  const Network* network_;
  Schedule* schedule_;
  std::uint64_t seed_;
  std::vector<Link> links_;
  std::vector<Queue> queues_;      // by link and priority
  std::vector<Port> ports_;        // by link
  std::vector<Ingress> ingress_;   // by link and priority
  std::vector<Switch> switches_;   // by node
  std::vector<LinkCounters> counters_;
  std::vector<std::vector<std::uint32_t>> waiting_;  // by process: links with packets that wait
  std::vector<std::vector<std::uint32_t>> inputs_;   // by process, of switches of their own: links that lead to it
  static constexpr unsigned kBucketBits = 10;
  struct alignas(64) Scratch {  // of play_switch in one thread, kept for its memory
    std::vector<std::uint64_t> batch, sorted;
    std::array<std::uint32_t, (1u << kBucketBits) + 1> places{};
  };
  struct Letter {
    std::uint32_t link;
    Flight flight;
  };
  struct alignas(64) Mailbox {  // from one thread to another, of one window
    std::vector<Letter> letters;
  };
  std::vector<Scratch> scratch_;     // by thread
  std::vector<Mailbox> mailboxes_;   // by sending thread, then by receiving thread
  std::vector<std::uint32_t> paths_;
  std::array<std::uint16_t, 256> header_bytes_{};  // by opcode: all that a frame has beside its payload
};

}  // namespace genie::twin
