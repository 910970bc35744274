// Defines the streamed load of weights: from mapped files straight into the stacked, sharded device arrays.
//
// Device arrays are filled in pieces of a few MB, by several threads, from only the bytes of their boxes; host memory
// above the mapped files is a piece a thread and what BufferBuilder stages, whatever the model.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/repository.h"
#include "models/model.h"
#include "runtime/buffer.h"
#include "runtime/client.h"
#include "runtime/signature.h"

namespace fettle {

// Where one layer's tensor of a parameter comes from.
using FindTensor = std::function<StoredTensor(const std::string& name)>;
// Told the bytes read as they go, from several threads.
using LoadProgress = std::function<void(int64_t bytes)>;

// hf_name for one layer: {} replaced by its number.
std::string name_of_layer(const std::string& name, int64_t layer);

// A stored tensor with the dims that the parameter has of it.
struct LayerTensor {
  const TensorFile* file;
  TensorEntry entry;
};
// The tensors of the parameter, in the order in which they lie in its array. Throws UserError when a tensor's shape is
// not the parameter's.
std::vector<LayerTensor> find_layers(const Param& param, const FindTensor& find);
// How a layer's values are read, when not as they are stored.
struct LayerReads {
  // Writes a box of the layer's tensor in the array's dtype. Called from several threads.
  std::function<void(size_t layer, const Box& box, std::byte* out)> read;
  std::function<void(size_t layer)> done;  // nothing more is read of it
};
// Them as one device array, numbered by its first dims (layers, experts); without such a dim there is one.
DeviceBuffer load_layers(const Client& client, const Shape& shape, const Layout& layout,
                         const std::vector<LayerTensor>& layers, const LoadProgress& progress,
                         const std::string& memory_kind = "", const LayerReads& reads = {});

// More than the cores of a small machine: most of them wait for the disk, which is faster with several reads at once.
inline constexpr int kReaders = 8;

// In all that follows `memory_kind` is ArgInfo's: where the array lies.
// The parameter as a device array of `dtype`, [L, ...] when stacked. Throws UserError when a tensor's shape is not the
// parameter's.
DeviceBuffer load_param(const Client& client, const Param& param, DType dtype, const Layout& layout,
                        const FindTensor& find, const LoadProgress& progress, const std::string& memory_kind = "");

// Random values by the parameter's Init, as Hugging Face initialises. A function of seed, name and global index alone.
DeviceBuffer random_param(const Client& client, const Param& param, const ModelConfig& config, DType dtype,
                          const Layout& layout, uint64_t seed, const std::string& memory_kind = "");

// A device array whose pieces `fill` writes, called from several threads at once.
DeviceBuffer fill_in_pieces(const Client& client, const Shape& shape, const Layout& layout, const FillBox& fill,
                            const std::string& memory_kind = "");

// Checks that every parameter is in the repository with its shape, and that every floating tensor of it is used by a
// parameter. Throws UserError naming the tensor. Reads headers only.
void check_weights(const ModelRepository& repository, const Model& model);

}  // namespace fettle
