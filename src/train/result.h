// Defines ResultWriter: the adapter as PEFT reads it, or the full model as Transformers reads it.
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/model_writer.h"
#include "checkpoint/safetensors_writer.h"
#include "step/state/snapshot.h"

namespace fettle {

class ResultWriter {
 public:
  // Begins adapter_config.json and adapter_model.safetensors, or model*.safetensors, in `folder`.
  ResultWriter(const std::filesystem::path& folder, const Job& job, const ModelRepository& repository);
  // The weights of a trained parameter, layer by layer; each parameter once, in any order.
  void add(const Param& param, const HostShards& weights);
  // Of a PiSSA pair with its start: what is written is their difference, a plain pair of twice the rank for the base as
  // it was.
  void add(const Param& param, const HostShards& weights, const HostShards& start);
  // Completes the files and adds the tokenizer's, for a full model its config too.
  void finish();

 private:
  template <typename Write>
  void for_each_layer(const Param& param, const HostShards& weights, Write write) const;
  void write(const std::string& name, const HostArray& weight);

  std::filesystem::path folder_;
  const Job& job_;
  const ModelRepository& repository_;
  DType dtype_;
  std::optional<SafetensorsWriter> adapter_;
  std::optional<ModelWriter> model_;
};

// All of it, straight from the devices.
void write_result(const std::filesystem::path& folder, const Job& job, const ModelRepository& repository,
                  const TrainState& state);
// Bytes of its weights.
int64_t result_bytes(const Job& job);

}  // namespace fettle
