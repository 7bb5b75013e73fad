// A stop of the simulation that may be asked for while a play apart takes long.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>

namespace genie::twin {

class Interrupt {
 public:
  // `is_asked`: called now and then, until it returns true.
  void ask_by(std::function<bool()> is_asked) { is_asked_ = std::move(is_asked); }
  // A play has gone on for a few milliseconds.
  void look() {
    constexpr std::uint32_t kLooksEach = 32;
    if (is_set_ || !is_asked_ || ++looks_ % kLooksEach != 0) return;
    is_set_ = is_asked_();
  }
  // The simulation is to stop, and so is each play.
  bool is_set() const { return is_set_; }

 private:
  std::function<bool()> is_asked_;
  std::uint32_t looks_ = 0;
  bool is_set_ = false;
};

}  // namespace genie::twin
