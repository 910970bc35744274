// Defines what a run leaves on disk: the adapter or model as PEFT and Transformers read it, and exact checkpoints.
#pragma once

#include <filesystem>

#include "checkpoint/checkpoint_list.h"
#include "report/log_files.h"
#include "step/train_state.h"

namespace fettle {

// Writes the adapter (adapter_config.json, adapter_model.safetensors) or the full model, and the tokenizer's files.
void write_result(const std::filesystem::path& folder, const Job& job, const ModelRepository& repository,
                  const TrainState& state);

// Writes output_dir/checkpoint-N, whole or not at all: the result, trainer_state.json, and state/ (weights and
// optimizer as they are on the devices, the step, the seed, what the run is). Then deletes the oldest beyond
// save_total_limit.
void save_checkpoint(const Job& job, const ModelRepository& repository, const TrainState& state,
                     const TrainerState& trainer);

// Puts a checkpoint's state onto the devices, bit for bit, whatever mesh wrote it. Throws UserError when it is of
// another model, method or data order, naming what differs. Frozen weights come from `loaded`.
void restore_checkpoint(const CheckpointFolder& checkpoint, const Devices& devices, const Job& job, TrainState& loaded);

// Bytes one checkpoint takes.
int64_t checkpoint_bytes(const Job& job);

// Makes output_dir ready before anything is loaded: it must be writable, with room for the checkpoints kept, and free
// of an earlier run unless overwrite_output_dir (then that run's files go) or a resume. Throws UserError.
void prepare_output(const Job& job, bool resuming);

}  // namespace fettle
