// Common parts of the fuzzers: an input read in small pieces, and a check that ends the process.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <type_traits>

namespace genie::fuzz {

[[noreturn]] inline void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

// An input is a script: reads past its end return zeros.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  std::size_t left() const { return left_.size(); }

  template <class T>
  T take() {
    static_assert(std::is_integral_v<T>);
    T value = 0;
    const std::size_t size = std::min(sizeof value, left_.size());
    std::memcpy(&value, left_.data(), size);
    left_ = left_.subspan(size);
    return value;
  }
  std::uint32_t u8() { return take<std::uint8_t>(); }
  std::uint32_t u16() { return take<std::uint16_t>(); }
  std::uint32_t u32() { return take<std::uint32_t>(); }
  std::uint64_t u64() { return take<std::uint64_t>(); }
  bool flag() { return (u8() & 1) != 0; }
  // In [0, limit), from one byte: limit is at most 256.
  std::uint32_t below(std::uint32_t limit) { return u8() % limit; }

 private:
  std::span<const std::byte> left_;
};

}  // namespace genie::fuzz

#define REQUIRE(condition) \
  ((condition) ? static_cast<void>(0) : genie::fuzz::fail(#condition, __FILE__, __LINE__))

// The fuzzer's entry point: libFuzzer calls it, or main() of replay.cpp.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
