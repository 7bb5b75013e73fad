// Groups of ranks that recur while others do not. A group is set ahead: its events are later by all the
// periods that it can go through. Its counters follow when that time has come, or when a message may reach
// it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/snapshot.hpp"
#include "twin/kernel/scope.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

class GroupsAhead {
 public:
  struct Group {
    Scope scope;
    Snapshot earlier, later;                  // a period apart
    std::int64_t periods = 0;                 // that it is ahead
    TimePs wake = kNever;                     // at the end of these
    std::vector<std::uint32_t> towards = {};  // queue pairs of others whose messages may reach it; sorted
    std::vector<std::pair<std::int32_t, std::int64_t>> rooms = {};  // bytes by switch
  };

  using SharedGroup = std::shared_ptr<const Group>;
  // Of a simulator, for another in the same state.
  struct State {
    std::vector<SharedGroup> groups;
    TimePs stands_at = 0;                // where all others have stood since groups came back
    std::vector<std::uint32_t> touched;  // queue pairs whose messages have brought them back

    std::size_t memory_bytes() const;  // about
  };

  explicit GroupsAhead(Simulator& simulator) : simulator_(simulator) {}

  const State& state() const { return state_; }
  // Of a simulator in whose state this one is. Before its first event.
  void restore(const State& state) {
    state_ = state;
    renew();
  }

  bool any() const { return !state_.groups.empty(); }
  // All that is not ahead.
  const Scope& rest() const { return any() ? rest_ : simulator_.whole(); }
  // None of a scope is ahead.
  bool is_awake(const Scope& scope) const;
  // The group that is ahead with a rank; nullptr: the rank is not ahead.
  const Group* group_of(std::int32_t rank) const;
  // Groups that have come back at a time play up to where all others stand.
  bool is_behind(TimePs now) const { return now < state_.stands_at; }
  // When the first of them is ahead no longer; kNever: there is none.
  TimePs next_wake() const {
    TimePs next = kNever;
    for (const SharedGroup& group : state_.groups) next = std::min(next, group->wake);
    return next;
  }
  // The latest time from which on one of them is ahead.
  TimePs latest_start() const {
    TimePs latest = 0;
    for (const SharedGroup& group : state_.groups) latest = std::max(latest, group->later.now);
    return latest;
  }
  // All that has moved between two states has moved within a scope.
  bool moves_within(const Snapshot& earlier, const Snapshot& later, const Scope& scope) const;
  // All that has moved between two equal states of a scope, in groups that share no link. Empty: they are not
  // known.
  std::vector<Group> groups_between(const Snapshot& earlier, const Snapshot& later, const Scope& awake) const;
  // The group of one rank, where it recurs and others do not. `awake`: in both states, all others have slept.
  std::optional<Group> recurring_group(std::int32_t rank, const Snapshot& earlier, const Snapshot& later,
                                       const Scope& awake) const;
  // The queue pairs that ranks outside a scope have, and whose messages would meet its packets.
  std::vector<std::uint32_t> towards(const Scope& scope);
  // A number that is equal while these move no packet; nullopt: some may be on their way to the scope.
  std::optional<std::uint64_t> foreign_packets(const Scope& scope, const std::vector<std::uint32_t>& towards,
                                               TimePs now) const;
  // The first event of a group that does not recur, or where it has come to all others.
  TimePs horizon_of(const Group& group) const;
  // By its periods, from the later of its states on. False where something is on its way to the group, or
  // others may come near a threshold of a buffer beside it.
  bool set_ahead(Group group);
  // Moves a scope that recurs, while all others are ahead or sleep.
  void jump(const Snapshot& earlier, const Snapshot& later, std::int64_t periods, const Scope& scope);
  // At `now`, groups whose time has come, and those that a message may reach, are ahead no longer; or all.
  // Each stands at the end of a period, by `now`.
  struct Back {
    Scope scope;
    std::int64_t periods = 0;  // that were skipped
  };
  std::vector<Back> fetch_back(TimePs now, bool all);

 private:
  std::vector<Scope> scopes_between(const Snapshot& earlier, const Snapshot& later) const;
  Snapshot some_of(const Snapshot& state, const Scope& scope) const;
  void keep_users();
  bool may_send(std::uint32_t queue_pair, const Scope& scope, TimePs until) const;
  bool reserve(Group& group);
  void give_back_rooms(const Group& group);
  TimePs bring_back(const Group& group, TimePs now);
  void renew();

  Simulator& simulator_;
  State state_;
  Scope rest_;
  std::vector<std::uint32_t> users_, first_user_;  // queue pairs, cable after cable; by cable
};

}  // namespace genie::twin
