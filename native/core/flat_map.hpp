// A hash map from 64-bit keys to small values: open addressing, linear probing, no tombstones.
#pragma once
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace genie {

template <class Value>
class FlatMap {
 public:
  // The value of `key`, made if it is not there. Valid until the next call that adds or removes.
  Value& operator[](std::uint64_t key) {
    if ((count_ + 1) * 4 > slots_.size() * 3) grow();
    assert(std::has_single_bit(slots_.size()) && count_ < slots_.size());
    std::size_t at = home(key);
    while (slots_[at].used) {
      if (slots_[at].key == key) return slots_[at].value;
      at = (at + 1) & mask();
    }
    slots_[at] = Slot{key, true, Value{}};
    ++count_;
    return slots_[at].value;
  }

  Value* find(std::uint64_t key) { return const_cast<Value*>(std::as_const(*this).find(key)); }
  const Value* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t at = home(key); slots_[at].used; at = (at + 1) & mask()) {
      if (slots_[at].key == key) return &slots_[at].value;
    }
    return nullptr;
  }

  // Removes `key` and moves later entries of its run back, so that probing never meets a hole.
  void erase(std::uint64_t key) {
    if (slots_.empty()) return;
    std::size_t at = home(key);
    while (slots_[at].used && slots_[at].key != key) at = (at + 1) & mask();
    if (!slots_[at].used) return;
    --count_;
    for (std::size_t next = (at + 1) & mask(); slots_[next].used; next = (next + 1) & mask()) {
      if (((next - home(slots_[next].key)) & mask()) >= ((next - at) & mask())) {
        slots_[at] = std::move(slots_[next]);
        at = next;
      }
    }
    slots_[at].used = false;
  }

  void clear() {
    for (Slot& slot : slots_) slot.used = false;
    count_ = 0;
  }

  std::size_t size() const { return count_; }
  std::size_t memory_bytes() const { return slots_.size() * sizeof(Slot); }

  // fn(key, value) for each entry, in an order that only calls that add or remove change.
  template <class Function>
  void each(Function fn) {
    for (Slot& slot : slots_) {
      if (slot.used) fn(slot.key, slot.value);
    }
  }
  template <class Function>
  void each(Function fn) const {
    for (const Slot& slot : slots_) {
      if (slot.used) fn(slot.key, slot.value);
    }
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    bool used = false;
    Value value{};
  };

  std::size_t mask() const { return slots_.size() - 1; }

  std::size_t home(std::uint64_t key) const {
    key ^= key >> 31;
    key *= 0x9E3779B97F4A7C15ull;
    return (key ^ (key >> 32)) & mask();
  }

  void grow() {
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 16 : slots_.size() * 2));
    count_ = 0;
    for (Slot& slot : old) {
      if (slot.used) (*this)[slot.key] = std::move(slot.value);
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace genie
