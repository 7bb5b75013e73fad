// Large arrays in huge pages, where the kernel gives them when asked (Linux's transparent huge pages). Memory
// that is touched in no order then costs a walk through page tables less each time.
#pragma once
#include <cstddef>

namespace genie::twin {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Memory from a cache line's beginning on; from half a huge page's size in huge pages. Throws std::bad_alloc.
void* take_memory(std::size_t size_bytes);
void give_memory(void* memory);

// For vectors.
template <class Value>
struct HugeAllocator {
  using value_type = Value;
  HugeAllocator() = default;
  template <class Other>
  HugeAllocator(const HugeAllocator<Other>&) {}

  Value* allocate(std::size_t count) { return static_cast<Value*>(take_memory(count * sizeof(Value))); }
  void deallocate(Value* memory, std::size_t) { give_memory(memory); }
  template <class Other>
  bool operator==(const HugeAllocator<Other>&) const {
    return true;
  }
};

}  // namespace genie::twin
