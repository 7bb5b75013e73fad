// Walkers of all ranks under the virtual clock: completions go to them, and what they ask for goes out, each
// after the latencies of its host.
#pragma once
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "twin/fabric/network.hpp"
#include "twin/host/process.hpp"
#include "twin/host/rank_events.hpp"
#include "twin/kernel/schedule.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

class RankDriver {
 public:
  RankDriver(const Network& network, const SharedPlan& shared, const std::vector<const RankPlan*>& plans,
             std::vector<std::int32_t> host_of_rank);

  std::int32_t host_of(std::int32_t rank) const { return host_of_rank_[index(rank)]; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(walkers_.size()); }
  const std::vector<Walker>& walkers() const { return walkers_; }
  // A rank's events are those of source `first_source` + rank.
  void attach(Schedule& schedule, std::uint32_t first_source) {
    schedule_ = &schedule;
    first_source_ = first_source;
  }

  // A rank's message has come or has been acknowledged.
  void deliver(Process& process, std::int32_t rank, const Completion& completion);
  // A queue pair hears of congestion, or its NIC has read its next message, at `time`.
  void notify_at(std::int32_t rank, TimePs time, std::uint32_t queue_pair) {
    events_of(rank).add_notification(time, queue_pair);
    set_event(rank);
  }
  void send_at(std::int32_t rank, TimePs time, std::uint32_t queue_pair) {
    events_of(rank).add_send(time, queue_pair);
    set_event(rank);
  }

  // Fold of a rank; handles that follow belong to it.
  void fold(Fold& fold, std::int32_t rank) {
    fold.set_handles(nullptr);
    walkers_[index(rank)].fold(fold);
    fold.set_handles(&walkers_[index(rank)]);
    events_of(rank).fold(fold);
  }
  // Handles that follow belong to the rank, whose fold has been.
  void set_handles(Fold& fold, std::int32_t rank) { fold.set_handles(&walkers_[index(rank)]); }
  // Its events have been moved.
  void renew_events() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) set_event(static_cast<std::int32_t>(rank));
  }
  // Keeps the times of what comes to a rank; -1: of none.
  void watch(std::int32_t rank) {
    watched_ = rank;
    seen_.clear();
  }
  std::vector<TimePs> take_seen() { return std::exchange(seen_, {}); }

  // `messages` does what ranks ask for:
  //   void post(process, rank, operation)   a rank sends a message
  //   void send(process, queue_pair)        the time of send_at has come
  //   void notify(process, queue_pair)      the time of notify_at has come
  template <class Messages>
  void begin(Process& process, std::int32_t rank, Messages& messages) {
    process.operations.clear();
    walkers_[index(rank)].begin(0, process.operations);
    perform(process, rank, messages);
  }
  // All events of a rank that are due.
  template <class Messages>
  void handle(Process& process, std::int32_t rank, Messages& messages) {
    RankEvents& events = events_of(rank);
    while (events.next_time() <= process.now) {
      const RankEvents::Event event = events.pop();
      switch (event.kind) {
        case RankEvents::Kind::kSleep:
          make_ready(process, rank,
                     {.type = Completion::Type::kTimer, .handle = event.order, .time = process.now});
          break;
        case RankEvents::Kind::kCompletion:
          make_ready(process, rank, events.take_completion(event));
          break;
        case RankEvents::Kind::kPost:
          messages.post(process, rank, events.take_operation(event));
          break;
        case RankEvents::Kind::kSend:
          messages.send(process, event.place);
          break;
        case RankEvents::Kind::kNotification:
          messages.notify(process, event.place);
          break;
      }
    }
    set_event(rank);
  }
  // The walkers of a process take the completions of this instant.
  template <class Messages>
  void walk(Process& process, Messages& messages) {
    while (!process.to_walk.empty()) {
      const std::int32_t rank = process.to_walk.back();
      process.to_walk.pop_back();
      advance(process, rank);
      perform(process, rank, messages);
    }
  }

 private:
  RankEvents& events_of(std::int32_t rank) { return events_[index(rank)]; }
  void set_event(std::int32_t rank) {
    schedule_->set(first_source_ + static_cast<std::uint32_t>(rank), events_of(rank).next_time());
  }
  void make_ready(Process& process, std::int32_t rank, const Completion& completion);
  void advance(Process& process, std::int32_t rank);
  template <class Messages>
  void perform(Process& process, std::int32_t rank, Messages& messages) {
    for (const Operation& operation : process.operations) {
      if (operation.type == Operation::Type::kTimer) {
        events_of(rank).add_sleep(operation.at, operation.handle);
        set_event(rank);
      } else if (network_->doorbell_latency > 0) {
        events_of(rank).add_post(process.now + network_->doorbell_latency, operation);
        set_event(rank);
      } else {
        messages.post(process, rank, operation);
      }
    }
  }

  const Network* network_;
  Schedule* schedule_ = nullptr;
  std::uint32_t first_source_ = 0;
  std::vector<std::int32_t> host_of_rank_;
  std::vector<Walker> walkers_;
  std::vector<std::vector<Completion>> ready_;  // of each rank, for its walker at this instant
  std::vector<RankEvents> events_;              // of each rank
  std::int32_t watched_ = -1;
  std::vector<TimePs> seen_;  // by the watched rank
};

}  // namespace genie::twin
