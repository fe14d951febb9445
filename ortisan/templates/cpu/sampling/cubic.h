// Keys' cubic convolution: the weights of four neighbours.
#pragma once

namespace ortisan::detail {

// Of the pixels -1, 0, 1 and 2 behind the one before a place, which is `share` behind that.
template <class V>
void cubic_weights(V share, V a, V (&weight)[4]) {
  const auto near = [=](V d) { return ((a + V(2)) * d - (a + V(3))) * d * d + V(1); };
  const auto far = [=](V d) { return ((a * d - V(5) * a) * d + V(8) * a) * d - V(4) * a; };
  weight[0] = far(share + V(1));
  weight[1] = near(share);
  weight[2] = near(V(1) - share);
  weight[3] = far(V(2) - share);
}

}  // namespace ortisan::detail
