// How matrix products are blocked: data, chosen by tuning. No blocking changes a result.
#pragma once

#include <cstdint>

namespace ortisan {

struct Blocking {
  int64_t depth;  // k per block: a panel of that depth stays in the nearer caches
  int64_t band;  // rows of A that one task works on: they stay in the L2 cache
  int64_t work;  // multiplications that make a task worth a thread
  bool prefetch;  // whether the panel that comes next is fetched into the caches meanwhile
};

constexpr Blocking default_blocking = {768, 128, 100000, true};

// A blocking and the most rows it was chosen for.
struct BlockingUpTo {
  int64_t rows;
  Blocking blocking;
};

// The blocking for M rows; the last one of the table serves all that are more.
template <int64_t count>
constexpr const Blocking& blocking_for(int64_t M, const BlockingUpTo (&blockings)[count]) {
  int64_t i = 0;
  while (i + 1 < count && M > blockings[i].rows) ++i;
  return blockings[i].blocking;
}

// What a blocking comes to for a product, where it is run.
struct Launch {
  int64_t depth;  // k per block; 0 where the kernel has a depth of its own
  int64_t bands, groups;  // of rows, and of panels: their product is the number of tasks
  bool prefetch;  // whether some tile fetches what is read next
};

}  // namespace ortisan
