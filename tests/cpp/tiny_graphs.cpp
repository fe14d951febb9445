// Hand-made graphs, small enough to read, that use every part of the tables.
//
// tiny_add: y[batch, 2*seq - 1, 4] and z[batch]:  y = x[batch, seq, 4] cut in two at seq (rows from seq on repeat the first
//           ones) + w[4];  z = sum of a batch's y plus the bias b[batch].  A negative number in b[0] is a failure.
// tiny_where: out[n] = a[n] if c[n] else 0, of doubles.
// tiny_rules: r[n - m] = 0 of p[n, m], q[n + m] and an input [k] with a long name, where k = n, m is even and n >= 2; nothing but
//             rules for shapes.
// tiny_same: y[n] = 1 where its memory is that of x[n], which it may be, else 0.

#include "execution.h"

namespace ortisan {
namespace {

constexpr DimSpec symbol(int64_t s) { return {DimSpec::symbol, s}; }
constexpr DimSpec fixed(int64_t n) { return {DimSpec::fixed, n}; }
constexpr DimSpec expression(int64_t e) { return {DimSpec::expression, e}; }

template <class S>
MaybeInt add_expression(int32_t, S s) {
  return s[1] * 2 - 1;
}

constexpr DimSpec x_dims[] = {symbol(0), symbol(1), fixed(4)};
constexpr DimSpec b_dims[] = {symbol(0)};
constexpr DimSpec y_dims[] = {symbol(0), expression(0), fixed(4)};
constexpr TensorSpec add_inputs[] = {{"x", 1, 3, x_dims}, {"b \"quoted\"", 1, 1, b_dims}};
constexpr WeightSpec add_weights[] = {{"w", 1, 16, false}};
constexpr TensorSpec add_outputs[] = {{"y", 1, 3, y_dims}, {"z", 1, 1, b_dims}};
constexpr SymbolSpec add_symbols[] = {{"batch", 0, INT64_MAX}, {"seq", 1, 512}};
constexpr GuardSpec add_guards[] = {{GuardSpec::divisible, symbol(1), fixed(1), "node 'first'"},
                                    {GuardSpec::broadcastable, symbol(0), symbol(1), "node 'second'"}};

int64_t add_scratch(const int64_t* s) { return s[0] * (s[1] * 2 - 1) * 4 * static_cast<int64_t>(sizeof(float)); }

const char* add_run(const int64_t* s, const void* const* inputs, const void* const* weights, void* const* outputs,
                    char* scratch, Parallel parallel) {
  const int64_t batch = s[0], seq = s[1], rows = 2 * seq - 1;
  const float* x = static_cast<const float*>(inputs[0]);
  const float* b = static_cast<const float*>(inputs[1]);
  const float* w = static_cast<const float*>(weights[0]);
  float* y = static_cast<float*>(outputs[0]);
  float* z = static_cast<float*>(outputs[1]);
  float* sums = reinterpret_cast<float*>(scratch);
  Context context(parallel);
  if (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) return "scratch is not aligned";
  context.parallel(batch * rows, [&](int64_t i) {
    const int64_t n = i / rows, row = i % rows;
    if (b[n] < 0) context.fail("a bias is negative");
    for (int64_t j = 0; j < 4; ++j) {
      const float value = x[(n * seq + row % seq) * 4 + j] + w[j];
      y[i * 4 + j] = value;
      sums[i * 4 + j] = value;
    }
  });
  context.parallel(batch, [&](int64_t n) {
    float sum = b[n];
    for (int64_t k = 0; k < rows * 4; ++k) sum += sums[n * rows * 4 + k];
    z[n] = sum;
  });
  return context.failure.load();
}

constexpr DimSpec n_dims[] = {symbol(0)};
constexpr TensorSpec where_inputs[] = {{"c", 9, 1, n_dims}, {"a", 11, 1, n_dims}};
constexpr TensorSpec where_outputs[] = {{"out", 11, 1, n_dims}};
constexpr SymbolSpec where_symbols[] = {{"n", 2, INT64_MAX}};

const char* where_run(const int64_t* s, const void* const* inputs, const void* const*, void* const* outputs, char*,
                      Parallel) {
  const bool* c = static_cast<const bool*>(inputs[0]);
  const double* a = static_cast<const double*>(inputs[1]);
  for (int64_t i = 0; i < s[0]; ++i) static_cast<double*>(outputs[0])[i] = c[i] ? a[i] : 0.0;
  return nullptr;
}

template <class S>
MaybeInt rules_expression(int32_t index, S s) {
  return index == 0 ? s[0] + s[1] : s[0] - s[1];
}

constexpr DimSpec p_dims[] = {symbol(0), symbol(1)};
constexpr DimSpec q_dims[] = {expression(0)};
constexpr DimSpec k_dims[] = {symbol(2)};
constexpr DimSpec r_dims[] = {expression(1)};
#define TEN_BYTES "\303\266\303\266\303\266\303\266\303\266"
constexpr TensorSpec rules_inputs[] = {
    {"p", 10, 2, p_dims},
    {"q", 16, 1, q_dims},
    {"x" TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES TEN_BYTES,
     7, 1, k_dims}};
constexpr TensorSpec rules_outputs[] = {{"r", 16, 1, r_dims}};
constexpr SymbolSpec rules_symbols[] = {{"n", 0, INT64_MAX}, {"m", 0, INT64_MAX}, {"k", 0, INT64_MAX}};
constexpr GuardSpec rules_guards[] = {{GuardSpec::equal, symbol(2), symbol(0), "node 'equal'"},
                                      {GuardSpec::divisible, symbol(1), fixed(2), "node 'even'"},
                                      {GuardSpec::at_least, symbol(0), fixed(2), "node 'two'"}};

const char* rules_run(const int64_t* s, const void* const*, const void* const*, void* const* outputs, char*, Parallel) {
  for (int64_t i = 0; i < s[0] - s[1]; ++i) static_cast<uint16_t*>(outputs[0])[i] = 0;
  return nullptr;
}

constexpr TensorSpec same_inputs[] = {{"x", 11, 1, n_dims}};
constexpr TensorSpec same_outputs[] = {{"y", 11, 1, n_dims}};

size_t same_shared(int** inputs, int** outputs) {
  static int in[] = {0}, out[] = {0};
  *inputs = in, *outputs = out;
  return 1;
}

const char* same_run(const int64_t* s, const void* const* inputs, const void* const*, void* const* outputs, char*,
                     Parallel) {
  const double same = inputs[0] == outputs[0] ? 1 : 0;
  for (int64_t i = 0; i < s[0]; ++i) static_cast<double*>(outputs[0])[i] = same;
  return nullptr;
}

int64_t no_scratch(const int64_t*) { return 0; }

constexpr Execution add_execution = {add_scratch, add_run, false};
constexpr Execution where_execution = {no_scratch, where_run, false};
constexpr Execution rules_execution = {no_scratch, rules_run, false};
constexpr Execution same_execution = {no_scratch, same_run, false};

constexpr GraphSpec tiny_add = {"tiny_add",
                                add_inputs,
                                2,
                                add_weights,
                                1,
                                add_outputs,
                                2,
                                add_symbols,
                                2,
                                add_guards,
                                2,
                                add_outputs,
                                1,
                                add_expression<Symbols>,
                                add_expression<const MaybeInt*>,
                                nullptr,
                                &add_execution};
constexpr GraphSpec tiny_where = {"tiny_where",
                                  where_inputs,
                                  2,
                                  nullptr,
                                  0,
                                  where_outputs,
                                  1,
                                  where_symbols,
                                  1,
                                  nullptr,
                                  0,
                                  where_outputs,
                                  1,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  &where_execution};

constexpr GraphSpec tiny_rules = {"tiny_rules",
                                  rules_inputs,
                                  3,
                                  nullptr,
                                  0,
                                  rules_outputs,
                                  1,
                                  rules_symbols,
                                  3,
                                  rules_guards,
                                  3,
                                  rules_inputs,
                                  3,
                                  rules_expression<Symbols>,
                                  rules_expression<const MaybeInt*>,
                                  nullptr,
                                  &rules_execution};

constexpr GraphSpec tiny_same = {
    "tiny_same", same_inputs, 1,           nullptr, 0,       same_outputs, 1,           where_symbols,  1,
    nullptr,     0,           same_inputs, 1,       nullptr, nullptr,      same_shared, &same_execution};

}  // namespace

extern const GraphSpec* const graph_specs[] = {&tiny_add, &tiny_where, &tiny_rules, &tiny_same};
extern const int32_t graph_spec_count = 4;
extern const char* const domain_name = "ortisan.tiny";

}  // namespace ortisan
