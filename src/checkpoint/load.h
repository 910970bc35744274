// Defines functions that load weights from mapped files into device arrays, piece by piece. An array is sharded over
// the devices, and has the tensors of all layers stacked.
//
// Several threads fill the device arrays in pieces of a few MB. They read only the bytes of the boxes (rectangular
// parts) that the devices store. Besides the mapped files, host memory contains only one piece per thread and the
// staging memory of BufferBuilder, for a model of any size.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/repository.h"
#include "models/model.h"
#include "runtime/buffer.h"
#include "runtime/client.h"
#include "runtime/signature.h"

namespace fettle {

// Finds the tensor with this name, which belongs to one layer of a parameter.
using FindTensor = std::function<StoredTensor(const std::string& name)>;
// Receives the number of bytes just read. Several threads call it.
using LoadProgress = std::function<void(int64_t bytes)>;

// Returns `name` with {} replaced by the layer's number.
std::string name_of_layer(const std::string& name, int64_t layer);

// A stored tensor, with the dims that the parameter gives to it.
struct LayerTensor {
  const TensorFile* file;
  TensorEntry entry;
};
// Returns the tensors of the parameter, in their order in the parameter's array. Throws UserError when a tensor has
// another shape than the parameter, or no float dtype.
std::vector<LayerTensor> find_layers(const Param& param, const FindTensor& find);
// Describes how the values of a layer are read if they are not simply copied.
struct LayerReads {
  // Writes a box of the layer's tensor in the array's dtype. Several threads call it.
  std::function<void(size_t layer, const Box& box, std::byte* out)> read;
  std::function<void(size_t layer)> done;  // called after the last read of the layer
};
// Loads the tensors as one device array. The first dims of the array (layers, experts) index the tensors. Without such
// dims there is only one tensor.
DeviceBuffer load_layers(const Client& client, const Shape& shape, const Layout& layout,
                         const std::vector<LayerTensor>& layers, const LoadProgress& progress,
                         const std::string& memory_kind = "", const LayerReads& reads = {});

// The number of threads that read files. It may exceed the number of cores: threads mostly wait for the disk, and disks
// are faster with several reads at once.
inline constexpr int kReaders = 8;

// Loads the parameter as a device array of `dtype`, [L, ...] when stacked. In all functions of this file, `memory_kind`
// is the kind of memory for the array (see ArgInfo). Throws UserError like find_layers.
DeviceBuffer load_param(const Client& client, const Param& param, DType dtype, const Layout& layout,
                        const FindTensor& find, const LoadProgress& progress, const std::string& memory_kind = "");

// Returns a function that writes boxes of the array that load_param loads. Several threads may call the function.
// The files must stay open.
FillBox param_values(const Param& param, DType dtype, const FindTensor& find, const LoadProgress& progress);

// Returns random values from the distribution of the parameter's Init, as in Hugging Face's models. Each value depends
// only on the seed, the parameter's name, and the element's index in the whole array.
DeviceBuffer random_param(const Client& client, const Param& param, const ModelConfig& config, DType dtype,
                          const Layout& layout, uint64_t seed, const std::string& memory_kind = "");
// Returns a function that writes boxes of the array that random_param returns. Several threads may call the function.
// `config` must outlive that function.
FillBox random_values(const Param& param, const ModelConfig& config, DType dtype, uint64_t seed);

// Returns a device array whose pieces `fill` writes. Several threads call `fill`.
DeviceBuffer fill_in_pieces(const Client& client, const Shape& shape, const Layout& layout, const FillBox& fill,
                            const std::string& memory_kind = "");

// Fills the memory of a box, dense and row-major, in pieces. Elements have `width` bytes. Several threads call `fill`.
void fill_box_in_pieces(const Box& box, int64_t width, std::byte* out, const FillBox& fill);

// Returns whether the tensor is a bias of zeros in a linear layer whose weight is stored in groups (GroupStorage). Some
// quantisers add such biases to linear layers without a bias. These biases do not belong to the model.
bool is_added_bias(const ModelRepository& repository, const std::string& name);

// Checks that the repository has every parameter with its shape (a classifier's head may be missing), and that every
// tensor of the repository belongs to a parameter or is known to be unused. Throws UserError, which names the tensor.
// Reads only headers and some small tensors.
void check_weights(const ModelRepository& repository, const Model& model);

}  // namespace fettle
