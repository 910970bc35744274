// Defines Optimizer: an update rule with its hyperparameters. Each rule is a row of a table. The row has the rule's
// state, its scalars per step, and its update.
//
// Code outside of this folder uses a rule only through this interface.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/key_places.h"
#include "graph/tensor.h"
#include "sharding/rules.h"

namespace fettle {

// A trained parameter as an update rule sees it: an array of separate weights, one for each layer, or for each layer
// and expert. Each of them is a vector or a matrix.
struct OptimWeight {
  Shape shape;  // shape of the array in the program
  LogicalAxes axes;
  int64_t stacked = 0;      // number of leading dims that select one of the weights
  double weight_decay = 0;  // multiplied by the learning rate in each step
  double rate = 1;          // factor on the learning rate
  // Number of trailing dims that are the columns of a matrix, usually 1. It is 2 when the columns are stored as two
  // dims: the parts of a fused module, and the outputs of a part (Param::fused).
  int64_t columns = 1;
  bool embedding = false;  // a table whose rows are selected by ids
  bool bias = false;       // is added to the result of a linear layer, a convolution, experts or a norm
  int64_t head_rows = 0;   // number of rows of one head, in a query or key projection; 0 for other weights
  bool low_rank = false;   // if true and the weight is a matrix, a rule that `projects` projects the weight's gradient
  uint32_t key = 0;        // selects the random numbers of the weight; the layers of a stack share it

  int64_t first_column() const { return shape.rank() - columns; }
  Dims stack_dims() const { return {shape.dims.begin(), shape.dims.begin() + stacked}; }
  Dims own_dims() const { return {shape.dims.begin() + stacked, shape.dims.end()}; }
  // Returns whether a weight is a matrix: between the dims of the stack and the columns, it has one or more dims that
  // count rows. Otherwise, it is a vector.
  bool is_matrix() const { return first_column() > stacked; }
};

// An array of optimizer state. It starts as zeros.
struct OptimState {
  std::string name;  // "m"
  Shape shape;
  LogicalAxes axes;
};

// A range of numbers from `least` to `most`.
struct OptimRange {
  double least, most = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  // above: `least` itself is not allowed; below: `most` itself is not allowed
  bool whole = false;                 // only whole numbers
};
inline constexpr OptimRange kShare{.least = 0, .most = 1, .below = true};
inline constexpr OptimRange kAboveZero{.least = 0, .above = true};

// An entry of optim_args that a rule reads. It must be one of `values`; if `values` is empty, it must be a number in
// `range`.
struct OptimArgument {
  std::string_view name;
  std::string_view value;  // the default
  std::vector<std::string_view> values = {};
  OptimRange range = {};
};

// The optimizer that the recipe sets: optim, optim_args, adam_beta1, adam_beta2 and adam_epsilon.
struct OptimSpec {
  std::string rule = "adamw_torch";
  std::map<std::string, std::string> args = {};
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  KeyPlaces places = {};  // where these keys and learning_rate were set, for messages
};

// Hyperparameters of a rule.
struct OptimOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  std::map<std::string, std::string, std::less<>> args;  // all arguments of the rule; those not set have their defaults

  const std::string& text(std::string_view argument) const;
  double number(std::string_view argument) const;
  bool flag(std::string_view argument) const { return text(argument) == "true"; }
};

struct UpdateInputs {
  Tensor weight, grad;                    // f32, in the weight's shape
  std::vector<Tensor> state;              // arrays in the order of UpdateRule::state()
  std::map<std::string, Tensor> scalars;  // f32, named as in the result of the rule's scalars()
};

struct Updated {
  Tensor weight;  // f32
  std::vector<Tensor> state;
};

struct UpdateRule {
  std::string_view name;  // Hugging Face's `optim`
  std::vector<OptimArgument> args;
  std::vector<OptimState> (*state)(const OptimWeight& weight, const OptimOptions& options);
  // Computes the scalars of a step (counted from 1) at learning rate `rate`, on the host in double. The names are the
  // same for all steps.
  std::map<std::string, double> (*scalars)(const OptimOptions& options, int64_t step, double rate);
  Updated (*update)(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in);
  // Throws UserError on hyperparameters that exclude each other. Null: all combinations are allowed.
  void (*check)(const OptimOptions& options, const OptimSpec& spec) = nullptr;
  // Whether the rule projects the gradients of the matrices that have OptimWeight::low_rank = true. The recipe's key
  // apollo_target selects these matrices.
  bool projects = false;
};

struct Optimizer {
  const UpdateRule* rule;
  OptimOptions options;

  std::vector<OptimState> state(const OptimWeight& weight) const { return rule->state(weight, options); }
  std::map<std::string, double> scalars(int64_t step, double rate) const { return rule->scalars(options, step, rate); }
  Updated update(const OptimWeight& weight, const UpdateInputs& in) const { return rule->update(weight, options, in); }
};

const std::vector<UpdateRule>& update_rules();

// Returns the rule with its hyperparameters. Throws UserError on an entry of optim_args that the rule does not read,
// and on a value that the rule does not accept.
Optimizer make_optimizer(const OptimSpec& spec);

}  // namespace fettle
