// Compares a linear layer in 8-bit floats, forward and backward, with PyTorch's float8 dtypes
// (tests/reference/float8.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "graph/autodiff/grad.h"
#include "graph/float8.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "paths.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

Value matrix(const Json& rows) {
  Value out{{DType::kBF16, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}}, {}};
  for (const Json& row : rows)
    for (const Json& x : row) out.elements.push_back(x);
  return out;
}

TEST(Float8, ALinearLayerRoundsLikePyTorch) {
  const Json recorded = Json::parse(std::ifstream(source_folder().string() + "/tests/reference/float8.json"));
  const std::pair<const char*, Float8> kinds[] = {{"fn", {}}, {"fnuz", {DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ}}};
  GraphRun run;
  const Tensor x = run.input(matrix(recorded["x"])), weight = run.input(matrix(recorded["weight"])),
               ct = run.input(matrix(recorded["ct"]));
  const DotDims dims{.lhs_contracting = {1}, .rhs_contracting = {1}};
  for (const auto& [name, types] : kinds) {
    const Tensor y = float8_dot(x, weight, dims, types);
    const std::vector<Tensor> grads = backprop({y}, {ct}, {x, weight});
    run.output(std::string(name) + "/y", y);
    run.output(std::string(name) + "/dx", grads[0]);
    run.output(std::string(name) + "/dweight", grads[1]);
  }
  run.output("exact", dot_general(x, weight, dims));
  const std::map<std::string, Value> got = run.run();
  double from_exact = 0;
  for (const auto& [name, types] : kinds)
    for (const char* what : {"y", "dx", "dweight"}) {
      const Value& value = got.at(std::string(name) + "/" + what);
      const std::vector<double> wanted = matrix(recorded[name][what]).elements;
      ASSERT_EQ(value.elements.size(), wanted.size());
      double largest = 0;
      for (double w : wanted) largest = std::max(largest, std::abs(w));
      for (size_t i = 0; i < wanted.size(); ++i) {
        // Only the result is rounded, to bf16.
        EXPECT_NEAR(value.elements[i], wanted[i], std::abs(wanted[i]) / 256 + 1e-6 * largest)
            << name << ' ' << what << ' ' << i;
        if (std::string(what) == "y")
          from_exact = std::max(from_exact, std::abs(wanted[i] - got.at("exact").elements[i]) / largest);
      }
    }
  EXPECT_GT(from_exact, 0.02) << "the recorded values were not rounded to 8 bits";
}

}  // namespace
}  // namespace fettle
