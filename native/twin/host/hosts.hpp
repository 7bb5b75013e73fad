// Hosts of the packet level: ranks, queue pairs and NIC ports, between walkers and links.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string>
#include <vector>

#include "roce/queue_pair.hpp"
#include "twin/fabric/network.hpp"
#include "twin/host/message_queues.hpp"
#include "twin/host/nic.hpp"
#include "twin/host/process.hpp"
#include "twin/host/queue_pairs.hpp"
#include "twin/host/rank_driver.hpp"
#include "twin/kernel/schedule.hpp"
#include "twin/kernel/scope.hpp"
#include "twin/network/links.hpp"
#include "twin/network/packet_bases.hpp"

namespace genie::twin {

class Hosts {
 public:
  // Their ranks and queue pairs are known from the beginning; links and schedule live as long as they.
  Hosts(const Network& network, const roce::QueuePairConfig& config, RankDriver ranks, QueuePairs queue_pairs,
        Links& links, Schedule& schedule);

  RankDriver& ranks() { return ranks_; }
  const RankDriver& ranks() const { return ranks_; }
  QueuePairs& queue_pairs() { return queue_pairs_; }
  const QueuePairs& queue_pairs() const { return queue_pairs_; }
  const Nics& nics() const { return nics_; }
  void keep_trace(bool keep) { keep_trace_ = keep; }
  bool keeps_trace() const { return keep_trace_; }
  // Keeps the times at which data of a queue pair leaves; kNone: of none.
  static constexpr std::uint32_t kNone = ~0u;
  void watch(std::uint32_t queue_pair) {
    watched_ = queue_pair;
    departures_.clear();
  }
  std::vector<TimePs> take_departures() { return std::exchange(departures_, {}); }

  // Hosts at an instant, with the times of their events.
  struct State {
    RankDriver ranks;
    QueuePairs::State queue_pairs;
    Nics nics;
    std::vector<TimePs> nic_times, timer_times;  // by NIC and by queue pair

    std::size_t memory_bytes() const;  // about
  };
  State state() const;
  // The same in the memory of an earlier one.
  void keep(State& state) const;
  // After connect: goes on from the state of others. `to` has their queue pairs.
  void take_over(const State& earlier, const Renumbering& to);
  // After connect, of one with the same plan and network.
  void restore(const State& earlier);

  // Before the first event: connections of all ranks.
  void connect();
  bool has_nic(std::uint32_t link) const { return nics_.find(link) != Nics::kNone; }
  // Sources of events follow those of links: NIC ports, ranks, timers of queue pairs. fn(host, source) for
  // each, in that order.
  template <class Function>
  void each_source(Function fn) const {
    for (std::uint32_t link = 0; link < links_.links(); ++link) {
      const bool may_get_nic = !network_->changes.empty() && links_.source_of(link) < network_->hosts;
      if (has_nic(link) || may_get_nic) fn(links_.source_of(link), nic_source_ + link);
    }
    for (std::uint32_t rank = 0; rank < ranks_.ranks(); ++rank)
      fn(ranks_.host_of(static_cast<std::int32_t>(rank)), rank_source_ + rank);
    for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id)
      fn(ranks_.host_of(queue_pairs_[id].rank), timer_source_ + id);
  }
  std::uint32_t sources() const { return timer_source_ + queue_pairs_.size(); }
  // Sources from here on have few events.
  std::uint32_t first_rare_source() const { return rank_source_; }

  // The first nodes of a rank start.
  void begin(Process& process, std::int32_t rank, TimePs now) { ranks_.begin(process, rank, now, *this); }
  // The event of one of their sources. Returns false for a timer of which nothing was due.
  bool handle(Process& process, std::uint32_t source);
  // Walkers take what has come at this instant.
  void walk(Process& process) { ranks_.walk(process, *this); }

  // Receives for hosts, as Links::arrive asks for it.
  struct Arrivals {
    Hosts& hosts;
    Process& process;
    void received(const Packet& on_wire) { hosts.receive(process, on_wire); }
    void coming(const Packet& on_wire) {
      if (on_wire.connection != kPauseFrame) hosts.queue_pairs_[on_wire.connection].fetch();
    }
    void resumed(std::uint32_t link) { hosts.resume(process, link); }
  };
  // The port of a link may send again.
  void resume(Process& process, std::uint32_t link) {
    if (has_nic(link)) wake(process, nics_.find(link));
  }
  // Queue pairs go by the routes that hold from now on.
  void reroute(Processes& processes, TimePs now);
  // Links that are down on the paths of a queue pair that gave up, each cable once, added to `dead`.
  void add_dead_links(std::uint32_t queue_pair, std::vector<std::uint32_t>& dead) const;

  // True where the state of a scope can be folded.
  bool can_fold(const Scope& scope) const;
  // Gives the bases of what is under way to each queue pair.
  void fold(Fold& fold, PacketBases& bases, const Scope& scope);
  // A queue pair has nothing to send, and nothing is on its way outside a scope's links.
  bool is_quiet(std::uint32_t queue_pair, const Scope& scope) const;
  // Nothing will happen to a rank before one of its nodes starts, or a packet comes.
  bool sleeps(std::int32_t rank) const;
  // Keeps which of these queue pairs are given messages, from now on. By queue pair: whether it is one.
  void guard(std::vector<std::uint8_t> queue_pairs) {
    guarded_ = std::move(queue_pairs);
    any_guarded_ = std::ranges::find(guarded_, 1) != guarded_.end();
  }
  bool has_guards() const { return any_guarded_; }
  bool is_touched() const { return !touched_.empty(); }
  std::vector<std::uint32_t> take_touched() { return std::exchange(touched_, {}); }
  // Of one rank and its queue pairs alone, for an observer.
  void fold_rank(Fold& fold, std::int32_t rank, PacketBases& bases);

  // Performs for ranks, as RankDriver asks for it.
  void post(Process& process, std::int32_t rank, const Operation& operation);
  void send(Process& process, std::uint32_t queue_pair);
  void notify(Process& process, std::uint32_t queue_pair);

 private:
  struct Sink;

  // fn(queue pair) holds for each of a scope's ranks, in ascending order.
  template <class Function>
  bool all_queue_pairs(const Scope& scope, Function fn) const {
    std::uint32_t id = 0;
    const auto is_of = [&](std::uint32_t rank) {
      return id < queue_pairs_.size() && queue_pairs_[id].rank == static_cast<std::int32_t>(rank);
    };
    for (std::uint32_t rank = 0; rank < ranks_.ranks(); ++rank) {
      if (scope.ranks[rank] == 0) continue;
      if (!is_of(rank)) id = queue_pairs_.first_of(static_cast<std::int32_t>(rank));
      for (; is_of(rank); ++id) {
        if (!fn(id)) return false;
      }
    }
    return true;
  }
  void fold_queue_pair(Fold& fold, std::uint32_t id, PacketBases& bases);
  void keep_queue_pairs(State& state) const;

  Nic::Allowed allowed(const Nic& nic) const {
    const std::uint32_t paused = links_.paused(nic.link());
    return {.control = (paused >> network_->control_class & 1) == 0,
            .data = (paused >> network_->data_class & 1) == 0};
  }
  void receive(Process& process, const Packet& on_wire);
  void send_by_nic(Process& process, std::uint32_t queue_pair, const roce::SendRequest& request);
  void wake(Process& process, std::uint32_t nic);
  void transmit(Process& process, std::uint32_t nic);
  void expect(const Process& process, Nic& nic);
  Packet address(HostQueuePair& own, const Nic& nic, const roce::Packet& packet, bool is_control);

  const Network* network_;
  Links& links_;
  Schedule& schedule_;
  RankDriver ranks_;
  QueuePairs queue_pairs_;
  Nics nics_;
  MessageQueues message_queues_;
  std::uint32_t nic_source_, rank_source_, timer_source_;  // the first of each
  bool sends_ect_;                                         // data may be marked
  bool asks_telemetry_;                                    // of the ports on its way
  bool keep_trace_ = false;
  bool any_guarded_ = false;
  std::vector<std::uint8_t> guarded_;   // by queue pair
  std::vector<std::uint32_t> touched_;  // guarded queue pairs that have been given messages
  std::uint32_t watched_ = kNone;
  std::vector<TimePs> departures_;  // of the watched queue pair's data
};

}  // namespace genie::twin
