#include "run/small_model.h"

#include <nlohmann/json.hpp>

#include "base/files/output_file.h"
#include "config/recipe.h"

namespace fettle {

Request small_model_request(const std::filesystem::path& folder, int64_t devices, int64_t rows) {
  const nlohmann::json config = {{"model_type", "llama"},          {"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", kSmallWidth},     {"intermediate_size", 2 * kSmallWidth},
                                 {"num_hidden_layers", 2},         {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},       {"head_dim", 16},
                                 {"hidden_act", "silu"},           {"initializer_range", 0.1},
                                 {"max_position_embeddings", 128}, {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 10000.0},          {"tie_word_embeddings", false},
                                 {"torch_dtype", "float32"},       {"vocab_size", kSmallVocabulary}};
  write_file(folder / "config.json", config.dump(1));
  Recipe recipe;
  recipe.model_name_or_path = folder.string();
  recipe.dataset = {"rows"};  // never read
  recipe.output_dir = (folder / "out").string();
  recipe.train_from_scratch = true;
  recipe.finetuning_type = "full";
  recipe.optim = "sgd";
  recipe.max_grad_norm = 0;
  recipe.device_count = devices;
  recipe.per_device_train_batch_size = rows / devices;
  return Request(recipe, Command::kTrain);
}

}  // namespace fettle
