// Walkers of all ranks under the virtual clock. Completions go to the walkers, and what the walkers ask for
// goes out. Each goes after the latencies of its host.
#pragma once
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "twin/fabric/network.hpp"
#include "twin/host/process.hpp"
#include "twin/host/rank_events.hpp"
#include "twin/kernel/renumbering.hpp"
#include "twin/kernel/schedule.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

// A rank begins a collective or a message of its plan.
struct RankStart {
  TimePs time = 0;
  std::int32_t rank = 0;
  Operation operation;  // kMeet, kBegin or kSend
  enum class Kind : std::uint8_t { kHeld, kTold, kWake } kind = Kind::kWake;
  bool is_by_timer = true;  // and not by the end of what was held
};

class RankDriver {
 public:
  RankDriver(const Network& network, const SharedPlan& shared, const std::vector<const RankPlan*>& plans,
             std::vector<std::int32_t> host_of_rank, const std::vector<bool>& keeps_records);

  std::int32_t host_of(std::int32_t rank) const { return host_of_rank_[index(rank)]; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(walkers_.size()); }
  const std::vector<Walker>& walkers() const { return walkers_; }
  // A rank's events are those of source `first_source` + rank.
  void attach(Schedule& schedule, std::uint32_t first_source) {
    schedule_ = &schedule;
    first_source_ = first_source;
  }

  Walker& walker(std::int32_t rank) { return walkers_[index(rank)]; }
  // From now on it keeps the starts of what walkers hold or tell. One thread plays.
  void keep_starts() { keeps_starts_ = true; }
  bool has_starts() const { return !starts_.empty(); }
  std::vector<RankStart> take_starts() { return std::exchange(starts_, {}); }
  // A rank hears at `time` of the end of what was held, unless the forecast is taken back before.
  // `link`: by which the packet comes that ends it; kNoLink: a timer does.
  static constexpr std::uint32_t kNoLink = ~std::uint32_t{0};
  void finish_held(std::int32_t rank, TimePs time, const Completion& completion, std::uint32_t forecast,
                   std::uint32_t link) {
    events_of(rank).add_played(time, completion, forecast, link);
    schedule_->set_afar(first_source_ + static_cast<std::uint32_t>(rank), events_of(rank).next_time());
  }
  // A start of kind kWake at `time`.
  void wake(std::int32_t rank, TimePs time) {
    events_of(rank).add_wake(time);
    schedule_->set_afar(first_source_ + static_cast<std::uint32_t>(rank), events_of(rank).next_time());
  }
  std::uint32_t make_forecast() {
    taken_back_.push_back(0);
    return static_cast<std::uint32_t>(taken_back_.size()) - 1;
  }
  void take_back(std::uint32_t forecast) { taken_back_[forecast] = 1; }
  bool is_taken_back(std::uint32_t forecast) const { return taken_back_[forecast] != 0; }
  // For an episode. Rows of nodes, by rank, beside whose start nothing may come at one instant. Keeps the
  // links by which packets come that end nodes, in the order of the ends; kNoLink: a timer ends it.
  void watch(std::vector<std::vector<std::uint8_t>> starts) {
    watched_starts_ = std::move(starts);
    end_links_.resize(walkers_.size());
    for (Walker& walker : walkers_) walker.keep_end_order();
  }
  const std::vector<std::uint32_t>& end_links(std::int32_t rank) const { return end_links_[index(rank)]; }
  // An end of what was held, and something else, came to a rank's process at one instant: their order is not
  // known.
  bool has_tie() const { return has_tie_; }
  void set_tie() { has_tie_ = true; }

  // Goes on from the state of an episode's ranks, whose walkers keep the order of ends.
  void take_over(const RankDriver& earlier, const Renumbering& to);

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
    static_assert(has_size<RankDriver>(272));
    fold.set_handles(nullptr);
    walkers_[index(rank)].fold(fold);
    fold.set_handles(&walkers_[index(rank)]);
    events_of(rank).fold(fold);
  }
  // Handles that follow belong to the rank, whose fold has been.
  void set_handles(Fold& fold, std::int32_t rank) { fold.set_handles(&walkers_[index(rank)]); }
  // A rank waits for the start of nodes, or for packets.
  bool sleeps(std::int32_t rank) const { return events_[index(rank)].are_starts(); }
  // Its events have been moved.
  void renew_events() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) set_event(static_cast<std::int32_t>(rank));
  }
  // Keeps the times of messages that come to a rank, or does no longer; -1: no rank.
  void see(std::int32_t rank, bool sees) {
    if (rank >= 0) is_seen_[index(rank)] = sees;
  }
  void see_none() { is_seen_.assign(is_seen_.size(), 0); }
  // By rank and time, in the order of the times of each.
  std::vector<std::pair<std::int32_t, TimePs>> take_seen() { return std::exchange(seen_, {}); }

  // `messages` does what ranks ask for.
  //   void post(process, rank, operation)   A rank sends a message.
  //   void send(process, queue_pair)        The time of send_at has come.
  //   void notify(process, queue_pair)      The time of notify_at has come.
  template <class Messages>
  void begin(Process& process, std::int32_t rank, TimePs now, Messages& messages) {
    process.operations.clear();
    walkers_[index(rank)].begin(now, process.operations);
    perform(process, rank, messages);
    set_event(rank);
  }
  // All events of a rank that are due; false where nothing has happened.
  template <class Messages>
  bool handle(Process& process, std::int32_t rank, Messages& messages) {
    RankEvents& events = events_of(rank);
    // Ends that were played apart come first, by link. Timers do not say so: nothing may come beside them.
    std::uint32_t count = 0;
    bool is_alone = false;
    while (events.next_time() <= process.now) {
      const RankEvents::Event event = events.pop();
      ++count;
      switch (event.kind) {
        case RankEvents::Kind::kSleep: {
          make_ready(process, rank,
                     {.type = Completion::Type::kTimer, .handle = event.order, .time = process.now});
          if (is_watched_start(rank, event.order)) {
            process.played_at = process.now;
            is_alone = true;
          }
          break;
        }
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
        case RankEvents::Kind::kWake:
          starts_.push_back(
              {.time = process.now, .rank = rank, .operation = {}, .kind = RankStart::Kind::kWake});
          --count;
          break;
        case RankEvents::Kind::kPlayed: {
          const RankEvents::Played played = events.take_played(event);
          if (taken_back_[played.forecast] != 0) {
            --count;
            break;
          }
          make_ready(process, rank, played.completion);
          process.played_at = process.now;
          is_alone |= played.link == kNoLink;
          break;
        }
      }
    }
    if (is_alone && count > 1) [[unlikely]]
      set_tie();
    set_event(rank);
    return count > 0;
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
  bool is_watched_start(std::int32_t rank, std::uint64_t handle) const {
    return !watched_starts_.empty() && Walker::is_of_node(handle) &&
           watched_starts_[index(rank)][handle >> 32] != 0;
  }
  bool take_start(const Process& process, std::int32_t rank, const Operation& operation);
  template <class Messages>
  void perform(Process& process, std::int32_t rank, Messages& messages) {
    for (const Operation& operation : process.operations) {
      if (operation.type == Operation::Type::kTimer) {
        events_of(rank).add_sleep(operation.at, operation.handle);
        set_event(rank);
      } else if (keeps_starts_ && take_start(process, rank, operation)) {
        continue;
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
  bool keeps_starts_ = false, has_tie_ = false;
  std::vector<std::vector<std::uint8_t>> watched_starts_;  // by rank and row; empty: none
  std::vector<std::uint8_t> taken_back_;                   // by forecast
  std::vector<std::vector<std::uint32_t>> end_links_;      // by rank
  std::vector<RankStart> starts_;
  std::vector<std::uint8_t> is_seen_;  // by rank
  std::vector<std::pair<std::int32_t, TimePs>> seen_;
};

}  // namespace genie::twin
