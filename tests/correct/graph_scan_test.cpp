// Compares the loop and its reverse with the unrolled computation for each rematerialisation policy: nested loops,
// captured values, integer carries, stacked results that are not read, and the size of programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph/scan.h"
#include "graph_run.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

// Implements scan() as a plain loop over slices.
ScanStep unrolled(int64_t trips, Tensors carries, const Tensors& xs, const ScanBody& body, const ScanOptions& options) {
  std::vector<Tensors> ys(trips);
  for (int64_t trip = 0; trip < trips; ++trip) {
    const int64_t at = options.reverse ? trips - 1 - trip : trip;
    Tensors slices;
    for (const Tensor& x : xs)
      slices.push_back(reshape(slice(x, 0, at, at + 1), Dims(x.dims().begin() + 1, x.dims().end())));
    ScanStep step = body(constant(static_cast<double>(at), DType::kI32), carries, slices);
    carries = step.carries;
    ys[at] = step.ys;
  }
  ScanStep out{carries, {}};
  for (size_t y = 0; y < ys[0].size(); ++y) {
    Tensors rows;
    for (const Tensors& step : ys) rows.push_back(expand(step[y], 0));
    out.ys.push_back(concatenate(rows, 0));
  }
  return out;
}

using Loop = std::function<ScanStep(int64_t, const Tensors&, const Tensors&, const ScanBody&)>;
// A function that builds a scalar loss of the inputs with the given loop.
using LossOf = std::function<Tensor(const Tensors& inputs, const Loop& loop)>;

Dims all_dims(const Tensor& x) {
  Dims dims;
  for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}
Tensor sum(const Tensor& x) {
  return reduce_sum(x, all_dims(x));
}
Tensor matmul(const Tensor& x, const Tensor& w) {
  return dot_general(x, w, {.lhs_contracting = {x.rank() - 1}, .rhs_contracting = {0}});
}

// Computes the loss and the gradients of all float inputs with the plain loop and with scan, for each policy and
// direction, and compares them.
void expect_equal_to_unrolled(const std::vector<Value>& inputs, const LossOf& loss_of) {
  for (const bool reverse : {false, true}) {
    GraphRun run;
    Tensors values, wrt;
    for (const Value& value : inputs) {
      values.push_back(run.input(value));
      if (is_float(value.shape.dtype)) wrt.push_back(values.back());
    }
    auto add = [&](const std::string& name, const Loop& loop) {
      const Tensor loss = loss_of(values, loop);
      run.output(name + "/loss", loss);
      const Tensors grads = grad(loss, wrt);
      for (size_t i = 0; i < grads.size(); ++i) run.output(name + "/grad" + std::to_string(i), grads[i]);
    };
    add("unrolled", [&](int64_t trips, const Tensors& carries, const Tensors& xs, const ScanBody& body) {
      return unrolled(trips, carries, xs, body, {.reverse = reverse});
    });
    const std::vector<std::pair<std::string, Remat>> policies{
        {"none", Remat::kNone}, {"dots", Remat::kDots}, {"full", Remat::kFull}};
    for (const auto& [name, remat] : policies)
      add(name, [&, remat = remat](int64_t trips, const Tensors& carries, const Tensors& xs, const ScanBody& body) {
        return scan(trips, carries, xs, body, {.reverse = reverse, .remat = remat});
      });
    std::map<std::string, Value> got = run.run();
    std::vector<std::string> parts{"/loss"};
    for (size_t i = 0; i < wrt.size(); ++i) parts.push_back("/grad" + std::to_string(i));
    for (const std::string& part : parts) {
      const std::vector<double>& wanted = got.at("unrolled" + part).elements;
      double scale = 0;
      for (double x : wanted) scale = std::max(scale, std::abs(x));
      EXPECT_GT(scale, 1e-3) << part << " is too small to compare";
      for (const auto& [name, remat] : policies)
        for (size_t e = 0; e < wanted.size(); ++e)
          EXPECT_NEAR(got.at(name + part).elements[e], wanted[e], 2e-6 * scale)
              << name << part << " element " << e << (reverse ? " reverse" : "");
    }
  }
}

Value any(Dims dims, uint32_t seed) {
  return random_value({DType::kF32, std::move(dims)}, seed);
}

TEST(Scan, LayersWithWeightsSlicedAndWeightsCaptured) {
  expect_equal_to_unrolled(
      {any({2, 4}, 1), any({3, 4, 4}, 2), any({4, 4}, 3), any({4}, 4)}, [](const Tensors& in, const Loop& loop) {
        const ScanStep out =
            loop(3, {in[0]}, {in[1]}, [&](const Tensor&, const Tensors& carries, const Tensors& xs) -> ScanStep {
              const Tensor h = tanh(matmul(carries[0], xs[0]) + in[3]);
              return {{carries[0] + matmul(h, in[2])}, {}};
            });
        return sum(out.carries[0] * out.carries[0]);
      });
}

TEST(Scan, SomeResultsAreNotRead) {
  expect_equal_to_unrolled({any({3}, 1), any({4, 3}, 2), any({4, 3}, 3)}, [](const Tensors& in, const Loop& loop) {
    const ScanStep out =
        loop(4, {in[0], in[0] * 2.0}, {in[1], in[2]},
             [](const Tensor& index, const Tensors& c, const Tensors& xs) -> ScanStep {
               const Tensor next = c[0] * xs[0] + sine(c[1]);
               return {{next, c[1] + xs[1]}, {next * next, exp(xs[1]), convert(index, DType::kF32), c[1]}};
             });
    // The final carries and the second stack are not read.
    return sum(out.ys[0]) + sum(out.ys[2] * reduce_sum(out.ys[3], {1}));
  });
}

TEST(Scan, IntegerCarriesAndSlicesPassThrough) {
  expect_equal_to_unrolled({any({3}, 1), i32({4}, {2, 0, 1, 2}), any({3}, 2)}, [](const Tensors& in, const Loop& loop) {
    const ScanStep out = loop(4, {constant(1, DType::kI32), in[0]}, {in[1]},
                              [&](const Tensor& index, const Tensors& c, const Tensors& xs) -> ScanStep {
                                const Tensor count = c[0] * 2.0 + xs[0];
                                const Tensor factor = convert(count + index, DType::kF32) * 0.1;
                                const Tensor row = take(expand(in[2], 1), reshape(xs[0], {1}));
                                return {{count, c[1] * factor + reshape(row, {1})}, {count}};
                              });
    return sum(out.carries[1] * out.carries[1]) + sum(convert(out.ys[0], DType::kF32)) * 0.01;
  });
}

// Two loops that read different slices of the same stacked arrays equal one loop over all slices. This is also true if
// only one of the two loops saves values.
TEST(Scan, PartsOfAStackEqualTheWhole) {
  for (const bool reverse : {false, true}) {
    GraphRun run;
    const Tensors in{run.input(any({3}, 1)), run.input(any({5, 3}, 2)), run.input(any({5, 3}, 3))};
    const ScanBody body = [](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
      const Tensor next = sine(c[0] * xs[0]) + xs[1];
      return {{next}, {next * xs[0]}};
    };
    auto add = [&](const std::string& name, const Tensors& carries, const Tensors& ys) {
      Tensor loss = sum(carries[0] * carries[0]);
      for (const Tensor& y : ys) loss = loss + sum(y);
      run.output(name + "/loss", loss);
      const Tensors grads = grad(loss, in);
      for (size_t i = 0; i < grads.size(); ++i) run.output(name + "/grad" + std::to_string(i), grads[i]);
    };
    const ScanStep whole = scan(5, {in[0]}, {in[1], in[2]}, body, {.reverse = reverse});
    add("whole", whole.carries, whole.ys);
    const Remat a = Remat::kFull, b = Remat::kNone;
    const ScanOptions low{.reverse = reverse, .remat = a}, high{.reverse = reverse, .remat = b, .first = 2};
    // The second stack is cut into two arrays, and the first is not, so the loops read both kinds of stacks.
    const Tensors low_xs{in[1], slice(in[2], 0, 0, 2)}, high_xs{in[1], slice(in[2], 0, 2, 5)};
    const ScanStep first = reverse ? scan(3, {in[0]}, high_xs, body, high) : scan(2, {in[0]}, low_xs, body, low);
    const ScanStep second =
        reverse ? scan(2, first.carries, low_xs, body, low) : scan(3, first.carries, high_xs, body, high);
    add("parts", second.carries, {first.ys[0], second.ys[0]});
    std::map<std::string, Value> got = run.run();
    for (const char* part : {"/loss", "/grad0", "/grad1", "/grad2"})
      for (size_t e = 0; e < got.at(std::string("whole") + part).elements.size(); ++e)
        EXPECT_NEAR(got.at(std::string("parts") + part).elements[e], got.at(std::string("whole") + part).elements[e],
                    2e-6)
            << part << " element " << e << (reverse ? " reverse" : "");
  }
}

// The number of trips is an input of the program. Results and gradients equal those of a loop of this many trips. The
// results of the other trips are zeros.
TEST(Scan, TripsThatStopAtALimit) {
  GraphRun run;
  const Tensors in{run.input(any({3}, 1)), run.input(any({5, 3}, 2)), run.input(any({4, 3}, 3))};
  const Tensor limit = run.input(i32({}, {3})), ids = run.input(i32({5}, {2, 0, 2, 1, 3}));
  auto build = [&](int64_t trips, const Tensor& stop, const std::string& name) {
    const ScanStep out = scan(trips, {in[0]}, {slice(in[1], 0, 0, trips), slice(ids, 0, 0, trips)},
                              [&](const Tensor& index, const Tensors& c, const Tensors& xs) -> ScanStep {
                                const Tensor row = reshape(take(in[2], reshape(xs[1], {1})), {3});
                                const Tensor next =
                                    sine(c[0] * xs[0]) + row * convert(index + constant(1, DType::kI32), DType::kF32);
                                return {{next}, {next * row}};
                              },
                              {.limit = stop});
    const Tensor total = sum(out.carries[0] * out.carries[0]) + sum(out.ys[0]);
    run.output(name, total);
    const Tensors grads = grad(total, in);
    for (size_t i = 0; i < grads.size(); ++i) run.output(name + std::to_string(i), grads[i]);
  };
  build(5, limit, "limited");
  build(3, Tensor{}, "short");
  const std::map<std::string, Value> got = run.run();
  for (const char* part : {"", "0", "1", "2"}) {
    const Value &a = got.at(std::string("limited") + part), &b = got.at(std::string("short") + part);
    ASSERT_EQ(a.elements.size(), b.elements.size());
    for (size_t e = 0; e < a.elements.size(); ++e) EXPECT_NEAR(a.elements[e], b.elements[e], 1e-6) << part << ' ' << e;
  }
}

// A loop inside a loop. The inner loop uses a slice, a carry and two captured values of the outer loop, and one
// captured value of the program.
TEST(Scan, Nested) {
  expect_equal_to_unrolled({any({3}, 1), any({2, 3, 3}, 2), any({4, 3}, 3), any({3}, 4)}, [](const Tensors& in,
                                                                                             const Loop& loop) {
    const ScanStep out = loop(2, {in[0]}, {in[1]}, [&](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
      const Tensor inside = exp(c[0] * 0.3);
      const ScanStep inner =
          loop(4, {c[0]}, {in[2]}, [&](const Tensor& j, const Tensors& d, const Tensors& zs) -> ScanStep {
            const Tensor step = tanh(matmul(d[0], xs[0]) + zs[0] * inside);
            return {{step + in[3] * convert(j, DType::kF32)}, {step * c[0]}};
          });
      return {{inner.carries[0] * 0.5}, {inner.ys[0]}};
    });
    return sum(out.carries[0] * out.carries[0]) + sum(out.ys[0]);
  });
}

TEST(Scan, ThreeDeep) {
  expect_equal_to_unrolled({any({2}, 1), any({2, 2}, 2)}, [](const Tensors& in, const Loop& loop) {
    auto times = [&](int64_t trips, const Tensor& x, const std::function<Tensor(const Tensor&)>& body) {
      return loop(trips, {x}, {},
                  [&](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
                    return {{body(c[0])}, {}};
                  })
          .carries[0];
    };
    return sum(times(2, in[0], [&](const Tensor& a) {
      return times(3, a, [&](const Tensor& b) {
        return times(2, b, [&](const Tensor& c) { return sine(matmul(c, in[1])) + a * 0.1 + b * b * 0.2; });
      });
    }));
  });
}

// Only the third carry depends on the input from the start. The second carry depends on it after one trip, the first
// after two.
TEST(Scan, ActivityThatAppearsAfterATrip) {
  expect_equal_to_unrolled({any({3}, 1)}, [](const Tensors& in, const Loop& loop) {
    const Tensor zero = full(0.5, {DType::kF32, {3}});
    const ScanStep out =
        loop(4, {zero, zero, in[0]}, {}, [](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
          return {{c[0] + c[1] * c[1], c[2] * c[1], c[2] * 1.1}, {}};
        });
    return sum(out.carries[0]);
  });
}

// Calls grad() in the body of a loop, for a loss that itself contains a loop. Gradient accumulation does this.
TEST(Scan, GradientsTakenInsideOfABody) {
  const Value w = any({3}, 1), rows = any({4, 3}, 2);
  for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull}) {
    GraphRun run;
    const Tensor weight = run.input(w), all = run.input(rows);
    auto loss_of = [&](const Tensor& row) {
      const ScanStep deep = scan(3, {row}, {},
                                 [&](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
                                   return {{tanh(c[0] * weight)}, {}};
                                 },
                                 {.remat = remat});
      return sum(deep.carries[0]);
    };
    const ScanStep sums =
        scan(4, {zeros_like(weight)}, {all}, [&](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
          return {{c[0] + grad(loss_of(xs[0]), {weight})[0]}, {}};
        });
    run.output("inside", sums.carries[0]);
    Tensor total = constant(0, DType::kF32);
    for (int64_t i = 0; i < 4; ++i) total = total + loss_of(reshape(slice(all, 0, i, i + 1), {3}));
    run.output("whole", grad(total, {weight})[0]);
    const std::map<std::string, Value> got = run.run();
    for (size_t e = 0; e < 3; ++e) EXPECT_NEAR(got.at("inside").elements[e], got.at("whole").elements[e], 1e-6);
  }
}

TEST(Scan, TwoGradientsOfOneLoop) {
  GraphRun run;
  const Tensor x = run.input(any({3}, 1)), w = run.input(any({3}, 2));
  const ScanStep out = scan(3, {x}, {}, [&](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
    return {{sine(c[0] * w) + c[0]}, {c[0]}};
  });
  const Tensor first = sum(out.carries[0]), second = sum(out.ys[0] * out.ys[0]);
  const Tensor of_first = grad(first, {w})[0], of_second = grad(second, {w})[0];
  run.output("apart", of_first + of_second);
  run.output("together", grad(first + second, {w})[0]);
  const std::map<std::string, Value> got = run.run();
  for (size_t e = 0; e < 3; ++e) EXPECT_NEAR(got.at("apart").elements[e], got.at("together").elements[e], 1e-6);
}

TEST(Scan, GradientsOfCapturedBf16AreSummedInF32) {
  GraphRun run;
  const Tensor w = run.input(bf16({1}, {1}));
  // After 256 ones, a bf16 sum would not grow any more.
  const ScanStep out =
      scan(300, {constant(0, DType::kF32)}, {}, [&](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
        return {{c[0] + reshape(convert(w, DType::kF32), {})}, {}};
      });
  run.output("grad", grad(out.carries[0], {w})[0]);
  EXPECT_EQ(run.run().at("grad").elements, std::vector<double>{300});
}

// No trip makes a table of its own: each adds the rows that it read to the sum of all trips.
TEST(Scan, RowsOfACapturedBf16TableAreAddedToTheirSum) {
  GraphRun run;
  const Tensor table = run.input(bf16({2, 1}, {1, 1}));
  const ScanStep out =
      scan(385, {constant(0, DType::kF32)}, {}, [&](const Tensor& index, const Tensors& c, const Tensors&) -> ScanStep {
        const Tensor row = take(table, reshape(minimum(index, constant(1, DType::kI32)), {1}));
        return {{c[0] + reshape(convert(row, DType::kF32), {})}, {}};
      });
  run.output("grad", grad(out.carries[0], {table})[0]);
  EXPECT_THAT(run.program().text(), testing::Not(testing::ContainsRegex("stablehlo.add [^:]*: tensor<2x1x")))
      << "adds whole tables";
  EXPECT_EQ(run.run().at("grad").elements, (std::vector<double>{1, 384}));
}

// The purpose of the policies: a program that saves fewer values takes less memory. `none`, `dots` and `full` are the
// bytes of temporary memory that the compiler reports.
TEST(Scan, SavingLessTakesLessMemory) {
  auto temporary = [](Remat remat) {
    GraphRun run;
    const Tensor x = run.program().input("x", {DType::kF32, {64, 64}}),
                 w = run.program().input("w", {DType::kF32, {32, 64, 64}});
    const ScanStep out = scan(32, {x}, {w},
                              [](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
                                return {{c[0] + tanh(sine(tanh(matmul(tanh(matmul(c[0], xs[0])), xs[0]))))}, {}};
                              },
                              {.remat = remat});
    run.output("grad", grad(sum(out.carries[0]), {w})[0]);
    return cpu_devices().compile(run.program()).memory_stats().temp;
  };
  const int64_t none = temporary(Remat::kNone), dots = temporary(Remat::kDots), full = temporary(Remat::kFull);
  const int64_t stack = 32 * 64 * 64 * 4;
  EXPECT_GE(none, dots + stack);
  EXPECT_GE(dots, full + stack);
  EXPECT_LT(full, 3 * stack);
}

TEST(Scan, AWidenedValueIsSavedInItsNarrowDtype) {
  GraphRun run;
  const Tensor x = run.program().input("x", {DType::kBF16, {64}});
  const ScanStep out = scan(8, {x}, {},
                            [](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
                              return {{convert(sine(convert(c[0], DType::kF32)), DType::kBF16)}, {}};
                            },
                            {.remat = Remat::kNone});
  run.output("grad", grad(sum(convert(out.carries[0], DType::kF32)), {x})[0]);
  std::map<DType, int> stacks;
  const Block& block = run.program().block();
  for (int32_t id = 0; id < block.size(); ++id)
    for (const Shape& result : block.node(id).results) stacks[result.dtype] += result.dims == Dims{8, 64} ? 1 : 0;
  EXPECT_EQ(stacks[DType::kBF16], 1);
  EXPECT_EQ(stacks[DType::kF32], 0);
}

// A barrier that makes a converted weight wait for the carry does not make the loop save the weight.
TEST(Scan, WeightsThatWaitForTheCarryAreNotSaved) {
  auto temporary = [](bool waits) {
    GraphRun run;
    const Tensor x = run.program().input("x", {DType::kF32, {64, 64}}),
                 w = run.program().input("w", {DType::kI8, {32, 64, 64}});
    const ScanStep out =
        scan(32, {x}, {w},
             [waits](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
               const Tensors values = waits ? optimization_barrier({c[0], xs[0]}) : Tensors{c[0], xs[0]};
               return {{tanh(matmul(values[0], convert(values[1], DType::kF32)))}, {}};
             },
             {.remat = Remat::kNone});
    run.output("grad", grad(sum(out.carries[0]), {x})[0]);
    return cpu_devices().compile(run.program()).memory_stats().temp;
  };
  const int64_t stack = 32 * 64 * 64 * 4;
  EXPECT_LT(temporary(true), temporary(false) + stack / 2);
}

int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

// Returns a program with a stack of layers and its gradient.
Program stacked(int64_t trips) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {4}}), w = program.input("w", {DType::kF32, {trips, 4, 4}});
  const ScanStep out = scan(trips, {x}, {w}, [](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
    return {{tanh(matmul(c[0], xs[0]))}, {}};
  });
  const Tensor loss = sum(out.carries[0]);
  program.output("loss", loss);
  program.output("grad", grad(loss, {w})[0]);
  return program;
}

TEST(Scan, TheProgramDoesNotGrowWithItsTrips) {
  const std::string two = stacked(2).text(), many = stacked(90).text();
  EXPECT_EQ(lines(two), lines(many));
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n') > 10, true);
  EXPECT_EQ(stacked(90).flops(), 45 * stacked(2).flops());
}

}  // namespace
}  // namespace fettle
