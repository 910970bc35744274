#include "config/keys.h"

namespace fettle {

std::vector<Key> model_keys() {
  return {
      {.name = "model_name_or_path",
       .member = &Recipe::model_name_or_path,
       .help = "Base model: a folder in Hugging Face's layout, a GGUF file, or a name on the hub such as "
               "Qwen/Qwen3-0.6B, which is downloaded. A local file or folder with that name takes precedence.",
       .aliases = {"base_model", "model", "checkpointer.checkpoint_dir", "load_parameters_path"}},
      {.name = "model_revision",
       .member = &Recipe::model_revision,
       .help = "Branch, tag or commit of model_name_or_path on the hub. For adapters and data sets, write it after the "
               "name: NAME@REVISION.",
       .aliases = {"revision", "revision_of_model"}},
      {.name = "adapter_name_or_path",
       .member = &Recipe::adapter_name_or_path,
       .help = "PEFT adapter folders, or names on the hub. All but the last adapter are merged into the base first. "
               "`train` continues the last adapter, and the other commands apply it.",
       .aliases = {"adapters", "peft_config.adapter_name_or_path", "lora_model_dir"}},
      {.name = "train_from_scratch",
       .member = &Recipe::train_from_scratch,
       .help = "Start from random weights. The model folder then needs only its config and tokenizer."},
      {.name = "template",
       .member = &Recipe::template_name,
       .help = "Name of a built-in chat template, or a template's Jinja text. If empty, the model's own template.",
       .aliases = {"chat_template"},
       .spellings = {{"tokenizer_default", ""}}},
      {.name = "tool_format",
       .member = &Recipe::tool_format,
       .help = "The format of tools and tool calls. The model's own chat template writes them, so this key is only "
               "checked: a format that differs from the template's is an error.",
       .values = {"default", "gemma4", "glm4", "llama3", "lfm2", "minimax1", "minimax2", "mistral", "qwen", "qwen3_5",
                  "glm4_moe", "seed_oss", "ling"}},
      {.name = "enable_thinking",
       .member = &Recipe::enable_thinking,
       .help =
           "For models that think before a reply. false: prompts end with an empty thought, and thoughts in the rows "
           "are left out if the template supports this; true: replies without a thought are trained with an empty "
           "thought; auto: the default of the model's own template. With a built-in template, auto means true.",
       .aliases = {"chat_template_kwargs.enable_thinking"},
       .values = {"auto", "true", "false"},
       .spellings = {{"", "auto"}}},
      {.name = "preserve_thinking",
       .member = &Recipe::preserve_thinking,
       .help = "Keep the thoughts of earlier replies in a conversation. The model's own template gets the variable "
               "preserve_thinking. With a built-in template, the key matters only with mask_history "
               "and in the stages dpo, kto and rm, which would otherwise drop these thoughts.",
       .aliases = {"chat_template_kwargs.preserve_thinking"}},
      {.name = "rope_scaling",
       .member = &Recipe::rope_scaling,
       .help = "How to stretch the model's positions when cutoff_len exceeds the model's longest sequence. The "
               "result's config.json has the new rope settings. If cutoff_len is not set, commands that do not train "
               "(eval, generate and others) stretch the positions to twice the model's longest sequence.",
       .values = {"linear", "dynamic", "yarn", "llama3"},
       .spellings = {{"none", ""}}},
      {.name = "resize_vocab",
       .member = &Recipe::resize_vocab,
       .help = "Give the embedding and the head a row for every token of the tokenizer. Keys that add tokens turn this "
               "key on."},
      {.name = "add_tokens",
       .member = &Recipe::add_tokens,
       .help = "Words to add to the tokenizer as new tokens.",
       .aliases = {"tokens"}},
      {.name = "add_special_tokens",
       .member = &Recipe::add_special_tokens,
       .help = "Special tokens to add to the tokenizer. Generated replies are shown without special tokens.",
       .aliases = {"new_special_tokens"}},
      {.name = "new_special_tokens_config",
       .member = &Recipe::new_special_tokens_config,
       .help = "A yaml file of special tokens to add, each with a description: `'<token>': text`. It replaces "
               "add_special_tokens."},
      {.name = "init_special_tokens",
       .member = &Recipe::init_special_tokens,
       .help =
           "Initial embedding of new tokens. noise_init: the mean of all rows plus noise; desc_init: the mean of the "
           "rows of the description's tokens; desc_init_w_noise: the same mean plus noise.",
       .values = {"noise_init", "desc_init", "desc_init_w_noise"}},
      {.name = "eos_token",
       .member = &Recipe::eos_token,
       .help = "The token that ends a text. It becomes the tokenizer's eos_token. If the tokenizer lacks it, it is "
               "added as a special token."},
      {.name = "use_modelscope",
       .member = &Recipe::use_modelscope,
       .help =
           "Look names up on ModelScope instead of Hugging Face's hub. The environment variable USE_MODELSCOPE_HUB=1 "
           "does the same.",
       .unset_differs = true},
      {.name = "hub_token",
       .member = &Recipe::hub_token,
       .help = "Access token for private and gated repositories. The environment variable HF_TOKEN is safer.",
       .aliases = {"hf_hub_token", "hf_token", "ms_hub_token"},
       .secret = true},
      {.name = "cache_dir",
       .member = &Recipe::cache_dir,
       .help = "Folder for downloaded files. If empty, the folder that the environment variable HF_HUB_CACHE or "
               "HF_HOME names."},
  };
}

}  // namespace fettle
