// A Python module that times matrix products under several blockings.
//
//   Timer().time_products(type, rows, depth, columns, blockings, threads, copies, seconds) -> [seconds under each blocking]
//   Timer().launches(type, rows, depth, columns, blockings) -> [what each blocking comes to here]
//
// A blocking is (depth, band, work, prefetch), a launch is (depth, bands, groups, prefetch).

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "products.h"
#include "thread_pool.h"

namespace py = pybind11;

namespace ortisan {
namespace {

using Numbers = std::tuple<int64_t, int64_t, int64_t, bool>;

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
      : product_(product), M_(M), N_(N), K_(K), copies_(copies), weights_(weights), pool_(threads), a_(product, M * K),
        out_(product, M * N) {}

  double seconds_of(const Blocking& blocking, int64_t repeats) {
    // The time of the only thread is its own, which other processes don't lengthen.
    const clockid_t clock = pool_.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double start = seconds_on(clock);
    for (int64_t i = 0; i < repeats; ++i) {
      next_ = (next_ + 1) % copies_;
      const char* packed = weights_ + next_ * N_ * K_ * product_.element_bytes;
      product_.run(pool_.handle(), M_, N_, K_, a_.get(), packed, out_.get(), blocking);
    }
    return (seconds_on(clock) - start) / static_cast<double>(repeats);
  }

 private:
  const TimedProduct& product_;
  int64_t M_, N_, K_, copies_, next_ = 0;
  const char* weights_;
  ThreadPool pool_;
  Ones a_, out_;
};

std::vector<Blocking> checked(const std::vector<Numbers>& blockings) {
  std::vector<Blocking> all;
  for (const auto& [depth, band, work, prefetch] : blockings) {
    if (std::min({depth, band, work}) < 1)
      throw py::value_error("depth, band and work of a blocking must be at least 1");
    all.push_back({depth, band, work, prefetch});
  }
  return all;
}

const TimedProduct& checked_product(const std::string& type, int64_t rows, int64_t depth,
                                    const std::vector<int64_t>& columns) {
  const TimedProduct* product = find_product(type.c_str());
  if (product == nullptr) throw py::value_error("products of " + type + " are not timed");
  if (rows < 1 || depth < 1 || columns.empty() || *std::min_element(columns.begin(), columns.end()) < 1)
    throw py::value_error("rows, depth and columns must be at least 1");
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

// Keeps the weights from one product to the next: to fill them takes as long as many runs.
class Timer {
 public:
  std::vector<double> time_products(const std::string& type, int64_t rows, int64_t depth,
                                    const std::vector<int64_t>& columns, const std::vector<Numbers>& blockings,
                                    int threads, int64_t copies, double seconds) {
    const TimedProduct& product = checked_product(type, rows, depth, columns);
    if (threads < 1 || threads > 1024 || copies < 1)
      throw py::value_error("threads must be 1..1024 and copies at least 1");
    const std::vector<Blocking> given = checked(blockings);
    if (blockings.empty()) return {};
    const py::gil_scoped_release released;
    const std::lock_guard<std::mutex> turn(turn_);
    const int64_t N = padded(product, columns);
    Bench bench(product, rows, depth, N, threads, copies, weights(product, N * depth * copies));
    return race(bench, given, seconds);
  }

  std::vector<Numbers> launches(const std::string& type, int64_t rows, int64_t depth,
                                const std::vector<int64_t>& columns, const std::vector<Numbers>& blockings) const {
    const TimedProduct& product = checked_product(type, rows, depth, columns);
    std::vector<Numbers> all;
    for (const Blocking& blocking : checked(blockings)) {
      const Launch launch = product.launch(rows, padded(product, columns), depth, blocking);
      all.emplace_back(launch.depth, launch.bands, launch.groups, launch.prefetch);
    }
    return all;
  }

 private:
  // Products of one input are one list of panels, so they are timed as one product that has as many.
  static int64_t padded(const TimedProduct& product, const std::vector<int64_t>& columns) {
    const int64_t width = product.panel_width;
    int64_t all = 0;
    for (const int64_t n : columns) all += (n + width - 1) / width * width;
    return all;
  }

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

}  // namespace
}  // namespace ortisan

PYBIND11_MODULE(ORTISAN_MODULE, module) {
  using ortisan::Timer;
  module.doc() = "Times matrix products under several blockings.";
  py::class_<Timer>(module, "Timer")
      .def(py::init<>())
      .def("launches", &Timer::launches, py::arg("type"), py::arg("rows"), py::arg("depth"), py::arg("columns"),
           py::arg("blockings"), "What each blocking comes to on the instruction set that the module is built for.")
      .def("time_products", &Timer::time_products, py::arg("type"), py::arg("rows"), py::arg("depth"),
           py::arg("columns"), py::arg("blockings"), py::arg("threads"), py::arg("copies"), py::arg("seconds"),
           "Best seconds of one product under each blocking. Each run reads the next of `copies` of the weights.");
}
