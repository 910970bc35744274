// Qwen 2 and 2.5: biases on q, k and v. With use_sliding_window, layers from max_window_layers on have a window.
// Source: transformers/models/qwen2.
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_qwen2(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = true;
  c.output_bias = false;
  // Without the key, the window is 4096; null means none.
  if (!r.flag("use_sliding_window", false) || (r.given("sliding_window") && !r.has("sliding_window"))) return c;
  const int64_t window = r.integer("sliding_window", 4096);
  const int64_t first = r.has("max_window_layers") ? r.count("max_window_layers") : 28;
  c.window = r.windows(c.num_hidden_layers, window, [=](int64_t layer) { return layer >= first; });
  return c;
}

}  // namespace

Family qwen2_family() {
  return decoder_family("qwen2", "Qwen2ForCausalLM", read_qwen2);
}

}  // namespace fettle
