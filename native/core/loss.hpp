// Choice of the data packets that a fault plan loses, the same in both worlds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/mix.hpp"

namespace genie {

// Counts the data packets of one sender to one receiver, retransmissions included, from 0.
class LossPlan {
 public:
  LossPlan() = default;
  // Ranks: each pair loses at places of its own.
  LossPlan(std::int32_t source, std::int32_t target) : pair_(drawn(pair_key(source, target))) {}

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
    if (every_ != 0 && number % every_ == drawn(pair_ + number / every_) % every_) return true;
    return std::binary_search(script_.begin(), script_.end(), number);
  }

 private:
  static constexpr std::uint64_t drawn(std::uint64_t state) { return mixed(state + kGoldenGamma); }

  std::uint64_t every_ = 0, count_ = 0, pair_ = 0;
  std::vector<std::uint64_t> script_;
};

}  // namespace genie
