// The arithmetic of dim expressions: for kernels over plain integers, for everything that decides about memory over integers that
// notice when they stop being true.
#pragma once

#include <cstdint>

namespace ortisan {

// An integer that may be unknown: it depends on a symbol that has no value yet, or int64_t can't hold it.
struct MaybeInt {
  int64_t value = 0;
  bool known = false;

  constexpr MaybeInt() = default;
  constexpr MaybeInt(int64_t v) : value(v), known(true) {}
  constexpr bool is(int64_t number) const { return known && value == number; }

  friend constexpr MaybeInt operator+(MaybeInt a, MaybeInt b) {
    MaybeInt sum(0);
    sum.known = both(a, b) && !__builtin_add_overflow(a.value, b.value, &sum.value);
    return sum;
  }
  friend constexpr MaybeInt operator-(MaybeInt a, MaybeInt b) {
    MaybeInt difference(0);
    difference.known = both(a, b) && !__builtin_sub_overflow(a.value, b.value, &difference.value);
    return difference;
  }
  // 0 times anything is 0.
  friend constexpr MaybeInt operator*(MaybeInt a, MaybeInt b) {
    if (a.is(0) || b.is(0)) return 0;
    MaybeInt product(0);
    product.known = both(a, b) && !__builtin_mul_overflow(a.value, b.value, &product.value);
    return product;
  }
  static constexpr bool both(MaybeInt a, MaybeInt b) { return a.known && b.known; }
};

// Symbols that all have a value, for expressions over MaybeInt.
struct Symbols {
  const int64_t* values;
  constexpr MaybeInt operator[](int64_t index) const { return values[index]; }
};

// The vocabulary of dim expressions. x / 0 is 0.
constexpr int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) == (b < 0)) ? q + 1 : q;
}
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
constexpr int64_t max_dim(int64_t a, int64_t b) { return a < b ? b : a; }
constexpr int64_t min_dim(int64_t a, int64_t b) { return b < a ? b : a; }
constexpr int64_t broadcast_dim(int64_t a, int64_t b) { return a == 1 ? b : a; }

// The one quotient that int64_t can't hold is unknown.
constexpr bool can_divide(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) && !(a.value == INT64_MIN && b.value == -1);
}
constexpr MaybeInt floor_div(MaybeInt a, MaybeInt b) {
  return can_divide(a, b) ? MaybeInt(floor_div(a.value, b.value)) : MaybeInt();
}
constexpr MaybeInt ceil_div(MaybeInt a, MaybeInt b) {
  return can_divide(a, b) ? MaybeInt(ceil_div(a.value, b.value)) : MaybeInt();
}
constexpr MaybeInt round_up(MaybeInt a, MaybeInt b) { return ceil_div(a, b) * b; }
constexpr MaybeInt max_dim(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) ? MaybeInt(max_dim(a.value, b.value)) : MaybeInt();
}
constexpr MaybeInt min_dim(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) ? MaybeInt(min_dim(a.value, b.value)) : MaybeInt();
}
// One side known and not 1 settles it: the other side is equal to it, or 1.
constexpr MaybeInt broadcast_dim(MaybeInt a, MaybeInt b) {
  if (a.known) return a.value == 1 ? b : a;
  return b.known && b.value != 1 ? b : MaybeInt();
}

}  // namespace ortisan
