#include "roce/crc32.hpp"

#include <array>
#include <bit>
#include <cassert>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define GENIE_CRC_X86 1
#endif

namespace genie::roce {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kOne = 0x8000'0000;  // x^0

// kSlices[k][b]: what byte b does to the register, with k bytes after it.
constexpr std::array<std::array<std::uint32_t, 256>, 16> kSlices = [] {
  std::array<std::array<std::uint32_t, 256>, 16> slices{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) slices[0][byte] = crc_of_byte(byte, 0);
  for (std::size_t k = 1; k < 16; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = slices[k - 1][byte];
      slices[k][byte] = crc >> 8 ^ slices[0][crc & 0xFF];
    }
  return slices;
}();

std::uint32_t load32(const std::byte* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Contribution of a word to the register, with `after` bytes after it (0, 4, 8 or 12).
std::uint32_t slice_word(std::uint32_t word, std::size_t after) {
  return kSlices[after + 3][word & 0xFF] ^ kSlices[after + 2][word >> 8 & 0xFF] ^
         kSlices[after + 1][word >> 16 & 0xFF] ^ kSlices[after][word >> 24];
}

std::uint32_t update_table(std::uint32_t crc, const std::byte* data, std::size_t size_bytes) {
  for (; size_bytes >= 16; data += 16, size_bytes -= 16)
    crc = slice_word(crc ^ load32(data), 12) ^ slice_word(load32(data + 4), 8) ^
          slice_word(load32(data + 8), 4) ^ slice_word(load32(data + 12), 0);
  for (; size_bytes >= 4; data += 4, size_bytes -= 4) crc = slice_word(crc ^ load32(data), 0);
  for (; size_bytes > 0; ++data, --size_bytes)
    crc = crc >> 8 ^ kSlices[0][(crc ^ static_cast<std::uint32_t>(*data)) & 0xFF];
  return crc;
}

#ifdef GENIE_CRC_X86

// Folding. A block of 128 bits that stands D bits before another is replaced by 128 bits in the other's
// place. These are congruent to the block modulo the polynomial P. In a register, bit m stands for x^(127-m).
// The low 64 bits L and the high ones H are therefore L·x^64 + H. The products L·(x^(D+64) mod P) + H·(x^D
// mod P) fit into 128 bits. A reflected 64×64 product comes out one place low. A 32-bit remainder stands at
// the top of its 64-bit operand. This makes the exponents D+32 and D-32, and shifts each constant left by
// one.
constexpr std::uint64_t fold_constant(std::uint32_t exponent) {
  std::uint32_t power = kOne;
  for (; exponent > 0; --exponent) power = crc_times_x(power);
  return std::uint64_t{power} << 1;
}

template <std::uint32_t kDistanceBits>
struct Fold {
  static constexpr long long kLow = static_cast<long long>(fold_constant(kDistanceBits + 32));
  static constexpr long long kHigh = static_cast<long long>(fold_constant(kDistanceBits - 32));
};

#define GENIE_TARGET_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define GENIE_TARGET_VPCLMUL __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))

template <std::uint32_t kDistanceBits>
GENIE_TARGET_PCLMUL inline __m128i fold128(__m128i block, __m128i onto) {
  const __m128i constants = _mm_set_epi64x(Fold<kDistanceBits>::kHigh, Fold<kDistanceBits>::kLow);
  return _mm_xor_si128(onto, _mm_xor_si128(_mm_clmulepi64_si128(block, constants, 0x00),
                                           _mm_clmulepi64_si128(block, constants, 0x11)));
}

GENIE_TARGET_PCLMUL inline __m128i load128(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// The register after a folded block, then the bytes that did not fill one.
GENIE_TARGET_PCLMUL std::uint32_t finish128(__m128i block, const std::byte* data, std::size_t size_bytes) {
  for (; size_bytes >= 16; data += 16, size_bytes -= 16) block = fold128<128>(block, load128(data));
  std::byte folded[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(folded), block);
  return update_table(update_table(0, folded, sizeof folded), data, size_bytes);
}

GENIE_TARGET_PCLMUL std::uint32_t update_pclmul(std::uint32_t crc, const std::byte* data,
                                                std::size_t size_bytes) {
  if (size_bytes < 64) return update_table(crc, data, size_bytes);
  __m128i a = _mm_xor_si128(load128(data), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = load128(data + 16), c = load128(data + 32), d = load128(data + 48);
  data += 64, size_bytes -= 64;
  for (; size_bytes >= 64; data += 64, size_bytes -= 64) {
    a = fold128<512>(a, load128(data));
    b = fold128<512>(b, load128(data + 16));
    c = fold128<512>(c, load128(data + 32));
    d = fold128<512>(d, load128(data + 48));
  }
  return finish128(fold128<128>(fold128<128>(fold128<128>(a, b), c), d), data, size_bytes);
}

template <std::uint32_t kDistanceBits>
GENIE_TARGET_VPCLMUL inline __m512i fold512(__m512i block, __m512i onto) {
  const __m512i constants =
      _mm512_set_epi64(Fold<kDistanceBits>::kHigh, Fold<kDistanceBits>::kLow, Fold<kDistanceBits>::kHigh,
                       Fold<kDistanceBits>::kLow, Fold<kDistanceBits>::kHigh, Fold<kDistanceBits>::kLow,
                       Fold<kDistanceBits>::kHigh, Fold<kDistanceBits>::kLow);
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(onto, _mm512_clmulepi64_epi128(block, constants, 0x00),
                                   _mm512_clmulepi64_epi128(block, constants, 0x11), kXorOfThree);
}

GENIE_TARGET_VPCLMUL inline __m512i load512(const std::byte* at) { return _mm512_loadu_si512(at); }

GENIE_TARGET_VPCLMUL std::uint32_t update_vpclmul512(std::uint32_t crc, const std::byte* data,
                                                     std::size_t size_bytes) {
  if (size_bytes < 256) return update_pclmul(crc, data, size_bytes);
  const __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc)));
  __m512i a = _mm512_xor_si512(load512(data), start);
  __m512i b = load512(data + 64), c = load512(data + 128), d = load512(data + 192);
  data += 256, size_bytes -= 256;
  for (; size_bytes >= 256; data += 256, size_bytes -= 256) {
    a = fold512<2048>(a, load512(data));
    b = fold512<2048>(b, load512(data + 64));
    c = fold512<2048>(c, load512(data + 128));
    d = fold512<2048>(d, load512(data + 192));
  }
  __m512i all = fold512<512>(fold512<512>(fold512<512>(a, b), c), d);
  for (; size_bytes >= 64; data += 64, size_bytes -= 64) all = fold512<512>(all, load512(data));
  std::byte lanes[64];
  _mm512_storeu_si512(lanes, all);
  __m128i block = load128(lanes);
  for (int lane = 1; lane < 4; ++lane) block = fold128<128>(block, load128(lanes + 16 * lane));
  _mm256_zeroupper();
  return finish128(block, data, size_bytes);
}

#endif

using Update = std::uint32_t (*)(std::uint32_t, const std::byte*, std::size_t);

Update update_of(CrcPath path) {
#ifdef GENIE_CRC_X86
  if (path == CrcPath::kPclmul) return update_pclmul;
  if (path == CrcPath::kVpclmul512) return update_vpclmul512;
#endif
  assert(path == CrcPath::kTable);
  return update_table;
}

CrcPath fastest() {
  CrcPath best = CrcPath::kTable;
  for (const CrcPath path : kCrcPaths)
    if (crc_path_available(path)) best = path;
  return best;
}

const CrcPath kChosen = fastest();
const Update kUpdate = update_of(kChosen);

}  // namespace

bool crc_path_available(CrcPath path) {
  if (path == CrcPath::kTable) return true;
#ifdef GENIE_CRC_X86
  __builtin_cpu_init();
  const bool pclmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  if (path == CrcPath::kPclmul) return pclmul;
  return pclmul && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
#else
  return false;
#endif
}

CrcPath crc_path_chosen() { return kChosen; }

const char* crc_path_name(CrcPath path) {
  switch (path) {
    case CrcPath::kTable:
      return "table";
    case CrcPath::kPclmul:
      return "pclmul";
    case CrcPath::kVpclmul512:
      return "vpclmul512";
  }
  return "unknown";
}

std::uint32_t crc_update(std::uint32_t crc, const std::byte* data, std::size_t size_bytes) {
  return size_bytes < 64 ? update_table(crc, data, size_bytes) : kUpdate(crc, data, size_bytes);
}

std::uint32_t crc_update_by(CrcPath path, std::uint32_t crc, const std::byte* data, std::size_t size_bytes) {
  return update_of(path)(crc, data, size_bytes);
}

namespace {

// Product of two polynomials modulo the CRC's.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1, b = crc_times_x(b)) {
    if (a & bit) sum ^= b;
  }
  return sum;
}

// x to the power of -8 * 2^k: what takes back 2^k bytes of zero.
constexpr std::array<std::uint32_t, 17> kTakeBack = [] {
  std::array<std::uint32_t, 17> out{};
  std::uint32_t inverse = (kOne ^ kCrcPolynomial) << 1 | 1U;  // of x
  for (int doubling = 0; doubling < 3; ++doubling) inverse = product(inverse, inverse);
  for (std::uint32_t& power : out) {
    power = inverse;
    inverse = product(inverse, inverse);
  }
  return out;
}();

}  // namespace

std::uint32_t crc_before_zeros(std::uint32_t crc, std::size_t zeros) {
  for (std::size_t bit = 0; bit < kTakeBack.size(); ++bit) {
    if (zeros >> bit & 1U) crc = product(crc, kTakeBack[bit]);
  }
  return crc;
}

}  // namespace genie::roce
