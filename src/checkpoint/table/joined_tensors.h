// Defines functions that join tensors: they replace several tensors of a table by the one tensor of floats that models
// read. Nothing is read or copied: an entry of a joined tensor says from which tensors its values are computed.
//
// `config` is the content of config.json, and `folder` is the model folder, for messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/table/tensor_table.h"

namespace fettle {

// The file that changed_folder() writes for new tokens. It has the last rows of the embedding and the head. These rows
// replace the last rows of the model's own tensors and extend these tensors.
inline constexpr const char* kNewRows = "new_token_rows.safetensors";

// If the config states a quantised form, removes the scales of activations and of cached keys and values. Only a
// computation in 8 bits needs them.
void leave_out_activation_scales(TensorTable& table, const nlohmann::json& config);
// Joins "<name>_blocks" and "<name>_scales" in MXFP4 as <name>. Leaves other tensors with such names unchanged.
void join_mxfp4(TensorTable& table, const nlohmann::json& config);
// Joins weights in 8-bit floats and their factors (Float8Storage), under the weight's name, if the config states such a
// storage. Throws UserError when a weight has no factors, or factors of a wrong
// shape or dtype.
void join_float8(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder);
// Joins weights that bitsandbytes stores in 4 or 8 bits (quantised/bitsandbytes.h), under the weight's name, if no
// program keeps their codes: experts, routers, and weights outside of the text model. The linear layers of the text
// model stay as they are. Throws UserError like find_quantised().
void join_bitsandbytes(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder);
// Joins integers with their scales and zeros (GroupStorage) as <module>.weight, if the config states such a storage.
// Throws UserError like find_groups(), when <module>.weight exists, too, and when AWQ also scales activations
// ("<module>.act.scales").
void join_groups(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder);
// Adds the linear layers that the files store in floats to the modules that quantization_config leaves out, if the
// config states a GroupStorage. GPTQModel never quantises some small layers and does not record that (in_proj_a of
// Qwen 3.5). Call it after join_groups(). A log line names the modules.
void leave_out_modules_in_floats(const TensorTable& table, nlohmann::json& config, const std::filesystem::path& folder);
// For families that read one tensor with all experts of a layer: joins the weights of these experts if the checkpoint
// has a tensor for each expert. Throws UserError when the weights of two experts have different shapes.
void join_experts(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder);
// Joins the pieces (GgufPiece) of tensors that a GGUF file divides. Throws UserError when pieces do not fit together.
void join_pieces(TensorTable& table);
// Extends tensors by the rows of the file kNewRows, which the table keeps. Returns the bytes that the tensors gain.
int64_t grow_tables(TensorTable& table, const TensorFile& new_rows, const nlohmann::json& config);

}  // namespace fettle
