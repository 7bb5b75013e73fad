// The live world's driver of one rank: the walker on the soft NIC.
//
// One thread: receive, fire timers, walk, send what is due, sleep until the next due time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/loss.hpp"
#include "core/time.hpp"
#include "live/soft_nic.hpp"
#include "roce/connection.hpp"
#include "walker/walker.hpp"

namespace genie::live {

struct EngineConfig {
  std::int32_t rank = 0;
  std::uint64_t message_max_bytes = 1 << 20;  // of any rank
  bool spin = false;                          // poll instead of sleeping in the kernel
  bool verify = false;  // every message's bytes are its own and are checked at the receiver
  TimePs stall_limit = 20 * kPsPerSecond;
  roce::SpreadConfig spread;         // over a connection's queue pairs
  roce::QueuePairConfig queue_pair;  // each of them
  NicConfig nic;                     // the engine sets its memory
};

// A rank as the others reach it.
struct Peer {
  IpAddress address;
  std::vector<std::uint32_t> qpns;  // those that we send to, one for each of the connection's queue pairs
  std::vector<std::uint32_t> first_psns;      // of what it sends to us
  std::vector<std::uint32_t> our_first_psns;  // of what we send to it
  std::vector<std::uint16_t> source_ports;    // of what we send to it; those of a sprayed queue pair together
  std::uint32_t window_packets = 0;           // its packets in flight, at most; 0: not known
  bool exact_ports = false;                   // these, even if others use them
  std::uint32_t rkey = 0;
  std::uint64_t memory_address = 0;  // where it takes messages
  bool foreign = false;              // no softroce
  // If the rank checks messages once they are there, those of each queue pair have places of their own. They
  // take these in turn: `slots` of `slot_bytes` each from an address on. Without slots all messages go to the
  // one place.
  std::vector<std::uint64_t> places = {};
  std::uint64_t slot_bytes = 0;
  std::uint32_t slots = 0;
};

struct EngineCounters {
  std::uint64_t verified_bytes = 0, wrong_bytes = 0;
};

enum class RunState : std::uint8_t { kDone, kTimeout, kFailed };
// An engine fails for no progress, for a request that the peer refused, or for a connection that it ended
// itself. kOther: its error names another reason.
enum class Failure : std::uint8_t { kNone, kStalled, kRefused, kEnded, kOther };

class Engine final : private NicOwner {
 public:
  explicit Engine(const EngineConfig& config);

  std::string open() { return nic_.open(); }
  std::string open_with(int descriptor) { return nic_.open_with(descriptor); }
  // Opens connections to all ranks but our own, in rank order.
  std::string connect(const std::vector<Peer>& peers);

  void set_plan(const SharedPlan& shared, const RankPlan& plan);
  // Waits for `origin` (engine time), the plan's time 0, answering peers, and starts the plan.
  RunState begin(TimePs origin);
  // Goes on playing until the plan is done, something fails or `deadline` passes.
  RunState run(TimePs deadline);
  // Answers peers until `deadline`, without playing.
  RunState serve(TimePs deadline);

  TimePs now() const { return nic_.now(); }
  std::int64_t epoch_ns() const { return nic_.epoch_ns(); }
  const Walker* walker() const { return walker_ ? &*walker_ : nullptr; }
  const std::string& error() const { return error_; }
  Failure failure() const { return error_.empty() ? Failure::kNone : failure_; }
  std::string waiting() const;

  // Faults, which delay and lose all that goes to a peer.
  SoftNic& nic() { return nic_; }
  const SoftNic& nic() const { return nic_; }
  void delay_path(std::int32_t peer, TimePs delay);
  LossPlan& loss(std::int32_t peer) { return links_[static_cast<std::size_t>(peer)].loss; }

  const EngineCounters& counters() const { return counters_; }
  std::int32_t rank_of(std::uint32_t queue_pair) const;
  std::vector<std::uint16_t> source_ports(std::int32_t peer) const;
  // Those that no other can take the place of; 0 for the others.
  std::vector<std::uint16_t> certain_ports(std::int32_t peer) const;
  // A peer's packets come from these; 0: from any.
  void expect_ports(std::int32_t peer, const std::vector<std::uint16_t>& ports);

 private:
  struct Link {  // to one other rank
    Link(const roce::SpreadConfig& config, bool has_fifo) : connection(config, has_fifo) {}
    roce::Connection connection;
    LossPlan loss;
    TimePs delay = 0;
    std::uint32_t rkey = 0;
    std::uint64_t memory_address = 0;
    std::vector<std::uint64_t> places;
    std::uint64_t slot_bytes = 0;
    std::uint32_t slots = 0;
    std::vector<std::uint32_t> posted, delivered;  // messages, by queue pair: they say what the bytes are
  };
  struct Timer {
    TimePs at;
    std::uint64_t handle;
    bool operator>(const Timer& other) const {
      return std::tie(at, handle) > std::tie(other.at, other.handle);
    }
  };

  void sent(std::uint32_t queue_pair, std::uint64_t handle, roce::Status status, std::uint32_t retransmits,
            TimePs now) override;
  void delivered(std::uint32_t queue_pair, const roce::Delivery& delivery, const Receive* receive,
                 TimePs now) override;
  void placed(std::uint32_t queue_pair, std::uint64_t address, std::span<const std::byte> bytes) override;

  RunState loop(TimePs deadline, bool playing);
  void fire_timers(TimePs now);
  void walk(TimePs now);
  void perform();
  void send(const Operation& operation);
  roce::SendRequest request_of(Link& link, std::int32_t peer, const roce::Connection::Part& part) const;
  TimePs next_due(TimePs now) const;
  bool stalled(TimePs now) const;
  void look_for_errors();
  std::string cannot_send(std::int32_t peer, const std::string& problem) const;
  std::string name_of(std::uint32_t queue_pair) const;
  std::uint32_t spread_index(std::uint32_t queue_pair) const;
  bool is_sprayed() const { return config_.queue_pair.spray > 1; }

  EngineConfig config_;
  std::deque<Link> links_;  // index: rank, our own included but unused
  SoftNic nic_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;  // the walker's
  std::optional<Walker> walker_;
  TimePs origin_ = 0;
  std::vector<Completion> completions_;
  std::vector<Operation> operations_;
  TimePs last_progress_ = 0, last_timer_ = 0;
  EngineCounters counters_;
  std::string error_;
  Failure failure_ = Failure::kOther;  // of a non-empty error
};

}  // namespace genie::live
