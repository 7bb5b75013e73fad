// An object behind a pointer, as a value: a copy of the pointer has a copy of the object.
#pragma once
#include <cassert>
#include <memory>
#include <utility>

namespace genie {

// `Type` has clone(), which returns a std::unique_ptr of a copy, or of nothing where a copy has none.
template <class Type>
class Cloned {
 public:
  Cloned() = default;
  Cloned(std::unique_ptr<Type> own) : own_(std::move(own)) {}
  Cloned(const Cloned& other) : own_(other.own_ == nullptr ? nullptr : other.own_->clone()) {}
  Cloned(Cloned&&) = default;
  Cloned& operator=(Cloned other) {
    own_ = std::move(other.own_);
    return *this;
  }
  ~Cloned() = default;

  Type* operator->() { return &**this; }
  const Type* operator->() const { return &**this; }
  Type& operator*() {
    assert(own_ != nullptr);
    return *own_;
  }
  const Type& operator*() const {
    assert(own_ != nullptr);
    return *own_;
  }
  friend bool operator==(const Cloned& one, std::nullptr_t) { return one.own_ == nullptr; }

 private:
  std::unique_ptr<Type> own_;
};

}  // namespace genie
