// The walker: one rank's plan in motion. Pure: advance(now, completions) -> operations.
//
// A sleep that ends late does not delay the sleeps after it. They follow from when it was due, so that
// lateness is caught up and never adds up. Messages start when they can, which is now.
//
// A node becomes ready when its dependencies are done and its release time has come. It starts when its slot
// is free (lowest row first, over all slots). It ends when its sleep, its message or all steps of its
// collective are done.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "core/flat_map.hpp"
#include "core/fold.hpp"
#include "core/time.hpp"
#include "walker/plan.hpp"

namespace genie {

// Event that the driver reports to the walker.
struct Completion {
  enum class Type : std::uint8_t {
    kTimer,    // the operation's time has come
    kSent,     // all of a message has been acknowledged
    kArrived,  // all of a message has arrived, in order per peer
  };
  Type type = Type::kTimer;
  std::uint64_t handle = 0;       // kTimer, kSent: of the operation
  std::int32_t peer = 0;          // kArrived: sending rank
  std::uint32_t tag = 0;          // kArrived
  std::int64_t size_bytes = 0;    // kArrived
  TimePs first = 0;               // kArrived: first packet
  TimePs time = 0;                // when it happened; at most `now`
  std::uint32_t retransmits = 0;  // kSent: packets sent again
};

// Operation that the walker requests from the driver.
struct Operation {
  enum class Type : std::uint8_t {
    kTimer,
    kSend,
    kMeet,   // of a collective that the driver plays: a timer once all of the group are there
    kBegin,  // of a collective whose start the driver wants to hear of
  };
  Type type = Type::kTimer;
  std::uint64_t handle = 0;
  std::int32_t peer = 0;        // kSend: receiving rank; kMeet, kBegin: group
  std::uint32_t tag = 0;        // kSend, kMeet, kBegin
  std::int64_t size_bytes = 0;  // kSend
  TimePs at = 0;                // kTimer: when
};

struct NodeRecord {
  TimePs ready = -1, start = -1, end = -1;  // -1: not yet
  TimePs overshoot = 0;                     // lateness of the sleep's end
};

struct SendRecord {
  std::int32_t node = 0, peer = 0;
  std::int64_t messages = 0, size_bytes = 0, retransmits = 0;
  TimePs post = -1, acked = -1, busy = 0, busy_since = 0;
  std::int64_t outstanding = 0;
};

struct ReceiveRecord {
  std::int32_t node = 0, peer = 0;
  std::int64_t messages = 0, size_bytes = 0;
  TimePs first = -1, last = -1;
};

class Walker final : public Fold::Handles {
 public:
  // `whole`: collectives are not taken apart, the driver says when one is over. `keeps_records`: of nodes,
  // which take three times the memory of the rest.
  Walker(const SharedPlan& shared, const RankPlan& plan, bool whole = false, bool keeps_records = true);

  // Of a binding's collectives or messages: the walker plays them, tells the driver of their start too, or
  // the driver plays them (held).
  enum class Play : std::uint8_t { kOwn, kTold, kHeld };
  // By binding; before begin().
  void set_plays(std::vector<Play> plays) { plays_ = std::move(plays); }
  Play play_of(std::int32_t node) const {
    return plays_.empty() ? Play::kOwn
                          : plays_[static_cast<std::size_t>(table_->binding[static_cast<std::size_t>(node)])];
  }
  // The records of a held collective, as they are when time 0 is `from`.
  void take_held(std::int32_t node, std::span<const SendRecord> sends,
                 std::span<const ReceiveRecord> receives, TimePs from);

  // All ranks that it sends to or receives from, in ascending order.
  std::vector<std::int32_t> peers() const { return peers_of(*shared_, *plan_); }
  // Back to before the first node.
  void reset();
  // Before begin(): goes on from another's state, between two calls of that one, with this plan. It may do so
  // from several, which have other nodes. `rows`: of the other's nodes, here; -1: it has not begun. `ranks`:
  // its peers, here. No node has a slot.
  void take_over(const Walker& earlier, std::span<const std::int32_t> rows,
                 std::span<const std::int32_t> ranks);
  // A handle of the other, here.
  static std::uint64_t renumbered(std::uint64_t handle, std::span<const std::int32_t> rows);
  // Starts the nodes that have not begun and depend on nothing that is left.
  void begin(TimePs now, std::vector<Operation>& operations);
  void advance(TimePs now, std::span<const Completion> completions, std::vector<Operation>& operations);

  // The messages of a collective that was played as a whole, as if all took from `from` to `to`; after the
  // end.
  void record_whole(std::int32_t node, TimePs from, TimePs to);

  // Between two calls: what is in progress. No node starts or ends between equal states.
  void fold(Fold& fold);
  // Of a handle, and of one after the latest shift: steps count from the first of their collective that is
  // not ready or still waits.
  std::uint64_t relative(std::uint64_t handle) override;
  std::uint64_t moved(std::uint64_t handle) const override;
  // A collective in progress. `base`: its first step that is not ready or still waits. `lowest`: the first
  // that the latest fold dealt with. `ready`: the first that is not ready.
  struct Progress {
    std::int32_t instance = 0, base = 0, lowest = 0, ready = 0;
  };
  std::vector<Progress> in_progress() const;
  // The steps that its collectives in progress have not done.
  std::int64_t steps_left() const;
  // The node's own timers, at a start or an end.
  static bool is_of_node(std::uint64_t handle);
  static std::uint64_t handle_of_node(std::int32_t node);
  // The number of times, at most `most`, that a collective can do again what it has done between two equal
  // states. The later is that of now. Its stride is how far the base has moved: each step is compared with
  // the one a stride later.
  std::int64_t repeats(const Progress& earlier, const Progress& later, std::int64_t most) const;

  // An estimate of the periods after which all steps that it then deals with are alike; 1 or more.
  std::int64_t periods_until_alike(const Progress& earlier, const Progress& later) const;

  // The row of steps that comes again furthest, from the first quarter of what is left on. Of such rows it is
  // the shortest. `receives`: its steps that are not sends. 0: there is none.
  struct Loop {
    std::int32_t steps = 0, receives = 0;
  };
  Loop loop(std::int32_t instance) const;

  // Early, what advance() will touch: first the walker itself, then what a completion leads to.
  void fetch() const {
    const char* const lines = reinterpret_cast<const char*>(this);
    for (unsigned line = 0; line < 5; ++line) __builtin_prefetch(lines + 64 * line, 1);
  }
  void fetch_for(const Completion& completion) const {
    __builtin_prefetch(states_.data() + (completion.handle >> 32), 1);
    __builtin_prefetch(slot_busy_.data(), 1);
    __builtin_prefetch(slot_listed_.data(), 1);
    __builtin_prefetch(slot_free_.data(), 1);
    __builtin_prefetch(slot_queue_.data(), 1);
    __builtin_prefetch(free_slots_.data(), 1);
  }

  std::size_t memory_bytes() const;  // of its state, about
  bool done() const { return unfinished_ == 0; }
  bool has_begun(std::int32_t node) const { return states_[static_cast<std::size_t>(node)].waits_for < 0; }
  bool has_ended(std::int32_t node) const {
    return states_[static_cast<std::size_t>(node)].waits_for == kEnded;
  }
  using RowQueue = std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>>;
  // Nodes that start one after the other, each alone and at once when the one before has ended, as far as is
  // known now.
  class Following {
   public:
    // Follows this walker from now on, which must not move meanwhile.
    void follow(const Walker& walker) {
      walker_ = &walker;
      waits_for_.clear();
      used_ = 0;
    }
    // The node that starts when `last` ends: first a node in progress, then the node of the call before. -1:
    // not known, or several start at once.
    std::int32_t next(std::int32_t last);

   private:
    struct SlotQueue {
      std::int32_t slot = -1;
      RowQueue rows;
    };
    struct Waiting {
      std::int32_t row, dependencies;
    };

    bool has_queue(std::int32_t slot) const {
      return std::any_of(queues_.begin(), queues_.begin() + used_,
                         [slot](const SlotQueue& it) { return it.slot == slot; });
    }
    RowQueue& queue_of(std::int32_t slot);
    // One more dependency of a row is done; how many are not.
    std::int32_t wait_less(std::int32_t row);

    const Walker* walker_ = nullptr;
    std::vector<Waiting> waits_for_;  // nodes whose dependencies are then done in part
    std::vector<SlotQueue>
        queues_;  // of slots that are free then; those from used_ on are kept for their memory
    std::ptrdiff_t used_ = 0;
  };
  bool keeps_records() const { return keeps_records_; }
  TimePs last_end() const { return last_end_; }  // of the nodes that have ended
  std::int64_t unfinished() const { return unfinished_; }
  std::int64_t steps_done() const { return steps_done_; }
  // The first message whose size is not what its receive expects, in words; "" while there is none.
  const std::string& error() const { return error_; }
  // Operations that nodes in progress wait for, one line each, at most `limit`. If there is no such node: the
  // first that cannot start.
  std::vector<std::string> waiting(std::size_t limit) const;

  // Rows of nodes in the order in which they end, from now on.
  void keep_end_order() { keeps_end_order_ = true; }
  const std::vector<std::int32_t>& end_order() const { return end_order_; }
  // Empty without records.
  const std::vector<NodeRecord>& nodes() const { return records_; }
  const std::vector<SendRecord>& sends() const { return sends_; }
  const std::vector<ReceiveRecord>& receives() const { return receives_; }

 private:
  // A node on its way. `time`: the latest end of the dependencies that are done; once it is ready, when that
  // was; once it has started, when.
  struct NodeState {
    TimePs time = 0;
    std::int32_t waits_for = 0;  // dependencies; then a phase
    std::int32_t place = -1;     // of a message's record, or of a collective's instance
  };
  static constexpr std::int32_t kReady = -1, kStarted = -2, kEnded = -3;  // phases

  struct Instance {  // a collective in progress
    std::int32_t node = 0;
    std::int32_t remaining_steps = 0;
    std::size_t counters = 0;                       // into counters_: dependencies left of each step
    std::size_t first_send = 0, first_receive = 0;  // into sends_, receives_
    std::size_t first_channel = 0;                  // into channels_, where GPUs take time
    std::int32_t top = -1;                          // highest step that another has counted down
    // `ready`: the first step that is not ready. `base`: the first that is not ready or still waits.
    // `shifted`: how far the latest shift moved it. `lowest`: the first step that the latest fold dealt
    // with: at the base, of a handle, of a wait or of a receive. `last_counted`: the last whose counter it
    // visited.
    std::int32_t ready = 0, base = 0, shifted = 0, lowest = 0, last_counted = -1;
  };
  // A channel of a collective on a GPU. `free`: when it can work on its next send. `left`, `received`: when
  // its last send leaves, and when its last receive is done.
  struct Channel {
    // Sends of a channel leave one after another, and so end its receives: timers of one time have no order.
    static constexpr TimePs kApart = 1000;

    TimePs free = 0, left = -kApart, received = -kApart;
  };
  struct Arrival {
    std::int64_t size_bytes = 0;
    TimePs first = 0, time = 0;
    std::int32_t next = -1;
  };
  struct Lane {                  // receives of one node from one peer under one tag, in order
    std::int32_t instance = -1;  // -1: a recv node
    std::int32_t step = 0;       // next receive; of a recv node: its row
    std::int32_t next = -1;
  };
  struct CreditWait {
    std::int32_t instance = 0, step = 0, next = -1;
  };
  struct Match {  // one (peer, tag)
    std::int32_t lane_head = -1, lane_tail = -1;
    std::int32_t arrival_head = -1, arrival_tail = -1;
  };
  struct CreditMatch {
    std::int64_t credits = 0;
    std::int32_t wait_head = -1, wait_tail = -1;
  };

  const StepTemplate& steps_of(std::int32_t node) const {
    return shared_->templates[static_cast<std::size_t>(plan_->bound(node).template_id)];
  }
  std::int64_t block_size(std::int32_t node, std::int32_t step) const;
  std::int32_t peer_rank(const Binding& own, std::int32_t peer_value) const {
    return shared_->peer_rank(own, peer_value);
  }

  void run();
  std::int32_t take_startable();
  void look_at(std::int32_t slot);
  void timer(const Completion& completion);
  void make_ready(std::int32_t node);
  void start(std::int32_t node);
  void end(std::int32_t node);
  std::int32_t add_instance(std::int32_t node);
  void start_collective(std::int32_t node);
  void begin_steps(std::int32_t instance);
  void receive_done(std::int32_t instance, std::int32_t step);
  TimePs leaves_at(const Instance& at, std::int32_t step, std::int64_t size);
  void step_ready(std::int32_t instance, std::int32_t step);
  void send_step(std::int32_t instance, std::int32_t step);
  void step_done(std::int32_t instance, std::int32_t step);
  std::size_t take_counters(std::int32_t steps);
  void give_counters(const Instance& instance);
  std::size_t take_channels(std::int32_t channels);
  void give_channels(const Instance& instance);
  void post(std::size_t record, std::int32_t peer, std::uint32_t tag, std::int64_t size_bytes,
            std::uint64_t handle);
  void sent(const Completion& completion);
  void open_lane(std::int32_t peer, std::uint32_t tag, Lane lane);
  void arrived(const Completion& completion);
  bool deliver(Lane& lane, const Arrival& arrival, std::int32_t peer);
  void skip_empty(Lane& lane) const;
  void credit_arrived(std::uint64_t key);
  std::string missing_steps(std::int32_t node) const;
  void take_over_records(const Walker& earlier, std::span<const std::int32_t> rows,
                         std::span<const std::int32_t> ranks);
  void take_over_nodes(const Walker& earlier, std::span<const std::int32_t> rows);
  void take_over_matches(const Walker& earlier, std::span<const std::int32_t> rows,
                         std::span<const std::int32_t> ranks);
  void fold(Fold& fold, Instance& instance);
  std::int32_t find_last_counted(const Instance& instance, const std::vector<std::int32_t>& waiting) const;
  std::int32_t* fold_waits(Fold& fold, std::int32_t& head);
  bool does_same(const Instance& instance, std::int32_t step, std::int32_t stride) const;
  class Comparison;

  // Fields that every node uses come first.
  const SharedPlan* shared_;
  const RankPlan* plan_;
  const NodeTable* table_;
  bool whole_, keeps_records_;
  bool keeps_end_order_ = false;
  std::vector<Play> plays_;  // by binding; empty: all kOwn
  TimePs now_ = 0;
  TimePs logical_ = 0;  // of what is being handled: a timer's due time, `now` for everything else
  std::vector<Operation>* out_ = nullptr;
  std::int64_t unfinished_ = 0, steps_done_ = 0;
  TimePs last_end_ = 0;
  std::vector<NodeState> states_;
  RowQueue runnable_;                     // ready nodes that need no slot
  std::vector<std::int32_t> free_slots_;  // slots to be looked at, free or not, each once
  std::vector<std::uint8_t> slot_busy_, slot_listed_;
  std::vector<TimePs> slot_free_;
  std::vector<RowQueue> slot_queue_;
  std::vector<std::pair<std::int32_t, std::int32_t>>
      finished_steps_;  // (instance, step), from next_finished_ on
  std::size_t next_finished_ = 0;

  std::vector<NodeRecord> records_;
  std::vector<Instance> instances_;
  std::vector<std::int32_t> active_;  // instances in progress
  std::vector<Channel> channels_;
  std::array<std::vector<std::size_t>, 32>
      free_channels_;  // places in channels_, by the logarithm of their room
  std::vector<std::int32_t> counters_;
  std::array<std::vector<std::size_t>, 32>
      free_counters_;  // places in counters_, by the logarithm of their room
  FlatMap<Match> matches_;
  FlatMap<CreditMatch> credits_;
  std::vector<Lane> lanes_;
  std::vector<Arrival> arrivals_;
  std::vector<CreditWait> credit_waits_;
  std::vector<std::int32_t> free_lanes_, free_arrivals_, free_credit_waits_;
  std::vector<SendRecord> sends_;
  std::vector<ReceiveRecord> receives_;
  std::vector<std::int32_t> end_order_;
  std::string error_;
};

bool all_done(const std::vector<Walker>& walkers);
// Errors of the walkers; if there are none, the operations for which they wait, a few lines.
std::vector<std::string> problems_of(const std::vector<Walker>& walkers);

}  // namespace genie
