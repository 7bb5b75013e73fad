// Keeps the library non-empty and checks the headers compile on their own.
#include "core/mix.hpp"
#include "core/time.hpp"
static_assert(genie::serialisation_ps(1, 8) == genie::kPsPerSecond);
static_assert(genie::serialisation_ps(1 << 20, 8) == (1 << 20) * genie::kPsPerSecond);
static_assert(genie::serialisation_ps(2 << 20, 16'000'000) == (std::int64_t{2} << 20) * 500'000);
static_assert(genie::serialisation_ps(std::int64_t{1} << 40, 8) == genie::kNever);
// The first output of SplitMix64 for the seed 0, as published.
static_assert(genie::mixed(genie::kGoldenGamma) == 0xE220A8397B1DCDAF);
static_assert(genie::pair_key(1, 0xFFFFFFFF) == 0x1FFFFFFFF);
