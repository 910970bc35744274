// Defines which arrays form the result of a run, and ResultWriter, which writes the adapter in PEFT's format, or the
// full model in Transformers' format.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_writer.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/saved/state.h"
#include "step/state/snapshot.h"

namespace fettle {

// A parameter of the result, and the names of the arrays of the training state that have its values.
struct ResultPart {
  const Param* param = nullptr;  // a trained parameter, or a frozen one that the run keeps; belongs to the run
  std::string weights;
  std::string start;  // the initial values of PiSSA's A or B; "" for all other parameters
};
std::vector<ResultPart> result_parts(const Run& run);
// Returns the arrays of trained_arrays() that result_parts names.
std::vector<StateArray> result_arrays(const Run& run);

// An array whose boxes are read one by one, so that an array on disk need not fit into the host's memory. The shards or
// the state must outlive the ReadableArray.
struct ReadableArray {
  ReadableArray(const HostShards& shards);
  ReadableArray(StateReader& state, const std::string& name);

  Shape shape;
  // Copies the box to `out` as a dense array. Returns false if the array contains no part of the box.
  std::function<bool(const Box& box, std::byte* out)> read;
};

class ResultWriter {
 public:
  // Creates adapter_config.json and adapter_model.safetensors, or model*.safetensors, in `folder`.
  ResultWriter(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository);
  // Writes the weights of a trained parameter, or of a frozen parameter that the run keeps (Run::keeps), layer by
  // layer. Parameters may come in any order, but each only once. A stacked parameter may come in several calls, each
  // with whole layers.
  void add(const Param& param, const ReadableArray& weights);
  // Converts PiSSA's A or B into a part of an ordinary LoRA adapter of the unchanged base, and writes it. The written
  // adapter has twice the rank. Its product `B @ A` is the trained `B @ A` minus the initial `B @ A`. `start` has the
  // initial A or B.
  void add(const Param& param, const ReadableArray& weights, const ReadableArray& start);
  // Completes the files and adds the tokenizer's files, with the chat template of result_chat. For a classifier, also
  // adds its labels. If the run had merged adapters into the base, names them in the adapter's folder. For a full
  // model, also writes the base's weights that were not trained, and the config.
  void finish();

 private:
  template <typename Write>
  void for_each_layer(const Param& param, const ReadableArray& weights, Write write) const;
  void write(const std::string& name, const HostArray& weight);

  std::filesystem::path folder_;
  const Run& run_;
  const ModelRepository& repository_;
  DType dtype_;
  std::string tied_;  // the embedding's name if the adapter also stores the embedding under the head's name; else ""
  std::optional<SafetensorsWriter> adapter_;
  std::optional<ModelWriter> model_;
};

// Writes the whole result from the arrays that `fetch` returns. All devices of the run must belong to this process.
void write_result(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                  const FetchArray& fetch);
void write_result(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                  const TrainState& state);
// Writes the whole result from a state on disk, which has the trained arrays of all processes.
void write_result(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                  StateReader& state);
// Warns if not every program can use the result, or if the result works only together with other adapters. Call it
// once, after the result is written.
void warn_of_result(const Run& run);
// Returns the bytes of the result's weights, including those that full tuning copies from `repository`, the base.
int64_t result_bytes(const Run& run, const ModelRepository& repository);

}  // namespace fettle
