// Refusals: kinds that are not played apart, or a whole job, with the reasons.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "twin/memo/kinds.hpp"
#include "twin/packet_level/simulator.hpp"

namespace genie::twin {

class Refusals {
 public:
  Refusals(Kinds& kinds, std::string problem) : kinds_(&kinds), unusable_(std::move(problem)) {}

  void begin(Simulator& simulator) {
    simulator_ = &simulator;
    latest_.clear();
  }
  // Nothing of the job is played apart from now on. It begins again.
  void give_up(const std::string& reason) {
    unusable_ = reason;
    if (simulator_ != nullptr) simulator_->abandon();
  }
  // A kind is not played apart from now on. The job begins again.
  void refuse(Kind kind, const std::string& reason) {
    kinds_->set_live(kind);
    latest_ = reason;
    if (reasons_.empty() || reasons_.back() != reason) reasons_.push_back(reason);
    simulator_->abandon();
  }
  void refuse(const std::vector<Kind>& kinds, const std::string& reason) {
    for (const Kind kind : kinds) refuse(kind, reason);
  }
  // The same, as it would cost too much.
  void give_up_for_costs(const std::string& reason) {
    is_too_costly_ = true;
    give_up(reason);
  }
  // No simulator is at hand any more.
  void end() { simulator_ = nullptr; }

  // The reason why nothing is played apart; "" where something is.
  const std::string& unusable() const { return unusable_; }
  bool is_too_costly() const { return is_too_costly_; }
  // The reasons why kinds were refused, over all simulators.
  const std::vector<std::string>& reasons() const { return reasons_; }
  // The latest of this simulator.
  const std::string& latest() const { return latest_; }

 private:
  Kinds* kinds_;
  Simulator* simulator_ = nullptr;
  std::string unusable_, latest_;
  std::vector<std::string> reasons_;
  bool is_too_costly_ = false;
};

}  // namespace genie::twin
