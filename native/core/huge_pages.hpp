// Large arrays in huge pages, where the kernel gives them when asked (Linux's transparent huge pages): what
// is touched in no order costs a walk through page tables less each time.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace genie {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Memory from the beginning of a huge page on, for std::free.
inline void* huge_memory(std::size_t size_bytes) {
  const std::size_t whole = (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* const memory = std::aligned_alloc(kHugePageBytes, whole);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, whole, MADV_HUGEPAGE);  // advice: without it all is the same, but slower
  return memory;
}

// For vectors: small ones are ordinary.
template <class Value>
struct HugeAllocator {
  using value_type = Value;
  HugeAllocator() = default;
  template <class Other>
  HugeAllocator(const HugeAllocator<Other>&) {}

  Value* allocate(std::size_t count) {
    const std::size_t size_bytes = count * sizeof(Value);
    if (is_large(size_bytes)) return static_cast<Value*>(huge_memory(size_bytes));
    return static_cast<Value*>(::operator new(size_bytes, std::align_val_t{alignof(Value)}));
  }
  void deallocate(Value* memory, std::size_t count) {
    if (is_large(count * sizeof(Value))) {
      std::free(memory);
    } else {
      ::operator delete(memory, std::align_val_t{alignof(Value)});
    }
  }
  template <class Other>
  bool operator==(const HugeAllocator<Other>&) const {
    return true;
  }

 private:
  static bool is_large(std::size_t size_bytes) { return size_bytes >= kHugePageBytes / 2; }
};

}  // namespace genie
