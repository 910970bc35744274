// Defines the frame of decoders: an embedding, layers in loops, a final norm and a head. Each family defines its
// layers. The default layer is a norm, rotary attention, a norm and an MLP, with the variations that ModelConfig names.
#pragma once

#include "models/blocks/decoder_layer.h"
#include "models/model.h"

namespace fettle {

// Names of the modules outside of the layers, and the prefix of a layer's modules.
struct DecoderNames {
  std::string layer = "model.layers.{}.";
  std::string embedding = "model.embed_tokens";
  std::string norm = "model.norm";
  std::string head = "lm_head";
};

// A family's own kind of layer: one function adds a layer's parameters to the list, the other computes the layer.
struct DecoderLayer {
  void (*params)(ParamList& list, const ModelConfig& config) = add_pre_norm_layer;
  Tensor (*forward)(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD,
                    LayerCache* cache) = pre_norm_layer;
};

// Reads the fields that the families of decoders have in common.
ModelConfig read_decoder_config(const ConfigReader& reader, bool tied_by_default = false);
// Reads a field that must be above 0, for example because other numbers are divided by it.
double positive_number(const ConfigReader& reader, const std::string& key, double otherwise);
// Returns the Family of a decoder. `read` reads config.json; `layer` defines the layers.
Family decoder_family(const std::string& model_type, const std::string& architecture,
                      ModelConfig (*read)(const ConfigReader& reader), const DecoderLayer& layer = {},
                      const DecoderNames& names = {});

}  // namespace fettle
