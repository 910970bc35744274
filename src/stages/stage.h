// Defines Stage: one kind of training, as an entry of the table of stages (stages.h).
//
// The entry has everything that distinguishes the stage: how its data is read and grouped, the model's head, the
// reference model, the loss, the metrics and the recipe keys. Code outside of this folder does not compare the name of
// a stage, except src/config/foreign, which translates other tools' defaults.
//
// Letters for dims: B lines of a micro-batch (a line is one row of its arrays), T positions, S sequences of a step, R
// rows of data (two sequences each for preferences, else one), K labels. Several sequences may share a line, and a
// micro-batch may have only some of a step's sequences; values of the missing sequences are 0.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/key_values.h"
#include "data/batches/batch_spec.h"
#include "data/data_spec.h"
#include "models/blocks/loss.h"
#include "models/model.h"

namespace fettle {

// The kind of head that the model has.
enum class Head {
  kTokens,  // logits of the vocabulary
  kLabels,  // a classifier's head: one logit per label
  kScore,   // a classifier's head with one output
};

// The arrays of a batch that a program reads (members of Batch). The dtype is i32 unless stated. Arrays with T
// have a value for each position of a micro-batch; the others have one for each sequence of the step.
enum class BatchPart {
  kTokens,       // [.., T]
  kTargets,      // [.., T]: the token to predict, kIgnore where none is trained
  kPositions,    // [.., T]
  kSegments,     // [.., T]
  kSequences,    // [.., T]: the number of the position's sequence in the step, from 1; 0 in padding
  kTokenTypes,   // [.., T]: 1 for tokens of the second text
  kClasses,      // f32 [S, labels of a row]
  kPreferences,  // [S]: the value of a Preference
  kWeights,      // f32 [.., T]: factor on the loss of each target; only if the batch has weights
  kPrompts,      // [.., T]: the segment of the prompt that this segment continues; only if the batch has branches
};
// Returns whether the part has a value for each position. Such a part has its own slice for each micro-batch.
constexpr bool by_position(BatchPart part) {
  return part != BatchPart::kClasses && part != BatchPart::kPreferences;
}

// The arrays of one micro-batch or of a whole step, as values of a program.
struct BatchInputs : std::map<BatchPart, Tensor> {
  int64_t sequences = 0;      // S
  int64_t micro_batches = 1;  // see Forward::micro_batches
  Tensor used;                // see Forward::used_micro_batches
};

// The forward pass of one model over a micro-batch, without its head. With a pipeline, the pass covers the whole step.
struct ModelPass {
  const Model& model;
  Forward forward;
  Tensor hidden_BTD;
  TokenHead head;  // for a classifier, it has no weights

  TokenLoss token_loss(const Tensor& targets_BT, const LossOptions& options) const;
  Tensor class_logits(const BatchInputs& batch) const;  // f32 [S, K]
};

// The inputs of a loss.
struct LossInputs {
  const BatchInputs& batch;
  const KeyValues& keys;
  const std::optional<LabelSet>& labels;           // set for Head::kLabels
  const ModelPass& trained;                        // the model that is trained
  std::function<ModelPass()> reference = nullptr;  // builds the pass of the reference model; null when there is none
  bool differentiable = false;                     // true in training: `sum` needs gradients
  bool head_trained = false;                       // true: `sum` also needs gradients with respect to the head
};

// The results of a loss, all in f32. A value that the stage does not compute is null.
struct BatchLoss {
  Tensor sum;        // loss over the trained tokens, or over the rows; differentiable if LossInputs::differentiable
  Tensor losses_R;   // each row's part of `sum`; needed for evaluation only
  Tensor counts_R;   // each row's weight in the mean of losses, 0 for missing rows; evaluation only
  Tensor correct_R;  // number of trained tokens whose largest logit is the target's; evaluation only
  Tensor metrics;    // [Stage::metric_sums]: sums over the rows; Stage::metrics reads them
  Tensor logits_SK;  // only for Head::kLabels
  Tensor loads;      // Forward::loads of the trained model; set by batch_loss() in training
};

// A key that a stage refuses, and why.
struct RefusedKey {
  std::string_view key;
  std::string_view reason;  // the end of the message: why, and the remedy
};

struct Stage {
  std::string_view name;     // the value of the recipe's `stage`
  std::string_view learned;  // what the model learns, for the help of the key `stage`
  RowKind rows;
  RowGrouping grouping = RowGrouping::kNone;
  // True: the loss is not a sum over rows. The loss of a row depends on the other rows of its micro-batch, so these
  // rows must stay together.
  bool mixes_rows = false;
  Head head = Head::kTokens;
  bool packs = false;  // the default of the key `packing`
  std::vector<BatchPart> batch;

  // Recipe keys that belong to this stage. A stage refuses keys that only other stages list. A checkpoint can be
  // resumed only with the same values of these keys.
  std::vector<std::string_view> keys = {};
  std::vector<RefusedKey> refused = {};
  // Throws UserError when values of the keys contradict each other. Null: all values are compatible.
  void (*check)(const KeyValues& keys) = nullptr;

  // Returns whether the loss compares the trained model with a reference model. Null: never.
  bool (*compares)(const KeyValues& keys) = nullptr;
  // Returns f32 values. If the stage trains tokens, there is one value for each line: its number of trained tokens.
  // Otherwise, there is one value for each row: 1 for a row of data, 0 for filler. The step divides the sum of the
  // losses by the sum of these values.
  Tensor (*counts)(const BatchInputs& batch);
  BatchLoss (*loss)(const LossInputs& in);

  int64_t metric_sums = 0;  // elements of BatchLoss::metrics
  // Returns means by name ("rewards/chosen") from sums of BatchLoss::metrics over batches. Null: the stage has no such
  // metrics.
  std::map<std::string, double> (*metrics)(const KeyValues& keys, std::span<const float> sums) = nullptr;

  // The name of this stage's own task in `eval`. With Head::kTokens, `eval` also has tasks with questions and replies.
  std::string_view eval_task = "loss";
  // For messages: what a model of this stage outputs, and what such a model is called.
  std::string_view output = "text", model = "language model";
  // Returns the stage that evaluates rows whose kind is not `rows`. Null: such rows cannot be evaluated. For example,
  // dpo evaluates preference pairs and kto evaluates rated replies; for both stages, sft evaluates all other rows.
  // RowReader::has_columns recognises the rows of a stage's own kind.
  const Stage& (*measured_as)() = nullptr;

  int64_t sequences_per_row() const { return sequences_per_group(grouping); }
  // Returns whether several rows may share a sequence (the key `packing`).
  bool can_pack() const { return std::ranges::find(refused, "packing", &RefusedKey::key) == refused.end(); }
  bool has_reference(const KeyValues& values) const { return compares != nullptr && compares(values); }
};

}  // namespace fettle
