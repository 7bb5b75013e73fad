// The flow level: messages are fluid that shares the links of its path. One thread; the walkers, paths and
// latencies are the packet level's.
//
// A queue pair sends one message after the other. Its rate is what `FlowSharing` gives it. A message has
// arrived when its last byte has left and the path's latency has passed. The latency is made of delays, and
// of the last packet's times of serialisation on all links but the slowest. Nothing queues, is marked, paused
// or lost.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/flat_map.hpp"
#include "roce/connection.hpp"
#include "twin/fabric/network.hpp"
#include "twin/fabric/planned_packets.hpp"
#include "twin/kernel/time_buckets.hpp"
#include "twin/levels/circuits.hpp"
#include "twin/levels/flow_sharing.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

struct FlowConfig {
  SharingRule rule = SharingRule::kMaxMin;
  CircuitConfig circuits;
  std::uint32_t mtu_bytes = 4096;
  std::uint32_t window_packets = 0;  // of a queue pair, sent and not acknowledged; 0: no limit
  roce::SpreadConfig spread;
};

class FlowSimulator {
 public:
  struct LinkUse {
    double packets = 0, bytes = 0;  // of spread packets a part
  };

  FlowSimulator(const Network& network, const FlowConfig& config, const SharedPlan& shared,
                const std::vector<const RankPlan*>& plans, std::vector<std::int32_t> host_of_rank,
                std::uint64_t seed);
  FlowSimulator(const FlowSimulator&) = delete;
  FlowSimulator& operator=(const FlowSimulator&) = delete;

  // Starts all walkers at time 0.
  void start();
  // Handles about `events` events; false when there are none left or something failed.
  bool run(std::uint64_t events);

  bool done() const { return !failed_ && all_done(walkers_); }
  std::vector<std::string> problems() const {
    return too_long_ ? std::vector<std::string>{kPastLastTime} : problems_of(walkers_);
  }
  TimePs now() const { return now_; }
  std::uint64_t events() const { return events_; }
  std::uint64_t data_packets() const { return data_packets_; }
  // Part of the packets of the plan's messages that has flowed: 0 to 1.
  double share_done() { return done() ? 1 : planned_.share(data_packets_); }
  std::uint64_t circuits_set_up() const { return circuits_.set_up(); }
  const std::vector<Walker>& walkers() const { return walkers_; }
  const std::vector<LinkUse>& links() const { return use_; }

 private:
  enum class Kind : std::uint8_t { kFinish, kArrive, kAck, kCredit, kSleep, kPost, kSend, kCircuit };
  struct Event {
    Kind kind = Kind::kFinish;
    std::uint32_t place = 0;  // queue pair; rank of a sleep; circuit
    std::uint64_t what = 0;   // finish: version; arrive, ack, send: message; sleep: handle; post: operation
  };
  struct Message {
    std::uint64_t handle = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t tag = 0;
    std::int32_t next = -1;
    TimePs first = 0;       // its first packet's arrival
    TimePs time = 0;        // its last one's
    std::uint8_t ends = 2;  // that have not been told
  };
  struct QueuePair {
    std::int32_t rank = 0, peer_rank = 0;
    std::uint32_t peer = 0;        // the other end's
    std::uint32_t number = 0;      // among those to this peer
    std::uint32_t connection = 0;  // into connections_
    std::uint16_t port = 0;
    std::uint32_t circuit = 0;
    bool cut = false;  // no path leads to the peer
    std::vector<std::uint32_t> path;
    std::vector<LinkShare> shares;      // all links that its bytes take
    std::int32_t head = -1, tail = -1;  // into messages_
    double left_bytes = 0, rate = 0;
    TimePs since = 0;  // left_bytes were left
    std::uint64_t version = 0;
    TimePs delay = 0;                              // of the path and of the receiving host
    double hops_byte_ps = 0, slowest_byte_ps = 0;  // of a byte on all links of the path, and on the slowest
    TimePs credit_latency = 0, ack_latency = 0;
    NicCosts::Queue nic;
    bool delayed = false;  // its messages take the NIC's time
    TimePs arrived = 0;    // the last message's arrival: a queue pair keeps its order
  };

  void connect_all();
  void set_path(std::uint32_t id);
  std::vector<LinkShare> shares_of(const QueuePair& own) const;
  void carry(const QueuePair& own, std::uint64_t packets, std::uint64_t size_bytes);
  void told(std::uint64_t message);
  double last_packet_bytes(std::uint64_t size_bytes) const;
  TimePs serialisation(std::uint32_t link, std::uint32_t size_bytes) const;
  double capacity(std::uint32_t link) const;
  std::int64_t wire_bytes(std::uint64_t size_bytes) const;
  std::uint64_t packets(std::uint64_t size_bytes) const;
  void push(TimePs time, Kind kind, std::uint32_t place, std::uint64_t what);
  void handle(const Event& event);
  void post(std::int32_t rank, const Operation& operation);
  void clear_to_send(std::uint32_t id, std::uint32_t tag);
  void enqueue(std::uint32_t id, std::int32_t message);
  void begin(std::uint32_t id);
  void flow(std::uint32_t id);
  void finish(std::uint32_t id);
  void expect(std::uint32_t id);
  void settle();
  void flowed(QueuePair& own) const;
  void deliver(std::int32_t rank, Completion completion);
  void walk_all();
  void perform(std::int32_t rank);
  void apply_changes();
  std::int32_t host_of(std::int32_t rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }

  const Network* network_;
  FlowConfig config_;
  std::vector<std::int32_t> host_of_rank_;
  std::uint64_t seed_;
  FlowSharing sharing_;
  Circuits circuits_;
  const Routes* routes_;
  std::vector<std::int64_t> rate_bps_;  // of links, now
  std::vector<Walker> walkers_;
  std::vector<QueuePair> queue_pairs_;  // a flow each, of the same number
  struct CircuitUse {
    std::uint32_t links[2] = {0, 0};     // of `sharing_`: from the lower host to the higher, and back
    std::vector<std::uint32_t> waiting;  // queue pairs
  };
  std::vector<CircuitUse> circuit_uses_;  // by circuit
  FlatMap<std::uint32_t> first_of_;       // (rank, peer) -> first queue pair
  std::deque<roce::Connection> connections_;
  std::vector<Message> messages_;
  std::vector<std::int32_t> free_messages_;
  std::vector<Operation> posts_;  // with a doorbell's latency
  std::vector<std::uint32_t> free_posts_;
  TimeBuckets<Event> pending_;
  std::vector<Event> current_;
  std::uint64_t events_ = 0, data_packets_ = 0;
  std::vector<std::vector<Completion>> ready_;  // of each rank, at this instant
  std::vector<std::int32_t> to_walk_;
  std::vector<Operation> operations_;
  std::vector<LinkUse> use_;
  PlannedPackets planned_;
  std::size_t next_change_ = 0;
  TimePs now_ = 0;
  bool failed_ = false, too_long_ = false;
};

}  // namespace genie::twin
