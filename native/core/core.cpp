// Keeps the library non-empty and checks the headers compile on their own.
#include "core/time.hpp"
static_assert(genie::serialisation_ps(1, 8) == genie::kPsPerSecond);
