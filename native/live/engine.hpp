// The live world's driver of one rank: walker and queue pairs on UDP sockets and the wall clock.
//
// One thread: receive, fire timers, walk, send what is due, sleep until the next due time. It is also a soft
// NIC: packets leave at absolute times given by a line rate (native/roce/nic_port.hpp).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/loss.hpp"
#include "core/time.hpp"
#include "live/udp_socket.hpp"
#include "roce/icrc.hpp"
#include "roce/nic_port.hpp"
#include "roce/queue_pair.hpp"
#include "roce/wire.hpp"
#include "walker/walker.hpp"

namespace genie::live {

struct EngineConfig {
  std::int32_t rank = 0;
  std::int32_t local_rank = 0;  // among the ranks that share this address
  std::uint32_t ipv4 = 0;       // host integer
  std::uint16_t port = roce::kUdpPort;
  bool shared_port = false;   // several ranks on this address
  bool offload = true;        // segmentation and receive offload
  bool spin = false;          // poll instead of sleeping in the kernel
  std::int64_t rate_bps = 0;  // of the soft NIC; 0: as fast as it goes
  TimePs debt_limit = 2000 * kPsPerUs;
  std::uint32_t frame_overhead_bytes = 38;
  std::uint32_t rkey = 0;
  std::uint64_t memory_bytes = 1 << 20;  // a peer's message must fit
  TimePs stall_limit = 20 * kPsPerSecond;
  roce::QueuePairConfig queue_pair;
};

struct PeerAddress {
  std::uint32_t ipv4 = 0;
  std::int32_t local_rank = 0;
  std::uint32_t rkey = 0;
  std::uint32_t first_psn = 0;  // of what it sends to us
};

struct EngineCounters {
  std::uint64_t datagrams_sent = 0, datagrams_received = 0, bytes_sent = 0, bytes_received = 0;
  std::uint64_t send_calls = 0, receive_calls = 0, sleeps = 0;
  std::uint64_t bad_icrc = 0, malformed = 0, strangers = 0, wrong_rank = 0, injected_losses = 0;
  TimePs latest_departure = 0;  // worst lateness of a paced packet
};

// The line rate is `factor` times the configured one between two engine times.
struct RateFault {
  TimePs from = 0, until = kNever;
  double factor = 1.0;
};

inline constexpr std::size_t kReceiveMessages = 16, kReceiveBytes = 65536;  // of one call
inline constexpr int kReceiveCalls = 8;  // before timers and departures have their turn

enum class RunState : std::uint8_t { kDone, kTimeout, kFailed };

class Engine {
 public:
  explicit Engine(const EngineConfig& config);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Binds the receiving socket; "" or what went wrong.
  std::string open();
  // Opens a connection to every rank but our own. `first_psn`: of what we send to each.
  std::string connect(const std::vector<PeerAddress>& peers, const std::vector<std::uint32_t>& first_psn);

  void set_plan(const SharedPlan& shared, const RankPlan& plan);
  // Waits for `origin` (engine time), the plan's time 0, answering peers, and starts the plan.
  RunState begin(TimePs origin);
  // Goes on playing until the plan is done, something fails or `deadline` passes.
  RunState run(TimePs deadline);
  // Answers peers until `deadline`, without playing.
  RunState serve(TimePs deadline);

  TimePs now() const;  // picoseconds since this engine was made
  // The steady clock's nanoseconds at engine time 0.
  std::int64_t epoch_ns() const { return epoch_ns_; }
  const Walker* walker() const { return walker_ ? &*walker_ : nullptr; }
  const std::string& error() const { return error_; }
  std::string waiting() const;

  void add_rate_fault(const RateFault& fault) { rate_faults_.push_back(fault); }
  void clear_rate_faults() { rate_faults_.clear(); }
  void delay_path(std::int32_t peer, TimePs delay);
  LossPlan& loss(std::int32_t peer);
  void keep_trace(bool keep) { keep_trace_ = keep; }

  struct TraceEntry {
    TimePs time;
    std::int32_t target;
    roce::Packet packet;
    bool lost;
  };
  const std::vector<TraceEntry>& trace() const { return trace_; }
  const EngineCounters& counters() const { return counters_; }
  roce::QueuePairCounters totals() const;
  std::uint16_t source_port(std::int32_t peer) const;

 private:
  struct Connection {
    explicit Connection(roce::QueuePair pair) : queue_pair(std::move(pair)) {}
    roce::QueuePair queue_pair;
    std::int32_t rank = 0;
    std::uint32_t destination_qpn = 0;
    std::uint32_t rkey = 0;
    sockaddr_in target{};
    std::uint16_t source_port = 0;
    Socket sender;
    roce::IcrcFlow out_flow, in_flow;
    std::uint16_t in_flow_port = 0;  // the peer's source port that in_flow is for
    LossPlan loss;
    TimePs delay = 0;
  };
  struct Datagram {  // a packet on its way to the socket
    TimePs departure = 0;
    std::uint64_t number = 0;  // in the order of departure, which a delay must keep
    std::uint32_t connection = 0;
    std::uint32_t header_bytes = 0, payload_bytes = 0;
    const std::byte* payload = nullptr;
    std::array<std::byte, 40> header{};
  };
  enum class TimerKind : std::uint8_t { kWalker, kQueuePair };
  struct Timer {
    TimePs at;
    TimerKind kind;
    std::uint64_t data;
    // Timers of one instant fire in the twin's order: walkers' before queue pairs', each kind by number.
    bool operator>(const Timer& other) const {
      return std::tie(at, kind, data) > std::tie(other.at, other.kind, other.data);
    }
  };
  struct Later {
    bool operator()(const Datagram& a, const Datagram& b) const {
      return std::tie(a.departure, a.number) > std::tie(b.departure, b.number);
    }
  };
  struct Sink;
  friend struct Sink;

  RunState loop(TimePs deadline, bool playing);
  void receive();
  void datagram(std::span<const std::byte> bytes, const sockaddr_in& from, std::uint16_t index, TimePs now);
  bool icrc_right(Connection& connection, std::span<const std::byte> bytes, std::uint16_t from_port,
                  std::uint16_t index) const;
  void fire_timers(TimePs now);
  void walk(TimePs now);
  void perform(TimePs now);
  void transmit(TimePs now);
  bool stage(TimePs now);
  void build(const roce::Packet& packet, std::uint32_t connection, TimePs departure, Datagram& out) const;
  void flush();
  std::size_t send_run(std::size_t first);
  std::int64_t rate_at(TimePs now) const;
  void sleep(TimePs now, TimePs until);
  TimePs next_due(TimePs now) const;
  bool stalled(TimePs now) const;

  EngineConfig config_;
  std::int64_t epoch_ns_ = 0;
  Socket receiver_;
  std::deque<Connection> connections_;           // index: rank, our own included but unused
  std::vector<std::byte> source_, destination_;  // the memory that messages come from and go to
  roce::NicPort port_;
  std::optional<Datagram> staged_;  // being serialised
  std::priority_queue<Datagram, std::vector<Datagram>, Later> delayed_;
  std::vector<Datagram> batch_;  // due, for the next flush
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::optional<Walker> walker_;
  TimePs origin_ = 0;
  std::vector<Completion> completions_;
  std::vector<Operation> operations_;
  std::vector<std::byte> receive_buffer_;
  std::span<const std::byte> payload_;  // of the packet being received
  std::vector<RateFault> rate_faults_;
  std::uint64_t datagrams_ = 0;  // staged so far
  int turn_ = 0;                 // packets of the queue pair whose turn it is, unpaced
  std::size_t walker_timers_ = 0;
  TimePs last_progress_ = 0, last_timer_ = 0;
  bool keep_trace_ = false;
  std::vector<TraceEntry> trace_;
  EngineCounters counters_;
  std::string error_;
};

}  // namespace genie::live
