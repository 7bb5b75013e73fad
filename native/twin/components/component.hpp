// Components of a job: collectives and messages (acts) that overlap in time and share links.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "twin/memo/episode.hpp"
#include "twin/memo/episode_places.hpp"
#include "twin/memo/episode_play.hpp"
#include "twin/memo/kinds.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

struct Component;

// A collective or a message that has begun or is expected to. A message's members are its ends, in
// ascending order.
struct Act {
  const EpisodePlace* place = nullptr;
  Component* component = nullptr;
  Kind kind = 0;
  Operation operation;                  // of a message
  std::int32_t sender = -1;             // of a message
  std::uint64_t key = 0;                // of a collective: its group and tag
  std::uint32_t tag = 0;                // in all plans that have it
  std::size_t begun = 0, expected = 0;  // members
  bool is_released = false;             // cables of those are free again once they rest
  struct Member {
    std::int32_t node = -1;  // -1: it has not begun and is not expected to, or receives a message
    TimePs start = kNever, end = kNever;
    bool is_expected = false;         // it has not begun, and is expected to
    const Member* follows = nullptr;  // at the end of that one; nullptr: at `start`
    // Its row among its rank's in the component, and that of the one at whose end it began; -1: none.
    std::int32_t row = -1, after = -1;
    bool is_by_timer = true;                     // began, and not by an end of another
    std::uint64_t sequence = ~std::uint64_t{0};  // of all starts; those of a rank are in their order
  };
  std::vector<Member> members;

  bool is_message() const { return sender >= 0; }
  bool has_begun() const { return is_message() || begun == members.size(); }
  bool is_complete() const { return is_message() || begun + expected == members.size(); }
};

// An act has one tag in all plans, and a component a number that no other has. Starts are in the order of
// their sequence. A serial tells a component from those that have used the same object before.
struct Component {
  struct ServiceBefore {  // of a link, when the component began to use it
    std::uint32_t link = 0;
    InputOrder::Service service;
    std::uint64_t from = 0;  // number of the component whose service it is; 0: it is over
    bool is_later = false;   // others have used the link since the component did first
  };
  // Of the play of a part. The component's own play may go on from it.
  struct Checkpoint {
    SharedCheckpoint play;
    const EpisodePlace* place = nullptr;
    TimePs first = 0;  // of the component then

    std::size_t memory_bytes() const { return play->memory_bytes(); }
  };
  // A component that has become part of this one.
  struct Former {
    std::vector<std::uint32_t> tags;      // of its acts, ascending
    std::uint64_t until = 0;              // starts in it, by their sequence
    std::vector<Checkpoint> checkpoints;  // by time
    // Of the component that it was, from when something joins it.
    std::vector<std::uint64_t> numbers = {};
    std::vector<ServiceBefore> entries = {};

    bool has(const Act& act, const Act::Member& member) const;
  };
  // The play of its episode, which has stopped where the episode is known until.
  struct UnfinishedPlay {
    UnfinishedPlay(const Network& part, std::shared_ptr<const roce::QueuePairConfig> config,
                   std::shared_ptr<const EpisodePlan> plan, const InputServices& services,
                   const std::vector<EpisodePlay::Past>& past)
        : play(part, std::move(config), std::move(plan), services, past) {}

    EpisodePlay play;
    Former former;                        // as which a larger component has its checkpoints
    std::uint64_t counted = 0, kept = 0;  // packets played, in the costs and at the latest checkpoint
  };

  // Ascending.
  std::vector<std::uint32_t> tags() const;
  std::vector<Kind> kinds() const;
  // An episode that stands for it tells what comes before that.
  TimePs known_until_by(const Episode& known) const {
    return known.is_whole() ? kNever : first + known.until;
  }

  std::vector<std::unique_ptr<Act>> acts;
  const EpisodePlace* place = nullptr;
  std::vector<std::uint32_t> claimed_places;  // for acts that are or were expected; they stay
  TimePs first = kNever, until = kNever;
  Episode* episode = nullptr;
  TimePs known_until = kNever;  // its forecasts are of what comes before that
  std::uint64_t serial = 0;     // counts the components that have used this object
  // Forecasts of those that have become part of it: they hold until it has one of its own.
  std::vector<std::uint32_t> forecasts;
  std::vector<std::pair<std::int32_t, std::int64_t>> rooms;  // bytes by switch
  bool is_changed = false;                                   // since its forecast
  bool must_forecast = false;                                // something ends that it has no forecast of
  TimePs wakes_at = kNever;
  std::vector<Former> formers;
  std::unique_ptr<UnfinishedPlay> unfinished;
  std::vector<std::uint64_t> numbers;  // its own, and those of the components that it has been made of
  std::vector<ServiceBefore> entries;
  std::uint32_t mark = 0;    // of services in its forecast
  std::uint64_t played = 0;  // data packets, for its forecast
};

}  // namespace genie::twin
