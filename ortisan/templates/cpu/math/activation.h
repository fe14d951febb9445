// Activation functions. Parameters come after x in the order of the ONNX op's attributes.
#pragma once

#include "arithmetic.h"
#include "elementary.h"

namespace ortisan::fn {

template <class T>
ORTISAN_BOTH inline T relu(T x) {
  return x < T(0) ? T(0) : x;
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)
ORTISAN_BOTH inline float softplus(float x) {
  const float z = exp_nonpositive(detail::negative_magnitude(x));
  return detail::at_least(x, detail::negative_zero) + detail::log1p_of_share(z);
}
ORTISAN_BOTH inline double softplus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-abs(x))); }

// x / (1 + |x|)
template <class T>
ORTISAN_BOTH inline T softsign(T x) {
  return x / (T(1) + abs(x));
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))
template <class T>
ORTISAN_BOTH inline T fastgelu(T x) {
  return x * sigmoid(x * (T(1.59576912160573071176) + T(0.0713548162726009205) * (x * x)));
}

template <class T>
ORTISAN_BOTH inline T silu(T x) {
  return x * sigmoid(x);
}

// x tanh(log(1 + e^x)) = x w / (w + 2), w = z (z + 2), z = e^x; the ratio is 1 long before e^x overflows.
ORTISAN_BOTH inline float mish(float x) {
  const float z = exp(detail::at_most(x, detail::mish_high));
  const float w = z * (z + 2.0f);
  return x * (w / (w + 2.0f));
}
ORTISAN_BOTH inline double mish(double x) {
  const double z = exp(x > 40.0 ? 40.0 : x);
  const double w = z * (z + 2.0);
  return x * (w / (w + 2.0));
}

// min(max(alpha x + beta, 0), 1)
template <class T>
ORTISAN_BOTH inline T hardsigmoid(T x, T alpha, T beta) {
  return clamp(alpha * x + beta, T(0), T(1));
}

template <class T>
ORTISAN_BOTH inline T hardswish(T x) {
  return x * hardsigmoid(x, T(1.0 / 6.0), T(0.5));
}

template <class T>
ORTISAN_BOTH inline T elu(T x, T alpha) {
  return x > T(0) ? x : alpha * expm1(x);
}

template <class T>
ORTISAN_BOTH inline T selu(T x, T alpha, T gamma) {
  return gamma * elu(x, alpha);
}

// max(x, 0) + min(alpha (e^(x / alpha) - 1), 0)
template <class T>
ORTISAN_BOTH inline T celu(T x, T alpha) {
  const T negative = alpha * expm1(x / alpha);
  return (x > T(0) ? x : T(0)) + (negative > T(0) ? T(0) : negative);
}

template <class T>
ORTISAN_BOTH inline T lrelu(T x, T slope) {
  return x < T(0) ? mul(slope, x) : x;
}

template <class T>
ORTISAN_BOTH inline T leaky_relu(T x, T slope) {
  return lrelu(x, slope);
}

template <class T>
ORTISAN_BOTH inline T prelu(T x, T slope) {
  return lrelu(x, slope);
}

template <class T>
ORTISAN_BOTH inline T thresholded_relu(T x, T alpha) {
  return x > alpha ? x : T(0);
}

// x + bias below -lambd, x - bias above lambd, 0 between.
template <class T>
ORTISAN_BOTH inline T shrink(T x, T lambd, T bias) {
  const T above = x > lambd ? sub(x, bias) : T(0);
  return x < neg(lambd) ? add(x, bias) : above;
}

}  // namespace ortisan::fn
