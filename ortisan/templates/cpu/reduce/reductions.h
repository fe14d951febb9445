// What reductions make of their elements: how a value is prepared, how values are folded, and what is made of the result.
#pragma once

#include <cstdint>

#include "macros.h"
#include "scalar.h"

namespace ortisan {

struct FoldSum {
  template <class A>
  ORTISAN_BOTH static A start() {
    return A(0);
  }
  template <class A>
  ORTISAN_BOTH static A fold(A a, A b) {
    return fn::add(a, b);
  }
};

struct FoldProd {
  template <class A>
  ORTISAN_BOTH static A start() {
    return A(1);
  }
  template <class A>
  ORTISAN_BOTH static A fold(A a, A b) {
    return fn::mul(a, b);
  }
};

struct FoldMax {
  template <class A>
  ORTISAN_BOTH static A start() {
    return limits<A>::negative_infinity;
  }
  template <class A>
  ORTISAN_BOTH static A fold(A a, A b) {
    return fn::max(a, b);
  }
};

struct FoldMin {
  template <class A>
  ORTISAN_BOTH static A start() {
    return limits<A>::infinity;
  }
  template <class A>
  ORTISAN_BOTH static A fold(A a, A b) {
    return fn::min(a, b);
  }
};

namespace reduction {

struct plain {
  template <class A>
  ORTISAN_BOTH static A prepare(A x) {
    return x;
  }
  template <class A>
  ORTISAN_BOTH static A finish(A x, int64_t) {
    return x;
  }
};

struct sum : plain {
  using fold = FoldSum;
};
struct prod : plain {
  using fold = FoldProd;
};
struct max : plain {
  using fold = FoldMax;
};
struct min : plain {
  using fold = FoldMin;
};
struct any : plain {
  using fold = FoldMax;
};
struct all : plain {
  using fold = FoldMin;
};

struct mean : sum {
  template <class A>
  ORTISAN_BOTH static A finish(A x, int64_t n) {
    if constexpr (std::is_integral_v<A>) {
      using Wide = std::conditional_t<std::is_signed_v<A>, int64_t, uint64_t>;
      return static_cast<A>(fn::div(static_cast<Wide>(x), static_cast<Wide>(n)));
    } else {
      return n == 0 ? x : x / static_cast<A>(n);
    }
  }
};

struct l1 : sum {
  template <class A>
  ORTISAN_BOTH static A prepare(A x) {
    return fn::abs(x);
  }
};

struct sum_square : sum {
  template <class A>
  ORTISAN_BOTH static A prepare(A x) {
    return fn::mul(x, x);
  }
};

struct l2 : sum_square {
  template <class A>
  ORTISAN_BOTH static A finish(A x, int64_t) {
    if constexpr (std::is_integral_v<A>) {
      return cast<A>(fn::sqrt(static_cast<double>(x)));
    } else {
      return fn::sqrt(x);
    }
  }
};

struct log_sum : sum {
  template <class A>
  ORTISAN_BOTH static A finish(A x, int64_t) {
    if constexpr (std::is_integral_v<A>) {
      return cast<A>(fn::log(static_cast<double>(x)));
    } else {
      return fn::log(x);
    }
  }
};

// log(sum(e^x)), computed around the maximum: see reduce().
struct log_sum_exp : log_sum {};

}  // namespace reduction

namespace detail {

// Whether a candidate beats the best value so far: NaN beats every number, and the later of equals wins only with `last`.
template <bool maximum, class A>
ORTISAN_BOTH inline bool beats(A candidate, A best, bool last) {
  const bool better = maximum ? candidate > best : candidate < best;
  const bool equal = candidate == best;
  const bool number_gives_way = candidate != candidate && best == best;
  return better || (equal && last) || number_gives_way;
}

}  // namespace detail

}  // namespace ortisan
