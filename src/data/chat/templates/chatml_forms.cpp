#include "data/chat/templates/turn_form.h"

namespace fettle {

// Returns the forms of ChatML with other system texts, prefixes and thoughts.
const std::vector<TurnForm>& chatml_forms() {
  static const std::vector<TurnForm> forms = {
      {.names = {"chatml_de"},
       .default_system = "Du bist ein freundlicher und hilfsbereiter KI-Assistent.",
       .stops = {"<|im_end|>", "<|im_start|>"}},
      {.names = {"cpm4", "intern_s1"}, .prefix = "{bos}"},
      {.names = {"dbrx", "moss_vl", "llava_next_yi", "llava_next_video_yi", "qwen3_omni_nothink", "qwen3_vl_nothink",
                 "qwen3_5_nothink", "smollm", "yi"}},
      {.names = {"falcon_h1"}, .prefix = "{bos}", .stops = {"<|im_end|>", "<|end_of_text|>"}},
      {.names = {"intern2"},
       .prefix = "{bos}",
       .default_system = "You are an AI assistant whose name is InternLM (书生·浦语).\n- InternLM "
                         "(书生·浦语) is a conversational language model that is developed by Shanghai AI "
                         "Laboratory (上海人工智能实验室). It is designed to be helpful, honest, and "
                         "harmless.\n- InternLM (书生·浦语) can understand and communicate fluently in the "
                         "language chosen by the user such as English and 中文."},
      {.names = {"intern_vl"},
       .prefix = "{bos}",
       .default_system = "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模"
                         "态大语言模型。"},
      {.names = {"keye_vl", "qwen3", "qwen3_omni", "qwen3_vl", "qwen3_5", "qwen3_6"}, .thought = kThink},
      {.names = {"lfm2"}, .default_system = "You are a helpful AI assistant."},
      {.names = {"lfm2_vl"}, .default_system = "You are a helpful multimodal assistant by Liquid AI."},
      {.names = {"llava_next_qwen", "minicpm_v", "minicpm_v_4_6", "qwen2_audio", "qwen2_omni", "qwen2_vl"},
       .default_system = "You are a helpful assistant."},
      {.names = {"mimo"}, .default_system = "You are a helpful assistant.", .thought = kThink},
      {.names = {"mimo_v2"},
       .default_system = "You are MiMo, a helpful AI assistant engineered by Xiaomi.",
       .thought = {"<think>", "</think>"}},
      {.names = {"mimo_vl"}, .default_system = "You are MiMo, an AI assistant developed by Xiaomi.", .thought = kThink},
      {.names = {"minicpm_o"},
       .default_system = "You are a helpful assistant. You can accept audio and text input and output voice and "
                         "text."},
      {.names = {"opencoder"}, .default_system = "You are OpenCoder, created by OpenCoder Team."},
      {.names = {"smollm2"}, .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face."},
  };
  return forms;
}

}  // namespace fettle
