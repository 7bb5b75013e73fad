#include "twin/kernel/huge_pages.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace genie::twin {

void* take_memory(std::size_t size_bytes) {
  const bool huge = size_bytes >= kHugePageBytes / 2;
  const std::size_t unit = huge ? kHugePageBytes : 64;
  const std::size_t whole = (size_bytes + unit - 1) / unit * unit;
  void* const memory = std::aligned_alloc(unit, whole == 0 ? unit : whole);
  if (memory == nullptr) throw std::bad_alloc();
  if (huge) madvise(memory, whole, MADV_HUGEPAGE);  // advice: without it all is the same, but slower
  return memory;
}

void give_memory(void* memory) { std::free(memory); }

}  // namespace genie::twin
