// NumPy arrays to vectors and back.
#pragma once
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"

namespace genie::bindings {

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::vector<T> to_vector(const Column<T>& column) {
  return std::vector<T>(column.data(), column.data() + column.size());
}

// Hands the vector's memory to a NumPy array without a copy.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

// One member of every record as an array.
template <class T, class Records, class Member>
nb::ndarray<nb::numpy, T, nb::ndim<1>> column_of(const Records& records, Member member) {
  std::vector<T> values;
  values.reserve(records.size());
  for (const auto& record : records) values.push_back(static_cast<T>(record.*member));
  return to_numpy(std::move(values));
}

}  // namespace genie::bindings
