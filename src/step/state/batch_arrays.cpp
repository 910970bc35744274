#include "step/state/batch_arrays.h"

namespace fettle {

std::vector<BatchArray> batch_arrays(const Job& job, const Dims& rows, int64_t length) {
  const Recipe& recipe = job.recipe;
  Dims tokens = rows, classes = rows;
  tokens.push_back(length);
  LogicalAxes row_axes(rows.size(), "");
  row_axes.back() = "batch";
  LogicalAxes token_axes = row_axes, class_axes = row_axes;
  token_axes.push_back("length");
  class_axes.push_back("");
  std::vector<BatchArray> out;
  auto of_tokens = [&](const char* name, HostArray Batch::*from) {
    out.push_back({name, {DType::kI32, tokens}, token_axes, from});
  };
  of_tokens("tokens", &Batch::tokens);
  if (!job.model.classifies()) of_tokens("targets", &Batch::targets);
  of_tokens("positions", &Batch::positions);
  of_tokens("segments", &Batch::segments);
  if (recipe.stage == "cls") {
    of_tokens("token_types", &Batch::token_types);
    const bool single = recipe.problem_type == "single_label_classification";
    classes.push_back(single ? 1 : job.model.config.num_labels);
    out.push_back({"classes", {DType::kF32, classes}, class_axes, &Batch::classes});
  }
  if (recipe.stage == "kto") out.push_back({"preferences", {DType::kI32, rows}, row_axes, &Batch::preferences});
  return out;
}

}  // namespace fettle
