// CRC-32 (polynomial 0x04C11DB7, reflected, as on Ethernet) of data in pieces, as fast as the processor
// allows.
#pragma once
#include <cstddef>
#include <cstdint>

namespace genie::roce {

// A CRC in progress is the raw register: it starts as kCrcInit and ends with ~register.
inline constexpr std::uint32_t kCrcInit = 0xFFFF'FFFF;

// Appends bytes: crc_update(crc_update(c, a), b) == crc_update(c, a·b). Takes the fastest algorithm that this
// processor has, found when the program starts.
std::uint32_t crc_update(std::uint32_t crc, const std::byte* data, std::size_t size_bytes);

// Algorithms: tables anywhere; carry-less multiplication of 128 bits (PCLMULQDQ) or of 512 bits (VPCLMULQDQ
// with AVX-512).
enum class CrcPath : std::uint8_t { kTable, kPclmul, kVpclmul512 };
inline constexpr CrcPath kCrcPaths[] = {CrcPath::kTable, CrcPath::kPclmul, CrcPath::kVpclmul512};

bool crc_path_available(CrcPath path);
CrcPath crc_path_chosen();
const char* crc_path_name(CrcPath path);

// `path` must be available.
std::uint32_t crc_update_by(CrcPath path, std::uint32_t crc, const std::byte* data, std::size_t size_bytes);

inline constexpr std::uint32_t kCrcPolynomial = 0xEDB8'8320;  // bit 31 is the coefficient of x^0

// One bit further: the register as a polynomial times x, modulo the CRC's.
constexpr std::uint32_t crc_times_x(std::uint32_t crc) { return crc >> 1 ^ (crc & 1U ? kCrcPolynomial : 0U); }

// Register after one byte and then `zeros` bytes of zero, from register 0. Take a register computed with zero
// in place of a byte at that distance from the end. Because the CRC is linear, the byte adds (by exclusive
// or) this value to that register.
constexpr std::uint32_t crc_of_byte(std::uint32_t byte, std::size_t zeros) {
  std::uint32_t crc = byte;
  for (std::size_t bit = 0; bit < 8 * (zeros + 1); ++bit) crc = crc_times_x(crc);
  return crc;
}

// The register before so many bytes of zero that made it `crc`, in time that grows with the logarithm of
// their number (below 2^17).
std::uint32_t crc_before_zeros(std::uint32_t crc, std::size_t zeros);

}  // namespace genie::roce
