// A block of plain values on the heap. With it the glue needs neither the C++ library nor exceptions, so that a library built on
// a new system also loads on an old one.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace ortisan {

// `count` zeroed values; `items` is null when there was no memory for them.
template <class T>
struct Array {
  static_assert(std::is_trivially_copyable<T>::value && std::is_trivially_destructible<T>::value, "calloc makes these");
  T* items;

  explicit Array(size_t count) : items(static_cast<T*>(std::calloc(count == 0 ? 1 : count, sizeof(T)))) {}
  explicit Array(int32_t count) : Array(static_cast<size_t>(count)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(items); }

  explicit operator bool() const { return items != nullptr; }
  template <class I>
  T& operator[](I index) const {
    return items[static_cast<size_t>(index)];
  }
};

}  // namespace ortisan
