#include "live/queue_pair_numbers.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

namespace genie::live {
namespace {

constexpr std::size_t kNumbers = 0x10000;

// False when the system has none to give.
bool fill_with_secrets(std::vector<std::uint32_t>& words) {
  auto* at = reinterpret_cast<std::byte*>(words.data());
  std::size_t left = words.size() * sizeof(std::uint32_t);
  while (left > 0) {
    const ssize_t got = getrandom(at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    left -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

std::string QueuePairNumbers::draw() {
  std::vector<std::uint32_t> words(kNumbers);
  if (!fill_with_secrets(words))
    return std::string("cannot draw queue pair numbers: ").append(std::strerror(errno));
  drawn_.resize(kNumbers);
  index_of_.resize(kNumbers);
  std::iota(drawn_.begin(), drawn_.end(), std::uint16_t{0});
  // Fisher and Yates; that 2^32 is no multiple of each length makes no number likelier by more than 2^-16.
  for (std::size_t left = kNumbers; left > 1; --left)
    std::swap(drawn_[left - 1], drawn_[words[left - 1] % left]);
  for (std::size_t index = 0; index < kNumbers; ++index)
    index_of_[drawn_[index]] = static_cast<std::uint16_t>(index);
  return "";
}

}  // namespace genie::live
