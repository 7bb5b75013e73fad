// A stop of the simulation, which plays apart that take long ask for.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>

namespace genie::twin {

class Interrupt {
 public:
  // `is_asked`: called now and then, until it returns true. It may throw: the run then ends with the
  // exception.
  void ask_by(std::function<bool()> is_asked) { is_asked_ = std::move(is_asked); }
  // Plays have handled so many events more.
  void look(std::uint64_t events) {
    constexpr std::uint64_t kEventsEach = 1 << 17;  // about 10 ms
    events_ += events;
    if (is_set_ || !is_asked_ || events_ < kEventsEach) return;
    events_ = 0;
    is_set_ = is_asked_();
  }
  // The simulation is to stop, and so is each play.
  bool is_set() const { return is_set_; }

 private:
  std::function<bool()> is_asked_;
  std::uint64_t events_ = 0;  // since it was asked
  bool is_set_ = false;
};

}  // namespace genie::twin
