// Defines ResultChat: the chat template and the end token of a result, where they are not those of its base.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "data/data_spec.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct ResultChat {
  std::map<std::string, std::string> templates;  // Jinja texts by name, "default" and others; empty: those of the base
  std::string end;                               // the new eos_token; "": that of the base
  int64_t end_id = -1;                           // an id that generation_config.json gets as an end token; -1: none

  bool changes() const { return !templates.empty() || end_id >= 0; }
};

// Returns what the result of a run with the settings `data` has instead of the chat template and the eos_token of
// `base`. Programs that use the result then render conversations as in training, and stop at the end of a reply.
//
// If `data` names a built-in template or has the text of a template, the result gets this template, unless the base's
// own template is the same text or renders the same (ChatTemplate::written). If generation_config.json (or else
// config.json) of the base does not name the token with which the template ends a reply, this token becomes an end
// token of the result. This also holds for the base's own template in the result of training (`adapters` is nullopt).
// The result of an export whose `data` names no template has the chat of its adapters (chat_of_adapters). Only a model
// that generates text gets another end token.
//
// If the built-in template does not fit the tokenizer, prints a warning and returns no changes.
ResultChat result_chat(const ModelRepository& base, const DataSpec& data, bool generates,
                       const std::optional<std::vector<std::string>>& adapters = std::nullopt);

// Returns the chat templates and the eos_token of the last of `adapters` (folders) whose files have a chat template and
// differ from those of `base`. Prints its name. Throws UserError. `tokenizer` is that of the base; null: it is opened
// if it is needed.
ResultChat chat_of_adapters(const ModelRepository& base, const std::vector<std::string>& adapters, bool generates,
                            const Tokenizer* tokenizer = nullptr);

// Changes the files in `folder`, which has copies of the base's tokenizer files: writes the templates to
// chat_template.jinja and additional_chat_templates/, and eos_token to tokenizer_config.json. In a whole model
// (`whole`), `end_id` becomes the first end token of generation_config.json, which is created if it is missing.
void write_result_chat(const ResultChat& chat, const ModelRepository& base, bool whole,
                       const std::filesystem::path& folder);

}  // namespace fettle
