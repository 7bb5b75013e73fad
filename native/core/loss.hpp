// Which data packets a fault plan loses: the same decision in both worlds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace genie {

// Counts the data packets of one sender to one receiver, retransmissions included, from 0.
class LossPlan {
 public:
  // Loses every n-th packet (0: none).
  void every(std::uint64_t n) { every_ = n; }
  // Loses the packets with these numbers.
  void script(std::vector<std::uint64_t> numbers) {
    script_ = std::move(numbers);
    std::sort(script_.begin(), script_.end());
  }
  bool lose_next() {
    const std::uint64_t number = count_++;
    if (every_ != 0 && (number + 1) % every_ == 0) return true;
    return std::binary_search(script_.begin(), script_.end(), number);
  }

 private:
  std::uint64_t every_ = 0, count_ = 0;
  std::vector<std::uint64_t> script_;
};

}  // namespace genie
