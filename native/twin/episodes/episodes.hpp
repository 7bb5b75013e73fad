// Episodes of a job: what overlaps in time and shares links is played apart, once for all that are alike.
// Results are those of playing all packets, to the bit; see ARCHITECTURE.md, "Episodes".
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/flat_map.hpp"
#include "core/mix.hpp"
#include "roce/spread.hpp"
#include "twin/episodes/episode.hpp"
#include "twin/episodes/episode_places.hpp"
#include "twin/episodes/episode_play.hpp"
#include "twin/episodes/kinds.hpp"
#include "twin/fabric/planned_packets.hpp"
#include "twin/packet_level/simulator.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

// Outlives the simulators of a job: one that has to begin again knows more than the one before.
class Episodes final : public Simulator::Listener {
 public:
  struct Report {
    std::uint64_t distinct = 0, replayed = 0;  // episodes
    std::uint64_t packets = 0;                 // data packets of those that were replayed
    std::uint64_t played = 0;                  // data packets that were played apart, one by one
    std::uint64_t continued = 0;               // plays that went on where they had stopped
    std::uint64_t resumed = 0, joined = 0;     // plays that went on from a checkpoint; from several parts
    std::uint64_t beginnings = 0;              // of the simulation
    bool is_too_costly = false;                // so that nothing is played apart any more
    std::vector<std::string> reasons;          // for another
  };

  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 30;
  static constexpr std::uint64_t kCheckpointPackets = 1 << 20;
  static constexpr std::uint64_t kFreePackets = 1 << 12;

  // `memory_bytes`: for episodes that are known; beyond it, those that nothing uses are forgotten.
  // Checkpoints take up what these leave. `checkpoint_packets`: data packets that a play goes on for
  // at a time, and at the least between two; 1 or more. `free_packets`: data packets that may be played in
  // vain in any job, before a share of the job's counts.
  Episodes(const Network& network, const roce::QueuePairConfig& config, const SharedPlan& shared,
           std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
           const roce::SpreadConfig& spread = {}, std::uint64_t memory_bytes = kMemoryBytes,
           std::uint64_t checkpoint_packets = kCheckpointPackets, std::uint64_t free_packets = kFreePackets);
  Episodes(const Episodes&) = delete;
  Episodes& operator=(const Episodes&) = delete;

  // The reason why nothing is played apart; "" where something is.
  const std::string& unusable() const { return unusable_; }
  const Report& report() const { return report_; }
  // Before the start of a simulator of the job.
  void attach(Simulator& simulator);
  // After a run to the end: what was played apart does not fit, and the job must begin again in a new
  // simulator.
  bool begins_again(const Simulator& simulator);

  // A run was stopped: results of what is over by then become the simulator's.
  void stop();

  void began(std::vector<RankStart> starts, TimePs now) override;

 private:
  struct Component;

  // A collective or a message that has begun or is expected to. A message's members are its ends, in
  // ascending order.
  struct Act {
    const EpisodePlace* place = nullptr;
    Component* component = nullptr;
    Kind kind = 0;
    Operation operation;                  // of a message
    std::int32_t sender = -1;             // of a message
    std::uint64_t key = 0;                // of a collective, in act_of_
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
  // Acts that overlap in time and share links.
  struct Component {
    std::vector<std::unique_ptr<Act>> acts;
    const EpisodePlace* place = nullptr;
    std::vector<std::uint32_t> claimed_places;  // for acts that are or were expected; they stay
    TimePs first = kNever, until = kNever;
    Episode* episode = nullptr;
    TimePs known_until = kNever;  // its forecasts are of what comes before that
    std::uint64_t serial = 0;     // of those that have had this place
    // Forecasts of those that have become part of it: they hold until it has one of its own.
    std::vector<std::uint32_t> forecasts;
    std::vector<std::pair<std::int32_t, std::int64_t>> rooms;  // bytes by switch
    bool is_changed = false;                                   // since its forecast
    bool must_forecast = false;                                // something ends that it has no forecast of
    TimePs wakes_at = kNever;
    struct Entry {  // of a link, when the component began to use it
      std::uint32_t link = 0;
      InputOrder::Service service;
      std::uint64_t from = 0;  // number of the component whose service it is; 0: it is over
      bool is_later = false;   // others have used the link since the component did first
    };
    // Plays of what it has been made of, that it may go on from.
    struct Checkpoint {
      SharedCheckpoint play;
      const EpisodePlace* place = nullptr;
      TimePs first = 0;  // of the component then
    };
    struct Source {
      std::vector<std::uint32_t> tags;      // of its acts, ascending
      std::uint64_t until = 0;              // starts in it, by their sequence
      std::vector<Checkpoint> checkpoints;  // by time
      // Of the component that it was, from when something joins it.
      std::vector<std::uint64_t> numbers = {};
      std::vector<Entry> entries = {};

      bool has(const Act& act, const Act::Member& member) const;
    };
    std::vector<Source> sources;
    // Of its episode, which is known only so far.
    struct Play {
      Play(const Network& part, std::shared_ptr<const roce::QueuePairConfig> config,
           std::shared_ptr<const EpisodePlan> plan, const InputServices& services,
           const std::vector<EpisodePlay::Past>& past)
          : play(part, std::move(config), std::move(plan), services, past) {}

      EpisodePlay play;
      Source source;
      std::uint64_t counted = 0, kept = 0;  // packets played, in the report and at the latest checkpoint
    };
    std::unique_ptr<Play> play;
    std::vector<std::uint64_t> numbers;  // its own, and those of the components that it has been made of
    std::vector<Entry> entries;
    std::uint32_t mark = 0;    // of services in its forecast
    std::uint64_t played = 0;  // data packets, for its forecast
  };
  struct Claim {  // of a cable
    Component* component = nullptr;
    std::uint64_t serial = 0;  // of the component
    TimePs until = 0;
    bool is_live = false;  // packets of the simulator use it

    bool is_alive() const { return component != nullptr && serial == component->serial; }
    bool is_of(const Component& own) const { return component == &own && serial == own.serial; }
    void take(Component& own) {
      component = &own;
      serial = own.serial;
      until = kNever;
    }
  };
  struct End {
    TimePs time;
    Component* component;
    std::uint64_t serial;
    friend bool operator>(const End& a, const End& b) { return a.time > b.time; }
  };
  struct Expected {  // a start, by a forecast
    TimePs time;
    std::uint32_t forecast;
    Act* act;  // while the forecast holds
    std::size_t member;
    friend bool operator>(const Expected& a, const Expected& b) { return a.time > b.time; }
  };

  struct Chain {  // of collectives that a rank begins one after the other
    std::int32_t rank = -1;
    const Act::Member* from = nullptr;  // in progress
    Component* other = nullptr;         // the component of that one; nullptr: the one at hand
    std::vector<std::int32_t> nodes;
    std::vector<std::uint64_t> keys;  // in act_of_
  };
  struct Candidate {           // a collective that may be expected
    const Act* act = nullptr;  // nullptr: no member has begun it
    std::size_t members = 0;   // of which it is expected
    bool has_cables = false;   // the component has all that its members may use
    bool are_free = false;     // or could have them
  };

  struct Row {  // of a plan: an act's member
    const Act* act = nullptr;
    std::size_t member = 0;
    std::int32_t row = -1, after = -1;  // among its rank's, and that of the one at whose end it begins

    const Act::Member& own() const { return act->members[member]; }
    std::int32_t rank() const { return act->place->ranks[member]; }
    std::uint64_t key() const { return pair_key(act->tag, static_cast<std::uint32_t>(member)); }
    bool is_receiver() const { return act->is_message() && rank() != act->sender; }
    TimePs start() const;
  };

  std::string problem_of(const roce::SpreadConfig& spread) const;
  void forget_simulator();
  void finish_until(TimePs time);
  void finish(Component& component);
  void check_live();
  // An act that has joined a component since its forecast may change how long it uses a cable.
  static bool uses(const Claim& claim, TimePs time) {
    return claim.until > time || claim.component->is_changed;
  }
  void note_live(const RankStart& start);
  void begin(const RankStart& start);
  Act& add_act(Component& component, const EpisodePlace& place, Kind kind, std::uint64_t key = 0);
  void forget_key(const Act& act);
  bool takes_expected(const RankStart& start);
  void notice_missing(TimePs time);
  void expect_starts(Component& component, TimePs now);
  std::vector<Chain> possible_chains(const Component& component, TimePs now);
  std::set<Component*> others_in_the_way(const Component& component, const std::vector<Chain>& chains,
                                         TimePs now);
  std::vector<Chain> chains_of(const Component& component);
  std::vector<Chain> chains_from_others(const Component& component, TimePs now);
  Chain chain_to(const Component& component, const Act& act, std::size_t member);
  Chain chain_from(std::int32_t rank, const Act::Member& own, std::int64_t& bytes_left);
  Candidate candidate_of(const Component& component, const Chain& chain, std::size_t at, TimePs now);
  bool may_begin(const Component& component, const Chain& chain, std::size_t at, const Candidate& candidate,
                 TimePs now);
  void add_expected(Component& component, const Chain& chain);
  void claim(Component& component, const EpisodePlace& place, std::size_t member);
  const EpisodePlace& place_of(const Chain& chain, std::size_t at);
  bool is_owned(const Component& component, std::uint32_t cable) const;
  bool is_free_for(const Component& component, std::uint32_t cable, TimePs time) const;
  TimePs wake_at_expected(Component& component, std::uint32_t forecast);
  bool ends_at_once(const Component& component) const;
  bool withdraw(Component& component);
  void set_changed(Component& component);
  void set_begun(Act& act, std::size_t member);
  void join(const Act& act, const std::vector<std::uint32_t>& cables, TimePs time);
  bool waits(Component& component, TimePs now);
  void hand_over(const std::vector<std::uint32_t>& cables, const Component& from, Component& into);
  void merge(Component& into, Component& other);
  void absorb(Component& into, Component& other);
  void keep_source(Component& component);
  static std::vector<std::uint32_t> tags_of(const Component& component);
  void release(Component& component);
  Component& take_component();
  void forecast(Component& component, TimePs now);
  std::string play(Component& component, TimePs now);
  std::string take_forecast(Component& component, TimePs now);
  void take_rests(Component& component);
  void take_back(Component& component);
  void give_back_rooms(Component& component);
  std::vector<Act*> in_order(Component& component);
  void enter(Component& component, std::uint32_t cable, const Claim& before);
  // The latest service of a link whose cable was claimed so.
  Component::Entry latest_of(std::uint32_t link, const Claim& claim);
  InputOrder::Service service_after(const Component& component, std::size_t at);
  InputServices services_before(std::vector<Component::Entry>& entries,
                                const std::vector<std::uint64_t>& numbers, TimePs first,
                                const NetworkPart& part) const;
  void forget_unused();
  Episode& episode_of(Component& component, const std::vector<Act*>& acts, TimePs now);
  std::span<const std::int32_t> members_of(const Act& act) const;
  static std::vector<Row> rows_of(const std::vector<Act*>& acts);
  std::shared_ptr<const EpisodePlan> plan_of(const EpisodePlace& place, TimePs first,
                                             const std::vector<Row>& rows) const;
  EpisodePlan::Node node_of(const Row& row, TimePs first, const EpisodePlace& place, EpisodePlan& plan) const;
  Episode play_new(Component& component, const std::vector<Row>& rows, TimePs now);
  Episode play_on(Component& component, TimePs now);
  void keep_checkpoint(Component& component, TimePs time);
  void go_on(TimePs now);
  // Lead: ranks need a forecast this long before an end.
  TimePs lead_ps() const { return 4 * simulator_->window_ps(); }
  static TimePs known_until(const Component& component, const Episode& episode);
  bool is_known(const Component& component, const Episode& episode, TimePs now) const;
  void replace(Episode& known, Episode next);
  void set_played(Component& component, std::uint64_t packets);
  bool is_too_costly();
  std::optional<Component::Checkpoint> whole(const Component::Checkpoint& checkpoint);
  std::vector<EpisodePlay::Past> past_of(const Component& component, const std::vector<Row>& rows);
  static std::size_t memory_of(const Component::Checkpoint& checkpoint);
  std::size_t checkpoint_bytes(const Component& left_out) const;
  struct Part;
  static std::vector<Part> parts_at(const Component& component, const std::vector<Row>& rows,
                                    const Component::Checkpoint& checkpoint, const Component::Source& source);
  static std::vector<Part> parts_in_order(Part own, std::vector<Part> others);
  static bool begins_something(const std::vector<Part>& parts, const std::vector<Row>& rows);
  static bool expects_begun(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows);
  bool play_parts(const Component& component, std::vector<Part>& parts);
  static bool have_equal_ends(const Part& one, const Part& other);
  bool take_turns(const Part& one, const Part& other, TimePs zero) const;
  std::optional<Component::Checkpoint> play_alone(const Component& component, const Part& part,
                                                  const std::vector<const Part*>& others, TimePs until);
  static bool fits(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows, TimePs first);
  static Renumbering renumbering(const Component::Checkpoint& checkpoint, const std::vector<Row>& rows,
                                 const EpisodePlace& place);
  bool takes_ends(Component& component, TimePs now, std::uint32_t forecast);
  void hear(const Act& act, std::size_t member, const Component& component, std::uint32_t forecast);
  void refuse(const Component& component, const std::string& reason);
  void conflict(Kind one, Kind other, const std::string& reason);
  void give_up(const std::string& reason);

  const Network* network_;
  std::shared_ptr<const roce::QueuePairConfig> config_;  // with the network's pacing, of all plays
  const SharedPlan* shared_;
  std::vector<const RankPlan*> plans_;
  std::vector<std::int32_t> host_of_rank_, rank_of_host_;
  std::string unusable_, reason_;
  Report report_;
  Kinds kinds_;
  EpisodePlaces places_;
  PlannedPackets planned_;
  std::map<std::vector<std::int64_t>, Episode> known_;
  std::uint64_t memory_max_bytes_, memory_bytes_ = 0;  // of these
  std::uint64_t checkpoint_packets_, free_packets_;

  // Of one simulator.
  Simulator* simulator_ = nullptr;
  std::vector<Claim> claims_;    // by cable
  FlatMap<Act*> act_of_;         // (group, tag) -> collective that not all members have begun
  FlatMap<std::uint32_t> told_;  // (group, tag) -> members that have begun
  std::vector<std::unique_ptr<Component>> components_;
  std::vector<Component*> free_, changed_;
  std::vector<Component*> partly_known_;  // and others that were
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::priority_queue<Expected, std::vector<Expected>, std::greater<>> expected_;
  struct InProgress {
    Act* act;
    std::size_t member;
  };
  std::vector<std::vector<InProgress>> in_progress_;  // by rank: collectives that have begun
  struct Heard {
    std::size_t rank;  // of the component's place
    std::int32_t row;
    const Act* act;
    std::size_t member;
  };
  bool has_live_ = false;     // packets of its own
  std::vector<Heard> heard_;  // of the component at hand
  InputServices services_;    // before it
  // Kept for their memory.
  std::vector<std::int64_t> key_;         // of the component at hand, in known_
  std::vector<std::int64_t> bytes_left_;  // by rank; 0 for those that are not of the component
  Walker::Following following_;           // of the rank at hand
  std::uint64_t standing_packets_ = 0;    // that were played for forecasts of components
  std::uint64_t most_in_vain_ = 0;        // data packets that may be played in vain; 0: not yet known
  std::uint64_t latest_sequence_ = 0, latest_number_ = 0;
  FlatMap<std::uint32_t> tag_of_;  // (group, tag) of a collective in progress -> its act's tag
  std::uint32_t latest_tag_ = 0;
  std::uint32_t latest_mark_ = 0;
  // By episode, first start, link, and time and mark of its service before.
  std::map<std::tuple<const Episode*, TimePs, std::uint32_t, TimePs, std::uint32_t>, std::uint32_t>
      marks_in_step_;
};

}  // namespace genie::twin
