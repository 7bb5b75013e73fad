// The packet level: hosts on simulated links, under the virtual clock. Composes the owners of its parts, and
// plays their events.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/loss.hpp"
#include "roce/queue_pair.hpp"
#include "roce/spread.hpp"
#include "twin/fabric/network.hpp"
#include "twin/fabric/planned_packets.hpp"
#include "twin/host/hosts.hpp"
#include "twin/host/process.hpp"
#include "twin/host/sampler.hpp"
#include "twin/kernel/regions.hpp"
#include "twin/kernel/renumbering.hpp"
#include "twin/kernel/schedule.hpp"
#include "twin/kernel/scope.hpp"
#include "twin/network/links.hpp"
#include "twin/packet_level/checkpoint.hpp"
#include "twin/packet_level/standings.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

class Simulator {
 public:
  // Plays apart what ranks hold, and hears of what they begin.
  class Listener {
   public:
    virtual ~Listener() = default;
    // All have come to `now` or less; starts are in no order.
    virtual void began(std::vector<RankStart> starts, TimePs now) = 0;
  };

  // `keeps_records`: by rank, whether its nodes and messages are recorded; empty: all.
  Simulator(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
            const std::vector<const RankPlan*>& plans, std::vector<std::int32_t> host_of_rank,
            std::uint64_t seed, const roce::SpreadConfig& spread = {}, std::uint32_t threads = 1,
            const std::vector<bool>& keeps_records = {});
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  // Loses data packets from rank `source` to rank `target`: call before start.
  LossPlan& loss(std::int32_t source, std::int32_t target) {
    return hosts_.queue_pairs().loss(source, target);
  }
  void keep_trace(bool keep) { hosts_.keep_trace(keep); }

  std::uint32_t threads() const { return threads_; }

  // Starts all walkers at time 0.
  void start() {
    connect();
    begin(0);
  }
  // The same in two parts: connections, then the nodes that begin, at 0 or at the time of a checkpoint.
  void connect();
  void begin(TimePs now);
  // Its state, where all have come to `now`. An episode, of which nothing is drawn.
  // `reused`: an earlier one of this simulation, whose memory the checkpoint takes.
  Checkpoint checkpoint(TimePs now, std::optional<Checkpoint> reused = {}) const;
  // Between connect() and begin() at the checkpoint's time: goes on from the state of others. Of two states
  // that have used a host `to` says which has used it last. `is_alone`: it is the only one. Their queue pairs
  // get their numbers from the simulator.
  void take_over(const Checkpoint& earlier, Renumbering to, bool is_alone);
  // After connect(): goes on from the state of another with the same plan and network.
  void restore(const Checkpoint& earlier);
  // Before connect(): the configuration that its queue pairs have in common with those that it takes over.
  void share_config(std::shared_ptr<const roce::QueuePairConfig> config) {
    hosts_.queue_pairs().share_config(std::move(config));
  }
  // Handles about `events` of the events before `until`. False when none of these are left, so that all have
  // come to that time, when something failed, or after abandon().
  bool run(std::uint64_t events, TimePs until = kNever);
  // No events are left at all, or something failed.
  bool over() const { return over_ || failed_ || abandoned_; }
  // Between two calls of run nothing happens before that.
  TimePs next();
  // Keeps what links and pairs have come to at `time`, to which run has brought all; how many rows there are.
  std::size_t sample(TimePs time);
  Samples take_samples();

  // The reason why no state of this simulation can be folded; "" where it can.
  std::string unfoldable() const;
  // True where its state, or that of a scope, can be folded now: all have come to `now`.
  bool can_fold() const { return can_fold(whole_); }
  bool can_fold(const Scope& scope) const { return hosts_.can_fold(scope); }
  void fold(Fold& fold) { this->fold(fold, whole_); }
  // The same of a scope, with all that is shared.
  void fold(Fold& fold, const Scope& scope);
  // All that a scope has for itself.
  void fold_own(Fold& fold, const Scope& scope);
  const Scope& whole() const { return whole_; }
  void fold_ranks(Fold& fold, const std::vector<std::int32_t>& ranks) {
    PacketBases bases;
    for (const std::int32_t rank : ranks) hosts_.fold_rank(fold, rank, bases);
  }
  // A shift of the state has skipped `by` until `now`.
  void move(TimePs by, TimePs now);
  // Takes hosts that sleep out of a scope. Nothing has happened to them since `since`, and nothing will
  // before a node of theirs starts, or a message reaches them.
  struct Sleep {
    TimePs latest = -1, next = kNever;  // events of those that sleep
    std::uint64_t active = 0;           // hosts of the scope that have had events since then
  };
  Sleep leave_out_sleepers(Scope& scope, TimePs since);
  // The processes of a scope's hosts, in ascending order.
  std::vector<std::uint32_t> hosts_in(const Scope& scope) const;
  // A fold has moved a scope: its events come later by `events_by`, and the latest events of its hosts were
  // later by `hosts_by`.
  void move(const Scope& scope, TimePs events_by, TimePs hosts_by);
  // Nothing happens before `now` any more, which may be before the latest event.
  void go_on_from(TimePs now) { schedule_.move(0, now); }
  // To which all have come.
  TimePs come_to() const { return come_to_; }
  // Before start, with one thread. The listener lives as long.
  void set_listener(Listener& listener) {
    listener_ = &listener;
    hosts_.ranks().keep_starts();
  }
  // Results of packets that were played apart.
  void add_played_until(TimePs time) { played_until_ = std::max(played_until_, time); }
  void add_played(std::int32_t rank, const roce::QueuePairCounters& counters, std::uint64_t data_packets);
  // Packets that an estimate has skipped; modulo 2^64, so that a number can be taken back.
  void add_data_packets(std::uint64_t packets) { played_packets_ += packets; }
  // Ends the run: what was played apart does not fit, or has stopped.
  void abandon() { abandoned_ = true; }
  bool is_abandoned() const { return abandoned_; }
  bool is_failed() const { return failed_; }
  Links& links() { return links_; }
  // Each node is a process of its own.
  bool is_divided() const { return processes_.count() == static_cast<std::uint32_t>(network_->nodes); }
  TimePs window_ps() const { return schedule_.window_ps(); }
  // The next change of the network; kNever: none is left.
  TimePs next_change_time() const {
    return next_change_ < network_->changes.size() ? network_->changes[next_change_].time : kNever;
  }
  Hosts& hosts() { return hosts_; }

  bool done() const;
  // Share of the packets of the plan's messages that have been sent: 0 to 1.
  double share_done();
  // Failures, or what ranks wait for, one line each; empty when all is done.
  std::vector<std::string> problems() const;
  // Links that are down on the paths of connections that gave up.
  std::vector<std::uint32_t> dead_links() const;

  TimePs now() const;
  std::uint64_t events() const { return standings_.events(); }
  std::uint64_t data_packets() const;
  std::uint64_t dropped() const;
  const std::vector<Walker>& walkers() const { return hosts_.ranks().walkers(); }
  const Links& links() const { return links_; }
  std::vector<PacketTrace> trace() const;  // in the order of time, then of ranks
  roce::QueuePairCounters totals(std::int32_t rank) const;

 private:
  class WindowLoop;

  const std::vector<std::vector<std::uint32_t>>& links_of_hosts();
  void fold_process(Fold& fold, std::uint32_t number);
  void fold_hosts(Fold& fold, const Scope& scope);
  void divide();
  std::vector<std::uint32_t> share_out() const;
  void plan_sources();
  std::uint64_t play(std::uint32_t number, TimePs end, std::uint64_t most);
  void apply_changes(TimePs now);
  void tell_starts();

  const Network* network_;
  Schedule schedule_;
  Links links_;
  Hosts hosts_;
  Processes processes_;
  std::vector<Turn> turns_;    // of two windows that are played at once
  TimePs lookahead_ = kNever;  // least time that a packet takes from one process to another
  std::uint32_t threads_;      // that were asked for
  Standings standings_;
  std::size_t next_change_ = 0;  // of the network's
  bool failed_ = false, over_ = false, too_long_ = false;
  bool reached_ = false;  // the time until which it was to run
  bool abandoned_ = false;
  bool has_taken_over_ = false;
  Listener* listener_ = nullptr;
  TimePs come_to_ = 0;                           // to which all have come; kNever: only some have
  std::vector<roce::QueuePairCounters> played_;  // apart, by rank
  std::uint64_t played_packets_ = 0;
  TimePs played_until_ = 0;
  std::unique_ptr<Sampler> sampler_;
  PlannedPackets planned_;
  Scope whole_;
  std::vector<std::vector<std::uint32_t>> links_of_hosts_;  // once they are asked for
  std::vector<TimePs> slept_from_;  // by rank: its host's latest event, where it slept after it
};

}  // namespace genie::twin
