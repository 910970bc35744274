#include "models/decoder.h"

#include <map>
#include <string>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

// Sizes that Transformers assumes when config.json lacks their keys. Families that read more keys of their own set
// these sizes in their files. 0: Llama's rule, one key head for each query head, or hidden_size / num_attention_heads
// dims in a head.
struct UsualSizes {
  int64_t key_heads = 0, head_dim = 0;
};

UsualSizes usual_sizes(const std::string& model_type) {
  static const std::map<std::string, UsualSizes> kSizes{{"ernie4_5", {2}},
                                                        {"ernie4_5_moe", {4}},
                                                        {"falcon_h1", {8}},
                                                        {"gemma2", {4}},
                                                        {"gemma3_text", {4}},
                                                        {"gemma4_text", {4}},
                                                        {"gemma4_unified_text", {4}},
                                                        {"glm4_moe", {8}},
                                                        {"gpt_oss", {8}},
                                                        {"lfm2", {8}},
                                                        {"lfm2_moe", {8}},
                                                        {"llama4_text", {8, 128}},
                                                        {"minimax_m2", {8, 128}},
                                                        {"ministral3", {8, 128}},
                                                        {"mistral", {8}},
                                                        {"mixtral", {8}},
                                                        {"qwen3_moe", {4}},
                                                        {"starcoder2", {2}}};
  const auto found = kSizes.find(model_type);
  return found == kSizes.end() ? UsualSizes{} : found->second;
}

// Returns `usual` if it is not 0 and the key is absent. A key that is null means Llama's rule.
int64_t size_or(const ConfigReader& r, const std::string& key, int64_t usual, int64_t of_llama) {
  return r.integer(key, usual != 0 && !r.given(key) ? usual : of_llama);
}

}  // namespace

ModelConfig read_decoder_config(const ConfigReader& r, bool tied_by_default) {
  ModelConfig c;
  r.read_common(c, tied_by_default);
  c.hidden_size = r.integer("hidden_size");
  // A model may leave intermediate_size out if all of its layers have experts.
  c.intermediate_size = r.has("moe_intermediate_size")
                            ? r.integer("intermediate_size", r.integer("moe_intermediate_size"))
                            : r.integer("intermediate_size");
  c.num_hidden_layers = r.integer("num_hidden_layers");
  c.num_attention_heads = r.integer("num_attention_heads");
  const UsualSizes usual = usual_sizes(c.model_type);
  c.num_key_value_heads = size_or(r, "num_key_value_heads", usual.key_heads, c.num_attention_heads);
  c.head_dim = size_or(r, "head_dim", usual.head_dim, c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings = r.integer("max_position_embeddings", 2048);
  c.norm_eps = r.number("rms_norm_eps", 1e-6);
  c.hidden_act = r.text("hidden_act", "silu");
  c.rope = r.rope();
  c.local_rope = r.local_rope();
  r.note_dropouts(c, {"attention_dropout"});
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw UserError("{}: num_attention_heads ({}) is not divisible by num_key_value_heads ({})", r.file(),
                    c.num_attention_heads, c.num_key_value_heads);
  if (!(c.rope.partial_rotary_factor > 0 && c.rope.partial_rotary_factor <= 1))
    throw UserError("{}: partial_rotary_factor is {}, wanted a number above 0 and at most 1", r.file(),
                    c.rope.partial_rotary_factor);
  const int64_t rotated = c.rope.rotary_dim(c.head_dim);
  if (c.head_dim % 2 != 0)
    throw UserError("{}: head_dim {} is odd; rotary embedding needs an even number", r.file(), c.head_dim);
  if (rotated % 2 != 0 || rotated == 0)
    throw UserError(
        "{}: partial_rotary_factor {} makes {} of {} dims rotated; rotary embedding needs an even number above 0",
        r.file(), c.rope.partial_rotary_factor, rotated, c.head_dim);
  if (c.rope.rope_type == "longrope")
    for (const auto& [key, factors] :
         {std::pair{"short_factor", &c.rope.short_factor}, std::pair{"long_factor", &c.rope.long_factor}})
      if (factors->size() != static_cast<size_t>(rotated / 2))
        throw UserError("{}: '{}' of longrope has {} values, wanted {}, one for each pair of rotated dims", r.file(),
                        key, factors->size(), rotated / 2);
  return c;
}

double positive_number(const ConfigReader& r, const std::string& key, double otherwise) {
  const double value = r.number(key, otherwise);
  if (!(value > 0)) throw UserError("{}: '{}' is {}, wanted a number above 0", r.file(), key, value);
  return value;
}

Family decoder_family(const std::string& model_type, const std::string& architecture,
                      ModelConfig (*read)(const ConfigReader& reader), const DecoderLayer& layer,
                      const DecoderNames& names) {
  const std::string name = architecture.substr(0, architecture.find("ForCausalLM"));
  auto params = [layer, names](const ModelConfig& c) {
    ParamList list(names.layer, c.num_hidden_layers);
    list.embedding(names.embedding, c.vocab_size, c.hidden_size);
    list.in_layers();
    layer.params(list, c);
    list.outside();
    add_norm(list, c, names.norm, c.hidden_size);
    if (!c.tie_word_embeddings) list.head(names.head, c.vocab_size, c.hidden_size, c.head_bias);
    return list.take();
  };
  auto forward = [layer, names](Forward& f) {
    const Tensor x_BTD = embed(f, f.weights.at(names.embedding + ".weight"), f.tokens);
    const Tensor out_BTD = run_layers(f, names.layer, x_BTD, [&](Forward& rows) -> LayerBody {
      return [&layer, decoder = Decoder(rows)](const Layer& weights, const Tensor& x, LayerCache* cache) {
        return layer.forward(decoder, weights, x, cache);
      };
    });
    const Tensor hidden = norm(f.config, f.weights, names.norm, out_BTD, &f.sharding);
    const bool scaled = f.config.logit_scale != 1 && f.config.num_labels == 0;
    return scaled ? hidden * f.config.logit_scale : hidden;
  };
  return {.model_type = model_type,
          .architecture = architecture,
          .layer_prefix = names.layer,
          .fan_in_fan_out = false,
          .read = read,
          .params = params,
          .forward = forward,
          .ignored = {"*rotary_emb.inv_freq", names.head + ".weight"},
          .classifier = {.architecture = name + "ForSequenceClassification"},
          .head = names.head};
}

}  // namespace fettle
