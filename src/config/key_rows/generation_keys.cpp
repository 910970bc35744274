#include "config/keys.h"

namespace fettle {

std::vector<Key> generation_keys() {
  return {
      {.name = "prompt",
       .group = Group::kGeneration,
       .member = &Recipe::prompt,
       .help =
           "Prompt for `generate`. Without it, the prompts are the lines of standard input or, if there are none, the "
           "rows of `dataset`."},
      {.name = "default_system",
       .group = Group::kGeneration,
       .member = &Recipe::default_system,
       .help = "System message of conversations that have none.",
       .aliases = {"system", "system_prompt", "default_system_message"}},
      {.name = "max_new_tokens",
       .group = Group::kGeneration,
       .member = &Recipe::max_new_tokens,
       .help = "Longest reply, in tokens.",
       .aliases = {"max_tokens"},
       .min = 1},
      {.name = "do_sample",
       .group = Group::kGeneration,
       .member = &Recipe::do_sample,
       .help = "Draw tokens at random; false always takes the most likely token."},
      {.name = "temperature",
       .group = Group::kGeneration,
       .member = &Recipe::temperature,
       .help = "Divides the logits before sampling; 0 means do_sample: false.",
       .aliases = {"temp"},
       .min = 0},
      {.name = "top_k",
       .group = Group::kGeneration,
       .member = &Recipe::top_k,
       .help = "Sample only among this many of the most likely tokens; 0 means all tokens.",
       .min = 0},
      {.name = "top_p",
       .group = Group::kGeneration,
       .member = &Recipe::top_p,
       .help =
           "Sample only from the most likely tokens: the fewest whose probabilities add up to at least this number.",
       .min = 0,
       .max = 1,
       .above_min = true},
      {.name = "min_p",
       .group = Group::kGeneration,
       .member = &Recipe::min_p,
       .help = "Sample only tokens that are at least this many times as likely as the most likely one; 0 means all.",
       .min = 0,
       .max = 1},
      {.name = "repetition_penalty",
       .group = Group::kGeneration,
       .member = &Recipe::repetition_penalty,
       .help = "Makes tokens less likely that the prompt or the reply already has: their positive logits are divided "
               "by this number, their negative logits are multiplied by it. 1 has no effect.",
       .min = 0,
       .above_min = true},
  };
}

}  // namespace fettle
