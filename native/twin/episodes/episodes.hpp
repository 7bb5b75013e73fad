// Episodes of a job: what overlaps in time and shares links is played apart, once for all that are alike.
// Results are those of playing all packets, to the bit; see ARCHITECTURE.md, "Episodes".
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "roce/spread.hpp"
#include "twin/episodes/episode_run.hpp"
#include "twin/memo/episode_memo.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

// Outlives the simulators of a job.
class Episodes final : public Simulator::Listener {
 public:
  struct Report {
    std::uint64_t distinct = 0;  // episodes that have been known
    PlayCosts::Counts plays;
    std::uint64_t beginnings = 0;      // of the simulation
    bool needs_one_thread = false;     // for episodes: only several threads hinder them
    bool is_too_costly = false;        // so that nothing is played apart any more
    std::vector<std::string> reasons;  // for which kinds were refused
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

  // The reason why nothing is played apart; "" where something is.
  const std::string& unusable() const { return memo_.refusals.unusable(); }
  Report report() const;
  // Before the start of a simulator of the job.
  void attach(Simulator& simulator);
  // After a run to the end: what was played apart does not fit, and the job must begin again in a new
  // simulator. `skipped_packets`: data packets of this one that its recurrence has skipped.
  bool begins_again(const Simulator& simulator, std::uint64_t skipped_packets);
  // During plays that take long `is_asked` is called now and then; if it returns true, the run ends soon.
  void stop_when(std::function<bool()> is_asked) { memo_.interrupt.ask_by(std::move(is_asked)); }
  // is_asked() has returned true, so that the run has ended before its end.
  bool is_interrupted() const { return memo_.interrupt.is_set(); }
  // A run was stopped: results of what is over by then become the simulator's.
  void stop();

  void began(std::vector<RankStart> starts, TimePs now) override;

 private:
  void end();

  EpisodeMemo memo_;
  std::uint64_t checkpoint_packets_;
  std::uint64_t beginnings_ = 0;
  bool needs_one_thread_ = false;
  Simulator* simulator_ = nullptr;  // while it plays
  std::optional<EpisodeRun> run_;   // of that one
};

}  // namespace genie::twin
