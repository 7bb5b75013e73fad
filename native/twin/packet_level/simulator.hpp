// The packet level: walkers and queue pairs of all ranks on simulated links, under the virtual clock.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/flat_map.hpp"
#include "core/loss.hpp"
#include "core/mix.hpp"
#include "roce/connection.hpp"
#include "roce/nic_port.hpp"
#include "roce/queue_pair.hpp"
#include "twin/fabric/network.hpp"
#include "twin/fabric/paths.hpp"
#include "twin/kernel/regions.hpp"
#include "twin/kernel/schedule.hpp"
#include "twin/levels/planned_packets.hpp"
#include "twin/network/links.hpp"
#include "twin/packet_level/sampler.hpp"
#include "twin/packet_level/standings.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

struct PacketTrace {
  TimePs time;                  // departure: end of serialisation at the sender's NIC
  std::int32_t source, target;  // ranks
  roce::Packet packet;
  bool lost;
};

class Simulator {
 public:
  Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
            const std::vector<const RankPlan*>& plans, std::vector<std::int32_t> host_of_rank,
            std::uint64_t seed, const roce::SpreadConfig& spread = {}, std::uint32_t threads = 1);
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  // Loses data packets from rank `source` to rank `target`: call before run.
  LossPlan& loss(std::int32_t source, std::int32_t target);
  void keep_trace(bool keep) { keep_trace_ = keep; }

  // Starts all walkers at time 0.
  void start();
  // Handles about `events` of the events before `until`; false when none of these are left, so that all have
  // come to that time, or something failed.
  bool run(std::uint64_t events, TimePs until = kNever);
  // No events are left at all, or something failed.
  bool over() const { return over_ || failed_; }
  // Between two calls of run nothing happens before that.
  TimePs next();
  // Keeps what links and pairs have come to at `time`, to which run has brought all; how many rows there are.
  std::size_t sample(TimePs time);
  Samples take_samples();

  bool done() const;
  // How many of the packets of the plan's messages have been sent: 0 to 1.
  double share_done();
  // What failed or what is being waited for, one line each; empty when all is done.
  std::vector<std::string> problems() const;
  // Links that are down on the ways of connections that gave up.
  std::vector<std::uint32_t> dead_links() const;

  TimePs now() const;
  std::uint64_t events() const;
  std::uint64_t data_packets() const;
  std::uint64_t dropped() const;
  const std::vector<Walker>& walkers() const { return walkers_; }
  const Links& links() const { return links_; }
  std::vector<PacketTrace> trace() const;  // in the order of time, then of ranks
  roce::QueuePairCounters totals(std::int32_t rank) const;

 private:
  struct Nic {  // one port of a host
    roce::NicPort port{0};
    std::vector<std::uint32_t> queue_pairs;  // NIC port's number -> queue pair
    std::uint32_t link = 0;
    TimePs busy_until = 0;
    TimePs expected = kNever;  // its event
    bool sending = false;
    bool limited = false;  // packets cost more than their time on the line
    bool retries = false;  // its link replays what it corrupts
  };
  struct alignas(64) HostQueuePair {  // what every packet asks for comes first, beside the queue pair's own
    std::uint32_t peer = 0;           // queue pair at the other end
    std::uint32_t route = 0;          // of its packets: place of the first link
    std::uint32_t nic = 0, on_port = 0;
    std::uint16_t port = 0;  // UDP source port
    bool is_free = false;    // switches pick its data's way
    LossPlan* loss = nullptr;
    std::uint32_t telemetry = 0;   // of the newest data, for its acknowledgement
    std::uint32_t connection = 0;  // into connections_
    roce::QueuePair queue_pair;
    std::int32_t rank = 0, peer_rank = 0;
    std::uint32_t number = 0;   // among those to this peer
    std::uint32_t sprayed = 0;  // into sprayed_routes_ and sprayed_ports_: its first

    // Early, what its next packet will touch: ranks with many connections find none of them in the cache.
    void fetch() const {
      const char* const lines = reinterpret_cast<const char*>(this);
      __builtin_prefetch(lines, 1);
      for (unsigned line = 4; line < 8; ++line) __builtin_prefetch(lines + 64 * line, 1);
    }
  };
  // What a part of the network and its ranks do on their own; see schedule.hpp.
  struct Process {
    TimePs now = 0;
    std::uint64_t events = 0, data_packets = 0;
    std::vector<std::int32_t> to_walk;
    std::vector<Operation> operations;
    std::vector<PacketTrace> trace;
    std::vector<std::string> errors;
    std::vector<std::uint32_t> given_up;  // connections
  };
  // What happens to a rank later: a node has slept, a host's latencies have passed.
  struct Later {
    enum class Kind : std::uint8_t { kSleep, kCompletion, kPost, kNotification, kSend };
    TimePs time;
    Kind kind;
    std::uint64_t order;      // of those at one time: a sleep's node, or how many were before
    std::uint32_t place = 0;  // of what was delayed in delayed_; queue pair of a notification or of a send
    friend bool operator<(const Later& a, const Later& b) {  // for a heap with the first on top
      return std::tie(a.time, a.kind, a.order) > std::tie(b.time, b.kind, b.order);
    }
  };
  struct Delayed {  // either
    Completion completion;
    Operation operation;
  };
  struct NicQueue {       // of a queue pair: its messages that the NIC has not read yet, in order
    bool delays = false;  // its port is a NIC's
    NicCosts::Queue costs;
    std::deque<roce::SendRequest> waiting;
  };

  static constexpr std::uint32_t kNoNic = ~std::uint32_t{0};
  static constexpr std::uint32_t kMoved = ~std::uint32_t{0};  // in place of a queue pair, at its former port
  static std::uint64_t key_of(std::int32_t rank, std::int32_t peer) {
    return pair_key(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(peer));
  }

  struct Sink;
  struct Hosts;
  class WindowLoop;
  friend struct Sink;

  std::int32_t host_of(std::int32_t rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }
  Process& process_of(std::int32_t rank) {
    return processes_[process_of_node_[static_cast<std::size_t>(host_of(rank))]];
  }
  void connect_all();
  void connect(std::int32_t rank, std::int32_t peer, std::uint32_t first, std::uint32_t back);
  void divide();
  std::vector<std::uint32_t> share_out() const;
  void plan_sources();
  std::int64_t allowed_bps(const HostQueuePair* begin, const HostQueuePair* end, TimePs now) const;
  std::uint64_t play(std::uint32_t number, TimePs end, std::uint64_t most);
  std::uint32_t nic_of(std::uint32_t link);
  void handle(Process& process, std::uint32_t source);
  void receive(Process& process, const Packet& on_wire);
  void port_free(Process& process, std::uint32_t nic);
  void wake(Process& process, std::uint32_t nic);
  void expect(const Process& process, Nic& nic);
  void transmit(Process& process, std::uint32_t nic);
  void deliver(Process& process, std::int32_t rank, const Completion& completion);
  void walk(Process& process, std::int32_t rank);
  void perform(Process& process, std::int32_t rank);
  // The next change of the network; kNever: none is left.
  TimePs next_change_time() const {
    return next_change_ < network_->changes.size() ? network_->changes[next_change_].time : kNever;
  }
  void apply_changes(TimePs now);
  void reroute(TimePs now);
  void set_sprayed_routes(const HostQueuePair& connection);
  std::vector<std::uint32_t> routes_of(std::uint32_t id) const;
  void do_later(Process& process, std::int32_t rank, const Later& later);
  void later(std::int32_t rank, Later entry);
  std::uint32_t keep(std::int32_t rank, const Delayed& delayed);
  void post(Process& process, std::int32_t rank, const Operation& operation);
  void send(Process& process, std::uint32_t queue_pair, const roce::SendRequest& request);
  void make_ready(Process& process, std::int32_t rank, const Completion& completion);

  const Network* network_;
  roce::QueuePairConfig config_;
  roce::SpreadConfig spread_;
  std::vector<std::int32_t> host_of_rank_;
  std::uint64_t seed_;
  bool sends_ect_;       // data may be marked
  bool asks_telemetry_;  // of the ports on its way
  Schedule schedule_;
  Links links_;
  std::vector<Walker> walkers_;
  std::vector<Nic> nics_;
  std::vector<std::uint32_t> nic_of_link_;
  std::vector<HostQueuePair, HugeAllocator<HostQueuePair>> queue_pairs_;
  FlatMap<std::uint32_t> first_of_;   // (rank, peer) -> first queue pair
  std::vector<NicQueue> nic_queues_;  // by queue pair; empty where NICs delay no message
  std::deque<roce::Connection>
      connections_;  // of each rank towards each peer; one for all where there is no choice
  // Of each connection as many as its source ports, where these are several.
  std::vector<std::uint32_t> sprayed_routes_;
  std::vector<std::uint16_t> sprayed_ports_;
  std::deque<LossPlan> loss_plans_;
  FlatMap<LossPlan*> loss_of_;
  std::vector<std::vector<Completion>> ready_;  // of each rank, for its walker at this instant
  struct Backlog {                              // of a rank
    std::vector<Later> heap;
    std::uint64_t order = 0;
    std::vector<Delayed> delayed;
    std::vector<std::uint32_t> unused;  // places of it
  };
  std::vector<Backlog> later_;  // of each rank
  // First source number of each kind of event; links start at 0.
  std::uint32_t nic_source_ = 0, later_source_ = 0, timer_source_ = 0;
  std::vector<Process> processes_;
  std::vector<std::uint32_t> process_of_node_;
  std::vector<Turn> turns_;    // of two windows that are played at once
  TimePs lookahead_ = kNever;  // least time that a packet takes from one process to another
  std::uint32_t threads_;      // that were asked for
  Standings standings_;
  std::size_t next_change_ = 0;  // of the network's
  bool failed_ = false, over_ = false, too_long_ = false;
  bool reached_ = false;  // the time until which it was to run
  std::unique_ptr<Sampler> sampler_;
  PlannedPackets planned_;
  bool keep_trace_ = false;
};

}  // namespace genie::twin
