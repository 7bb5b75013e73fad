// The play of an episode in a simulator of its own, from its first start or from checkpoints of earlier
// plays.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twin/memo/episode.hpp"
#include "twin/memo/interrupt.hpp"
#include "twin/packet_level/simulator.hpp"
#include "twin/skip/recurrence.hpp"

namespace genie::twin {

// A play at an instant. Its walkers refer to the plan. Groups that are ahead have not come to that instant.
struct EpisodeCheckpoint {
  Checkpoint state;
  std::shared_ptr<const EpisodePlan> plan;
  Recurrence::Kept recurrence;

  TimePs now() const { return state.now; }
  bool has_begun(std::size_t rank, std::size_t row) const {
    return state.hosts.ranks.walkers()[rank].has_begun(static_cast<std::int32_t>(row));
  }
  std::size_t memory_bytes() const { return state.memory_bytes() + recurrence.memory_bytes(); }
};
using SharedCheckpoint = std::shared_ptr<const EpisodeCheckpoint>;

class EpisodePlay {
 public:
  static constexpr std::uint64_t kAll = ~std::uint64_t{0};

  struct Past {
    SharedCheckpoint from;
    Renumbering to;
  };

  // `config`: one for all plays, with the network's pacing. `services`: before it, by time. An episode whose
  // results depend on an order that is not known is refused. `past`: what it goes on from, all at one time.
  // Of two that use a host one says that it is earlier there. Without any it begins.
  // `services_of`: others that have used links before it, of which the latest services alone count. They
  // renumber links, with kNone for those that are not here.
  EpisodePlay(const Network& network, std::shared_ptr<const roce::QueuePairConfig> config,
              std::shared_ptr<const EpisodePlan> plan, const InputServices& services,
              const std::vector<Past>& past = {}, const std::vector<Past>& services_of = {});
  // The play that a checkpoint is of, from there on. `network`: its own.
  EpisodePlay(const Network& network, const EpisodeCheckpoint& from);
  EpisodePlay(const EpisodePlay&) = delete;
  EpisodePlay& operator=(const EpisodePlay&) = delete;

  // Until about so many more data packets have been played, and until a time. False where nothing is left of
  // it before that time, or where it cannot stand for others. Where an order that matters is not known it
  // stops, and the next run says that it cannot.
  // `interrupt`: where it is set, the run ends early, and is as one that has stopped for its packets.
  bool run(std::uint64_t packets, TimePs until, Interrupt& interrupt);
  // The earliest time of a checkpoint.
  TimePs next_instant() { return recurrence_.next_instant(); }
  // All but groups that are ahead come to `at`. False where they do not, or where it cannot stand for others.
  bool come_to(TimePs at) { return is_sound() && recurrence_.come_to(at) && is_sound(); }
  // At the time to which it has come. `reused`: an earlier one of this play, or nullptr. If no other has it,
  // the checkpoint takes its memory.
  SharedCheckpoint checkpoint(TimePs at, SharedCheckpoint reused);
  // At `at`, with no group ahead: others may go on from it. nullptr where it does not come to it.
  SharedCheckpoint whole_checkpoint(TimePs at);
  // Data packets that have been played here, one by one.
  std::uint64_t played() const { return simulator_.data_packets() - before_ - recurrence_.report().packets; }
  // Until here all is known. A run that has stopped for its packets goes on from here.
  TimePs known_until() { return simulator_.links().has_doubtful_turn() ? sound_until_ : simulator_.next(); }
  // Of all that has been played. `is_whole`: nothing of it is left, or it is refused. Else records of
  // messages are left out, but for the receives of single messages.
  Episode result(bool is_whole);

 private:
  void add_rank(Episode& episode, std::size_t rank);
  bool is_sound() { return !simulator_.links().has_doubtful_turn() && refusal().empty(); }
  std::string refusal();
  bool was_refused();

  const Network& network_;
  std::shared_ptr<const roce::QueuePairConfig> config_;
  std::shared_ptr<const EpisodePlan> plan_;
  Simulator simulator_;
  Recurrence recurrence_;
  std::uint64_t before_ = 0;     // data packets of its past
  std::string refusal_;          // "": there is none
  std::uint64_t looked_at_ = 0;  // after so many events, whether it can stand for others
  TimePs sound_until_ = 0;       // an order that is not known has mattered later, if at all
};

}  // namespace genie::twin
