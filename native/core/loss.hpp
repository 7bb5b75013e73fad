// Which data packets a fault plan loses: the same decision in both worlds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace genie {

// Counts the data packets of one sender to one receiver, retransmissions included, from 0.
class LossPlan {
 public:
  LossPlan() = default;
  // Ranks: each pair loses at places of its own.
  LossPlan(std::int32_t source, std::int32_t target)
      : pair_(mixed((std::uint64_t{static_cast<std::uint32_t>(source)} << 32) |
                    static_cast<std::uint32_t>(target))) {}

  // Loses one packet of every n that follow one another, at a drawn place (0: none). At a fixed place the
  // same packet would be lost in each of its retries where these, too, come every n packets.
  void every(std::uint64_t n) { every_ = n; }
  // Loses the packets with these numbers.
  void script(std::vector<std::uint64_t> numbers) {
    script_ = std::move(numbers);
    std::sort(script_.begin(), script_.end());
  }
  bool lose_next() {
    const std::uint64_t number = count_++;
    if (every_ != 0 && number % every_ == mixed(pair_ + number / every_) % every_) return true;
    return std::binary_search(script_.begin(), script_.end(), number);
  }

 private:
  // SplitMix64 (Steele, Lea and Flood, 2014): the output for a state.
  static constexpr std::uint64_t mixed(std::uint64_t state) {
    state += 0x9E3779B97F4A7C15ull;
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
    return state ^ (state >> 31);
  }

  std::uint64_t every_ = 0, count_ = 0, pair_ = 0;
  std::vector<std::uint64_t> script_;
};

}  // namespace genie
