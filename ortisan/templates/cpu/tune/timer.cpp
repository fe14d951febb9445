// Times matrix products under several blockings, for codegen/cpu/tune/timer.py. Plain functions: a module of pybind11 takes far
// longer to compile than the products.
//
// A blocking is 4 numbers: depth, band, work, prefetch; a launch is depth, bands, groups, prefetch.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

#include "products.h"
#include "thread_pool.h"

extern "C" {

struct OrtisanProduct {
  const char* type;
  int64_t rows, depth;
  const int64_t* columns;
  int64_t column_count;
  const int64_t* blockings;
  int64_t blocking_count;
};

}  // extern "C"

namespace ortisan {
namespace {

constexpr double sample_seconds = 50e-6;  // what is shorter runs several times in a row, for the clock's sake
constexpr double hopeless = 1.25;  // times the best after the first rounds: such a blocking is not run again
constexpr int fewest_rounds = 3, most_rounds = 400;

double seconds_on(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double now() { return seconds_on(CLOCK_MONOTONIC); }

// Memory full of ones, on page boundaries as mapped weights are.
class Ones {
 public:
  Ones(const TimedProduct& product, int64_t count) {
    constexpr size_t page = 4096;
    const size_t bytes = static_cast<size_t>(std::max<int64_t>(1, count * product.element_bytes));
    data_.reset(std::aligned_alloc(page, (bytes + page - 1) / page * page));
    if (data_ == nullptr) throw std::bad_alloc();
    product.fill(data_.get(), count);
  }
  char* get() const { return static_cast<char*>(data_.get()); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
};

// One product and the memory it works on. Each run reads the next copy of the weights, so that they are as cold as in a
// model with as many bytes of weights.
class Bench {
 public:
  Bench(const TimedProduct& product, int64_t M, int64_t K, int64_t N, int threads, int64_t copies, const char* weights)
      : product_(product), M_(M), N_(N), K_(K), copies_(copies), each_(product.packed_bytes(K, N)), weights_(weights),
        pool_(threads), a_(product, M * K), out_(product, M * N) {}

  double seconds_of(const Blocking& blocking, int64_t repeats) {
    // The time of the only thread is its own, which other processes don't lengthen.
    const clockid_t clock = pool_.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double start = seconds_on(clock);
    for (int64_t i = 0; i < repeats; ++i) {
      next_ = (next_ + 1) % copies_;
      const char* packed = weights_ + next_ * each_;
      product_.run(pool_.handle(), M_, N_, K_, a_.get(), packed, out_.get(), blocking);
    }
    return (seconds_on(clock) - start) / static_cast<double>(repeats);
  }

 private:
  const TimedProduct& product_;
  int64_t M_, N_, K_, copies_, each_, next_ = 0;
  const char* weights_;
  ThreadPool pool_;
  Ones a_, out_;
};

std::vector<Blocking> checked_blockings(const OrtisanProduct& asked) {
  std::vector<Blocking> all;
  for (int64_t i = 0; i < asked.blocking_count; ++i) {
    const int64_t* numbers = asked.blockings + 4 * i;
    if (std::min({numbers[0], numbers[1], numbers[2]}) < 1)
      throw std::invalid_argument("depth, band and work of a blocking must be at least 1");
    all.push_back({numbers[0], numbers[1], numbers[2], numbers[3] != 0});
  }
  return all;
}

const TimedProduct& checked_product(const OrtisanProduct& asked) {
  const TimedProduct* product = find_product(asked.type);
  if (product == nullptr) throw std::invalid_argument("products of this type are not timed");
  const int64_t* last = asked.columns + asked.column_count;
  if (asked.rows < 1 || asked.depth < 1 || asked.column_count < 1 || *std::min_element(asked.columns, last) < 1)
    throw std::invalid_argument("rows, depth and columns must be at least 1");
  return *product;
}

// The blockings run in turn, so that what slows the machine slows all of them; the best of each counts.
std::vector<double> race(Bench& bench, const std::vector<Blocking>& blockings, double seconds) {
  bench.seconds_of(blockings[0], 1);
  const double once = bench.seconds_of(blockings[0], 1);
  const int64_t repeats = std::max<int64_t>(1, static_cast<int64_t>(sample_seconds / std::max(once, 1e-9)));
  std::vector<double> best(blockings.size(), std::numeric_limits<double>::infinity());
  const double end = now() + seconds;
  for (int round = 0; round < fewest_rounds || (round < most_rounds && now() < end); ++round) {
    const double limit = hopeless * *std::min_element(best.begin(), best.end());
    for (size_t i = 0; i < blockings.size(); ++i) {
      const size_t c = round % 2 == 0 ? i : blockings.size() - 1 - i;
      if (round < fewest_rounds || best[c] <= limit)
        best[c] = std::min(best[c], bench.seconds_of(blockings[c], repeats));
    }
  }
  return best;
}

// Products of one input are one list of panels, so they are timed as one product that has as many.
int64_t padded(const TimedProduct& product, const OrtisanProduct& asked) {
  const int64_t width = product.panel_width;
  int64_t all = 0;
  for (int64_t i = 0; i < asked.column_count; ++i) all += (asked.columns[i] + width - 1) / width * width;
  return all;
}

// Keeps the weights from one product to the next: to fill them takes as long as many runs.
class Timer {
 public:
  void time(const OrtisanProduct& asked, int threads, int64_t copies, double seconds, double* results) {
    const TimedProduct& product = checked_product(asked);
    if (threads < 1 || threads > 1024 || copies < 1)
      throw std::invalid_argument("threads must be 1..1024 and copies at least 1");
    const std::vector<Blocking> blockings = checked_blockings(asked);
    if (blockings.empty()) return;
    const std::lock_guard<std::mutex> turn(turn_);
    const int64_t N = padded(product, asked), K = asked.depth;
    Bench bench(product, asked.rows, K, N, threads, copies,
                weights(product, product.packed_bytes(K, N) / product.element_bytes * copies));
    const std::vector<double> best = race(bench, blockings, seconds);
    std::copy(best.begin(), best.end(), results);
  }

 private:
  const char* weights(const TimedProduct& product, int64_t count) {
    if (product_ != &product || count_ < count) {
      weights_.reset();
      weights_ = std::make_unique<Ones>(product, count);
      product_ = &product;
      count_ = count;
    }
    return weights_->get();
  }

  std::mutex turn_;
  const TimedProduct* product_ = nullptr;
  int64_t count_ = 0;
  std::unique_ptr<Ones> weights_;
};

// Runs f and tells how it ended: 0 is well, 1 has a sentence, 2 is a lack of memory.
template <class F>
int guarded(char* sentence, size_t size, const F& f) noexcept {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) {
    return 2;
  } catch (const std::exception& error) {
    std::snprintf(sentence, size, "%s", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace ortisan

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void* ortisan_timer() { return new (std::nothrow) ortisan::Timer; }

EXPORT void ortisan_timer_free(void* timer) { delete static_cast<ortisan::Timer*>(timer); }

// Best seconds of one product under each blocking. Each run reads the next of `copies` of the weights.
EXPORT int ortisan_time_products(void* timer, const OrtisanProduct* asked, int threads, int64_t copies, double seconds,
                                 double* results, char* sentence, size_t size) {
  return ortisan::guarded(
      sentence, size, [&] { static_cast<ortisan::Timer*>(timer)->time(*asked, threads, copies, seconds, results); });
}

// What each blocking comes to on the instruction set that this is built for.
EXPORT int ortisan_launches(const OrtisanProduct* asked, int64_t* results, char* sentence, size_t size) {
  return ortisan::guarded(sentence, size, [&] {
    const ortisan::TimedProduct& product = ortisan::checked_product(*asked);
    const int64_t N = ortisan::padded(product, *asked);
    for (const ortisan::Blocking& blocking : ortisan::checked_blockings(*asked)) {
      const ortisan::Launch launch = product.launch(asked->rows, N, asked->depth, blocking);
      for (const int64_t number : {launch.depth, launch.bands, launch.groups, int64_t(launch.prefetch)})
        *results++ = number;
    }
  });
}

#undef EXPORT
