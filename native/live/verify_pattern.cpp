#include "live/verify_pattern.hpp"

#include "core/mix.hpp"

namespace genie::live {

void fill_pattern(std::span<std::byte> source) {
  for (std::size_t at = 0; at < source.size(); ++at)
    source[at] =
        at < kPatternBytes ? static_cast<std::byte>(mixed(at + 1) & 0xFF) : source[at - kPatternBytes];
}

std::uint64_t pattern_phase(std::uint32_t source, std::uint32_t target, std::uint32_t queue_pair,
                            std::uint32_t message) {
  const std::uint64_t pair = mixed(pair_key(source, target) + 1);
  return mixed(pair + pair_key(queue_pair, message)) % (kPatternBytes / kPhaseBytes) * kPhaseBytes;
}

}  // namespace genie::live
