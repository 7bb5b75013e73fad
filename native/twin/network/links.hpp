// All links of the network with their queues: what a packet meets between two hosts.
//
// A directed link is the output port of its source. Packets of a class (data, control, pause frames) lie in
// one ring: first those on the wire, by arrival, then those that wait; to start is to move on the line
// between. A packet that finds its port free starts at once. Nothing else happens when a waiting packet
// starts than that it leaves the switch's buffer: starts are therefore worked out late, in order, whenever
// somebody looks at the port, at the latest at the end of a window, and cost no event of their own. Arrivals
// at an instant come before starts.
//
// What needs every start in time has events for starts: links inside a process, whose packets may arrive in
// the same window, and ports of a switch that pauses somebody. Thresholds of a shared buffer first use upper
// bounds (what has left but has not been worked out still counts); when these reach a threshold, all ports of
// the switch are worked out.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/flat_map.hpp"
#include "core/time.hpp"
#include "twin/fabric/network.hpp"
#include "twin/kernel/huge_pages.hpp"
#include "twin/kernel/schedule.hpp"
#include "twin/network/arbitration.hpp"
#include "twin/network/packet.hpp"
#include "twin/network/port.hpp"
#include "twin/network/ring_arena.hpp"
#include "twin/network/telemetry.hpp"
#include "twin/network/token_bucket.hpp"

namespace genie::twin {

inline constexpr std::uint32_t kHeaderBytes = 64;  // after which a switch that cuts through knows the way
inline constexpr std::uint32_t kPauseFrame = ~std::uint32_t{0};        // in place of a connection
inline constexpr auto kPauseOpcode = static_cast<roce::Opcode>(0xFF);  // none of InfiniBand's

struct LinkCounters {
  std::uint64_t packets = 0, bytes = 0, dropped = 0, dropped_bytes = 0, marked = 0, trimmed = 0, pauses = 0;
  std::uint64_t replays = 0;
  TimePs paused_ps = 0;
  std::int64_t longest_queue_bytes = 0, queue_bytes = 0;
};

class Links {
 public:
  Links(const Network& network, Schedule& schedule, std::uint64_t seed);

  // Events that are theirs: a link's arrivals are source `link`, starts at its port source links() + `link`.
  std::uint32_t links() const { return count_; }
  std::uint32_t sources() const { return 2 * count_; }
  std::int32_t source_of(std::uint32_t link) const { return blocks_[link].node; }
  std::int32_t target_of(std::uint32_t link) const { return targets_[link]; }
  // Least time from a packet's start on a link to its arrival.
  TimePs lookahead(std::uint32_t link) const;
  // The schedule has its plan now; by node: its process.
  void attach(const std::vector<std::uint32_t>& process_of_node);
  bool is_switch(std::uint32_t process) const { return !inputs_[process].links.empty(); }

  // Places of a path's links in `paths`, by which packets find their way.
  std::uint32_t add_path(const std::vector<std::uint32_t>& path) {
    const auto first = static_cast<std::uint32_t>(paths_.size());
    paths_.insert(paths_.end(), path.begin(), path.end());
    return first;
  }
  std::uint32_t link_at(std::uint32_t route) const { return paths_[route]; }
  bool is_path(std::uint32_t route, const std::vector<std::uint32_t>& path) const {
    return std::equal(path.begin(), path.end(), paths_.begin() + route);  // both end at the same host
  }

  // A host's port begins to send at `now`. The flight's route is its place on `link`.
  void launch(std::uint32_t link, const Flight& flight, std::uint32_t wire_bytes, TimePs now) {
    Block& block = blocks_[link];
    if ((block.flags & kDown) != 0) [[unlikely]]
      return drop(link, flight, wire_bytes);
    start(block, link, flight, wire_bytes, now);
  }
  // How long a host's port that is free at `now` is busy with a packet. Behind a token bucket it waits for as
  // many tokens as the packet needs, which then leaves at once.
  TimePs occupancy(std::uint32_t link, std::uint32_t wire_bytes, TimePs now) const {
    const Block& block = blocks_[link];
    const TimePs time = serialisation(block, wire_bytes);
    return (block.flags & kBucket) == 0 ? time : buckets_[link].start(now, time) - now;
  }
  bool has_bucket(std::uint32_t link) const { return (blocks_[link].flags & kBucket) != 0; }
  // Link-level retry, see link_errors.cpp.
  bool retries(std::uint32_t link) const {
    return (blocks_[link].flags & kErrors) != 0 && errors_[link].round_trip >= 0;
  }
  // The next frame of a port that retries is corrupted once more than by chance.
  void corrupt_next(std::uint32_t link) { ++errors_[link].planned; }
  // When a port that retries is free of its last frame, replays included.
  TimePs busy_until(std::uint32_t link) const { return errors_[link].until; }
  std::uint32_t wire_bytes_of(const Flight& flight) const {
    return header_bytes_[static_cast<std::uint8_t>(flight.opcode)] + ((flight.payload_bytes + 3u) & ~3u);
  }
  std::uint32_t paused(std::uint32_t link) const { return blocks_[link].paused; }  // bit of each class

  // By connection: the host at which its packets arrive. For switches that pick a way for each packet.
  void set_targets(std::vector<std::int32_t> host_of_connection) {
    host_of_connection_ = std::move(host_of_connection);
  }

  // An arrival, which is event `at` of its process's agenda. The sink has, for hosts:
  //   void received(flight)   a packet has come
  //   void coming(flight)     the next one will be this
  //   void resumed(link)      a port that was paused may send again
  template <class Sink>
  [[gnu::always_inline]] inline void arrive(std::uint32_t number, TimePs now, Agenda& agenda,
                                            std::uint32_t at, Sink& sink) {
    Block& block = blocks_[inbound_[number]];
    Flight flight = take_first(block);
    if (block.flying == 0) {
      agenda.set(at, kNever);
    } else {
      const Flight& next = first_lane(block).at(0);
      agenda.set(at, next.arrival);
      if (block.to_host) sink.coming(next);
    }
    if (flight.connection == kPauseFrame) {
      if (paused_by(flight, number, now) && block.to_host) sink.resumed(number ^ 1);
    } else if (block.to_host) {
      sink.received(flight);
    } else {
      const std::uint32_t next = flight.is_free() ? choose(flight, number, now) : paths_[++flight.route];
      if (next == kNowhere) return lose(number, flight);
      forward(flight, number, next, now);
    }
  }
  // A port whose starts have events may start its next packet.
  void starts(std::uint32_t number, TimePs now);
  // What a switch that is a process of its own does before `end`; the number of events. Its arrivals have no
  // agenda: all of a window are on their wires when it begins.
  std::uint64_t play_switch(std::uint32_t process, TimePs end);
  // Packets that came from other threads in the last window are on their wires now.
  void take_mail(std::uint32_t thread);
  // A process has done all events before `end`: packets that start before it are put on their wires. When the
  // next one starts; kNever: none waits, or it has an event.
  TimePs finish(std::uint32_t process, TimePs end);

  // Changes of the network at `now`, between windows or at a point of time to which all have come.
  void apply(const Change& change, TimePs now);
  bool is_down(std::uint32_t link) const { return (blocks_[link].flags & kDown) != 0; }
  const Routes& routes() const { return *routes_; }

  LinkCounters totals(std::uint32_t link) const;
  // The same at `now`, to which all have come, but of what is being sent only what has been sent by then,
  // with pauses that go on, and of the longest queue the one since it was asked last.
  LinkCounters look(std::uint32_t link, TimePs now);
  std::int64_t rate_bps(std::uint32_t link) const { return blocks_[link].rate_bps; }
  // Links whose ports wait for each other in a circle: each is paused, by a switch in which what it sent
  // waits for the next. Empty when there is none.
  std::vector<std::uint32_t> deadlock() const;
  TelemetryPool& telemetry() { return telemetry_; }

 private:
  // Of Block::flags.
  static constexpr std::uint8_t kErrors = 1;    // corrupts frames, or replays those that a plan corrupts
  static constexpr std::uint8_t kInside = 2;    // both ends in one process
  static constexpr std::uint8_t kListed = 4;    // among those that finish() looks at
  static constexpr std::uint8_t kToSwitch = 8;  // that is a process of its own
  static constexpr std::uint8_t kAbroad = 16;   // to a process that another thread plays
  static constexpr std::uint8_t kDown = 32;
  static constexpr std::uint8_t kCutThrough = 64;             // its target forwards what it has the header of
  static constexpr std::uint8_t kBucket = 128;                // a token bucket
  static constexpr std::uint32_t kNowhere = kPauseFrame - 2;  // in place of a link: no way is left

  struct Ingress {  // by link and class: what has come by it and waits in its target
    std::int64_t bytes = 0, headroom_bytes = 0;
    TimePs paused_since = 0;
    bool pausing = false;  // its source has been told to pause
  };
  struct alignas(64) Switch {
    std::int64_t shared_bytes = 0;  // for all; 0: no shared buffer
    std::int64_t used_bytes = 0;    // of it
    std::uint32_t pausing = 0;      // (ingress, class) that have been told to pause
    std::vector<std::uint32_t> ports;
  };
  struct Arrival {
    Flight* flight;
    const Lane* lane;  // on which it goes on
    std::uint32_t input, next;
  };
  static constexpr unsigned kBucketBits = 10;
  struct alignas(64) Scratch {                // of play_switch in one thread, kept for its memory
    std::vector<std::uint64_t> keys, sorted;  // of one size
    std::vector<Arrival> arrivals;
    std::vector<Contender> turns, drawn;  // of one instant
    std::array<std::uint32_t, (1u << kBucketBits) + 1> places{};

    void make_room(std::size_t count) {
      if (count <= arrivals.size()) [[likely]]
        return;
      const std::size_t size = std::bit_ceil(count);
      keys.resize(size);
      sorted.resize(size);
      arrivals.resize(size);
    }
  };
  struct Letter {
    std::uint32_t link;
    Flight flight;
  };
  struct alignas(64) Mailbox {  // from one thread to another, of one window
    std::vector<Letter> letters;
  };

  TimePs serialisation(const Block& block, std::uint32_t size_bytes) const {
    return block.ps_per_byte != 0
               ? TimePs{block.ps_per_byte} * size_bytes
               : serialisation_ps(size_bytes, block.rate_bps, network_->serialisation_unit);
  }

  // Which lane's packet arrives first; one is on the wire.
  static Lane& first_lane(Block& block) {
    unsigned best = static_cast<unsigned>(std::countr_zero(block.flying));
    for (unsigned left = block.flying & (block.flying - 1u); left != 0; left &= left - 1) {
      const auto other = static_cast<unsigned>(std::countr_zero(left));
      if (block.lanes[other].at(0).arrival < block.lanes[best].at(0).arrival) best = other;
    }
    return block.lanes[best];
  }
  static Flight take_first(Block& block) {
    Lane& lane = first_lane(block);
    const Flight flight = lane.at(0);
    lane.pop();
    if (lane.flying == 0) block.flying &= static_cast<std::uint8_t>(~(1u << flight.lane));
    return flight;
  }

  [[gnu::always_inline]] inline void start(Block& block, std::uint32_t number, const Flight& flight,
                                           std::uint32_t wire_bytes, TimePs at) {
    const TimePs arrival = occupy(block, flight, wire_bytes, at);
    if ((block.flags & (kAbroad | kErrors)) != 0)
      return start_apart(block, number, flight, wire_bytes, arrival);
    put_on_wire(block, number, flight, arrival);
  }
  // What has started on a link to another thread, or on one that may have corrupted it.
  void start_apart(Block& block, std::uint32_t number, const Flight& flight, std::uint32_t wire_bytes,
                   TimePs arrival);
  // A packet's turn on the port; when it arrives, kNever: it is corrupted and lost.
  TimePs occupy(Block& block, const Flight& flight, std::uint32_t wire_bytes, TimePs at) {
    const TimePs time = serialisation(block, wire_bytes);
    block.free = at + time;
    ++block.packets;
    block.bytes += wire_bytes;
    if ((block.flags & (kCutThrough | kBucket | kErrors)) != 0) [[unlikely]]
      return other_arrival(block, flight, at, time);
    return block.free + block.delay;
  }
  TimePs other_arrival(Block& block, const Flight& flight, TimePs at, TimePs time);
  TimePs early_arrival(Block& block, TimePs at, TimePs time);
  std::uint32_t corruptions(std::uint32_t link);
  bool send_beside_replay(Block& block, std::uint32_t number, const Flight& frame, std::uint32_t wire_bytes,
                          TimePs now);
  void lose_waiting(std::uint32_t number, Lane& lane, std::uint32_t wire_bytes);
  void put_before(Block& block, std::uint32_t number, const Flight& frame, TimePs arrival);
  void drop(std::uint32_t link, const Flight& flight, std::uint32_t wire_bytes) {
    ++counters_[link].dropped;
    counters_[link].dropped_bytes += wire_bytes;
    telemetry_.give(flight.telemetry);
  }
  // At the end of a link, from which no way leads on. What a link's target counts is not its source's.
  void lose(std::uint32_t ingress, const Flight& flight) {
    ++lost_[ingress].packets;
    lost_[ingress].bytes += wire_bytes_of(flight);
    telemetry_.give(flight.telemetry);
  }
  // To the end of a ring.
  Flight& append(const Block& block, Lane& lane, const Flight& flight) {
    const std::uint32_t count = lane.flying + lane.waiting;
    if (count == lane.capacity) [[unlikely]]
      fit(block, lane);
    Flight& last = lane.at(count);
    last = flight;
    return last;
  }
  void fit(const Block& block, Lane& lane);
  void trim_rings(Block& block);
  [[gnu::always_inline]] inline void put_on_wire(Block& block, std::uint32_t number, const Flight& flight,
                                                 TimePs arrival) {
    Lane& lane = block.lanes[flight.lane];
    append(block, lane, flight).arrival = arrival;
    ++lane.flying;
    tell_target(block, number, flight.lane, arrival);
  }
  // A packet of a class is on the wire; where it is the first, the target may have to be woken.
  [[gnu::always_inline]] inline void tell_target(Block& block, std::uint32_t number, std::uint32_t lane,
                                                 TimePs arrival) {
    const bool first = block.flying == 0;
    block.flying |= static_cast<std::uint8_t>(1u << lane);
    if (!first) return;
    if ((block.flags & kToSwitch) != 0) {
      schedule_->wake(block.target_process, arrival);
    } else if ((block.flags & kInside) != 0) {
      schedule_->set(number, arrival);
    } else {
      schedule_->set_afar(number, arrival);
    }
  }
  void post(const Block& block, std::uint32_t number, const Flight& flight, TimePs arrival);

  // From a link to the next. The flight's route has its place there.
  [[gnu::always_inline]] inline void forward(const Flight& flight, std::uint32_t ingress,
                                             std::uint32_t number, TimePs now) {
    Block& block = blocks_[number];
    if (block.waiting != 0 && block.free < now) work_out(block, number, now);
    const std::uint32_t wire_bytes = wire_bytes_of(flight);
    // Nothing that may go waits before it, and its own class neither waits nor is paused.
    const unsigned waiting = block.waiting, paused = block.paused, own = 1u << flight.lane;
    const bool first = (waiting | paused) == 0 || ((waiting & ~paused) | ((waiting | paused) & own)) == 0;
    if (first && (block.flags & kBucket) != 0) [[unlikely]]
      block.free = buckets_[number].start(block.free, serialisation(block, wire_bytes));
    if (block.free <= now && first) {
      if (flight.telemetry != 0) [[unlikely]]
        describe(block, number, flight, now);
      start(block, number, flight, wire_bytes, now);
    } else {
      wait(block, number, flight, ingress, wire_bytes, now);
    }
  }
  // Data that starts on a switch's port is told of it; acknowledgements carry what data was told.
  void describe(const Block& block, std::uint32_t number, const Flight& flight, TimePs at) {
    if (flight.opcode == roce::Opcode::kAcknowledge) return;
    telemetry_.write(flight.telemetry,
                     congestion::as_carried({at, block.waiting_bytes, block.bytes, block.rate_bps, number}));
  }

  // The link by which a packet whose way is free goes on from the end of `ingress`.
  std::uint32_t choose(Flight& flight, std::uint32_t ingress, TimePs now);
  std::uint32_t ingress_of(const Flight& flight) const {
    return flight.is_free() ? flight.route & ~Flight::kFree : paths_[flight.route - 1];
  }
  // What is before a packet on a port, in time.
  TimePs backlog(const Block& block, TimePs now) const {
    return std::max<TimePs>(block.free - now, 0) + serialisation_ps(block.waiting_bytes, block.rate_bps);
  }
  std::size_t collect(Scratch& scratch, const std::vector<std::uint32_t>& inputs, TimePs begin, TimePs end,
                      unsigned number_bits, TimePs& next);
  void fetch(const std::vector<std::uint32_t>& inputs, std::size_t input) const;
  static void sort_keys(Scratch& scratch, std::size_t count);
  std::size_t take_turns(Scratch& scratch, Inputs& inputs, std::size_t first, std::size_t count,
                         unsigned number_bits) const;
  void draw_turns(Scratch& scratch, const Inputs& inputs, std::size_t first, std::size_t end,
                  std::uint64_t number_mask) const;
  void set_rate(Block& block, std::int64_t rate_bps) const;
  void set_cut_through(std::uint32_t number);
  void set_errors(std::uint32_t number, const LinkErrors& errors);
  void set_bucket(std::uint32_t number, std::int64_t rate_bps, TimePs now);
  void lift_pauses(std::uint32_t number, TimePs now);
  void take_down(std::uint32_t number, TimePs now);
  bool trim(const Flight& flight, std::uint32_t ingress, std::uint32_t number, TimePs now);
  [[gnu::always_inline]] inline void put(Block& block, std::uint32_t number, const Flight& flight,
                                         std::uint32_t wire_bytes) {
    Lane& lane = block.lanes[flight.lane];
    append(block, lane, flight).paced = false;
    ++lane.waiting;
    lane.waiting_bytes += wire_bytes;
    block.waiting_bytes += wire_bytes;
    block.waiting |= static_cast<std::uint8_t>(1u << flight.lane);
    if ((block.flags & kListed) != 0) return;
    block.flags |= kListed;
    waiting_[block.process].push_back(number);
  }
  void wait(Block& block, std::uint32_t number, const Flight& flight, std::uint32_t ingress,
            std::uint32_t wire_bytes, TimePs now);
  void work_out(Block& block, std::uint32_t number, TimePs now);
  [[gnu::always_inline]] inline void start_next(Block& block, std::uint32_t number);
  bool has_tokens(Block& block, std::uint32_t number) const;
  // Strict classes from the highest; then weighted ones.
  std::uint32_t next_class(Block& block, std::uint32_t number) {
    const unsigned ready = block.waiting & ~unsigned{block.paused}, strict = ready & network_->strict_classes;
    return strict != 0 ? static_cast<std::uint32_t>(std::bit_width(strict)) - 1
                       : next_weighted(block, number, ready);
  }
  std::uint32_t next_weighted(Block& block, std::uint32_t number, unsigned ready);
  bool is_marked(std::uint32_t number, Block& block, std::int64_t queued_bytes);

  bool admit(Switch& node, std::uint32_t ingress, std::uint32_t lane, std::uint32_t wire_bytes, TimePs now);
  // A packet has left the buffer.
  void release(Switch& node, std::uint32_t ingress, std::uint32_t lane, std::uint32_t wire_bytes,
               TimePs now) {
    Ingress& in = ingress_[std::size_t{ingress} * kClasses + lane];
    if (in.headroom_bytes != 0 || in.pausing) return release_pausing(node, ingress, lane, wire_bytes, now);
    const std::int64_t reserve = network_->buffer.reserve_bytes, before = in.bytes;
    in.bytes -= wire_bytes;
    node.used_bytes -= std::max(before, reserve) - std::max(in.bytes, reserve);
  }
  void release_pausing(Switch& node, std::uint32_t ingress, std::uint32_t lane, std::uint32_t wire_bytes,
                       TimePs now);
  void work_out_all(const Switch& node, TimePs now);
  void watch(const Switch& node);
  void tell(std::uint32_t ingress, std::uint32_t lane, bool pause, TimePs now);
  bool paused_by(const Flight& flight, std::uint32_t link, TimePs now);
  Switch& switch_of(const Block& block) { return switches_[static_cast<std::size_t>(block.node)]; }
  static bool has_start_events(const Block& block, const Switch& node) {
    return (block.flags & kInside) != 0 || node.pausing > 0;
  }
  void expect_start(const Block& block, std::uint32_t number, TimePs now);

  const Network* network_;
  const Routes* routes_;
  Schedule* schedule_;
  std::uint64_t seed_;
  std::uint32_t count_;                                   // of links
  std::vector<Block, HugeAllocator<Block>> blocks_;       // by link; then far ends of links abroad
  std::vector<std::uint32_t> inbound_;                    // by link: block in which its packets arrive
  std::vector<std::int32_t> targets_;                     // by link: node
  std::vector<Ingress, HugeAllocator<Ingress>> ingress_;  // by link and class
  std::vector<Switch> switches_;                          // by node
  std::vector<LinkCounters> counters_;                    // by link
  std::vector<TokenBucket> buckets_;                      // by link
  struct Errors {
    std::uint64_t below = 0;  // of 2^64: a number drawn below it corrupts the frame
    TimePs round_trip = -1;   // as LinkErrors has it
    std::uint64_t drawn = 0, replays = 0;
    std::uint32_t planned = 0;  // corruptions of the next frame
    TimePs time = 0, first = 0,
           until = 0;  // of the last frame: its time, the ends of its first and last sending
  };
  std::vector<Errors> errors_;                                     // by link, where any has some
  std::vector<std::array<std::int64_t, kClasses>> deficit_bytes_;  // by link, of the weighted classes
  std::vector<std::vector<std::uint32_t>> waiting_;                // by process: links with packets that wait
  std::vector<Inputs> inputs_;                                     // by process
  std::vector<Scratch> scratch_;                                   // by thread
  std::vector<RingArena> arenas_;                                  // by thread
  std::vector<Mailbox> mailboxes_;  // by sending thread, then by receiving thread
  struct Lost {
    std::uint64_t packets = 0, bytes = 0;
  };
  std::vector<Lost> lost_;  // by link, at its end
  struct Flowlet {
    TimePs last = 0;
    std::uint32_t link = 0;
  };
  struct Balancer {  // of a switch that picks ways
    std::uint64_t drawn = 0;
    std::vector<std::uint32_t> ways;  // for the packet at hand
    FlatMap<Flowlet> flowlets;        // by connection
  };
  std::vector<Balancer> balancers_;  // by node
  std::vector<std::int32_t> host_of_connection_;
  TelemetryPool telemetry_;  // of one thread: who asks for it plays in one
  std::vector<std::uint32_t, HugeAllocator<std::uint32_t>> paths_;
  std::array<std::uint16_t, 256> header_bytes_{};  // by opcode: all that a frame has beside its payload
};

}  // namespace genie::twin
