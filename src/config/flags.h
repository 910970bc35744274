// Defines split_flags, which reads flags of other tools' command lines, such as `--learning_rate 1e-4 --bf16`.
#pragma once

#include <string>
#include <vector>

namespace fettle {

struct SplitFlags {
  std::vector<std::string> others;  // the recipe of --config, then the arguments that are not flags for keys, in order
  std::vector<std::string> words;   // a key=value word for each flag of a key, in order
};

// Splits the arguments after a command's name. `own` are the command's own flags ("--json"); they go to `others`. All
// other flags must be keys of recipes, either Fettle's or another tool's; `-` in a name means `_`:
//   --key value, --key=value    key=value
//   --key                       key=true, for keys that need no value
//   --no_key                    key=false, for keys that take the word false
//   --key a b                   key=["a", "b"], for keys that take lists
//   --config FILE               FILE as the first of `others`: the recipe
// Arguments after "--" are not changed. Throws UserError for an unknown flag (the message names the nearest known flag)
// and for a flag without its value.
SplitFlags split_flags(const std::vector<std::string>& arguments, const std::vector<std::string>& own);

// Returns the name that `word`, a key=value word, gives a key whose value is secret; "" for other words. Dashes before
// the name do not count. The name may be in a section (logging.hf_token).
std::string secret_key_of(const std::string& word);

}  // namespace fettle
