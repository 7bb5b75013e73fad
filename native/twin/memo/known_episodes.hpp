// Episodes that are known, each by a description that all which are alike have in common.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "twin/memo/episode.hpp"

namespace genie::twin {

class KnownEpisodes {
 public:
  using Description = std::vector<std::int64_t>;

  // `most_bytes`: about; beyond it, those that nothing uses are to be forgotten.
  explicit KnownEpisodes(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}

  struct Lookup {
    Episode& episode;  // until it is forgotten
    bool is_new;       // an empty one
  };
  Lookup find(const Description& description);
  // An episode is known so from now on. Others may refer to what was known before.
  void replace(Episode& known, Episode next);
  bool are_too_large() const { return bytes_ > most_bytes_; }
  void forget_all_but(const std::set<const Episode*>& used);

  std::uint64_t memory_bytes() const { return bytes_; }
  std::uint64_t most_bytes() const { return most_bytes_; }
  // All that were ever known, forgotten ones included.
  std::uint64_t distinct() const { return distinct_; }

 private:
  static std::size_t memory_of(const Description& description) {
    return description.size() * sizeof(description.front());
  }

  std::map<Description, Episode> known_;
  std::uint64_t most_bytes_, bytes_ = 0;
  std::uint64_t distinct_ = 0;
};

}  // namespace genie::twin
