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

// The chat of a model where it differs from that of its base.
struct ResultChat {
  std::map<std::string, std::string> templates;  // Jinja texts by name, "default" and others; empty: those of the base
  std::string end;                               // the new eos_token; "": that of the base
  int64_t end_id = -1;                           // an id that generation_config.json gets as an end token; -1: none
  std::string adapter;                           // the folder of the adapter that has this chat; "": none

  bool changes() const { return !templates.empty() || end_id >= 0; }
};

enum class ResultOf { kTraining, kExport };

// Returns what the result of a run with the settings `data` has instead of the chat template and the eos_token of
// `base`. Programs that use the result then render conversations as in training, and stop at the end of a reply.
//
// If `data` names a built-in template or has the text of a template, the result gets this template, unless the base's
// own template is the same text or renders the same (ChatTemplate::written). If generation_config.json (or else
// config.json) of the base does not name the token with which the template ends a reply, this token becomes an end
// token of the result. This also holds for the base's own template in the result of training. If `data` names no
// template, and the run has adapters with a chat of their own (chat_of_adapters), the result has this chat. Only a
// model that generates text gets another end token. If the result gets another eos_token, templates of the base that it
// keeps render the old one as before.
//
// If the built-in template does not fit the tokenizer, prints a warning and returns no changes.
ResultChat result_chat(const ModelRepository& base, const DataSpec& data, bool generates,
                       const std::vector<std::string>& adapters, ResultOf command);

// Returns the chat templates and the eos_token of the last of `adapters` (folders) whose files have a chat template and
// differ from those of `base`. Throws UserError. `tokenizer` is that of the base; null: it is opened if it is needed.
ResultChat chat_of_adapters(const ModelRepository& base, const std::vector<std::string>& adapters, bool generates,
                            const Tokenizer* tokenizer = nullptr);

// Gives the tokenizer of `base` the templates of chat_of_adapters, and prints whose they are. Returns the id of the
// adapter's end token; -1 if the base ends texts with it. Throws UserError, which names the file, when Fettle cannot
// read a template.
int64_t use_chat_of_adapters(Tokenizer& tokenizer, const ModelRepository& base,
                             const std::vector<std::string>& adapters);
// Opens the tokenizer of `base`. If the rows of `data` may be conversations and `data` names no template, calls
// use_chat_of_adapters.
Tokenizer open_tokenizer(const ModelRepository& base, const std::vector<std::string>& adapters, const DataSpec& data);

// Changes the files in `folder`, which has copies of the base's tokenizer files: writes the templates to
// chat_template.jinja and additional_chat_templates/, and eos_token to tokenizer_config.json. In a whole model
// (`whole`), `end_id` becomes the first end token of generation_config.json, which is created if it is missing.
void write_result_chat(const ResultChat& chat, const ModelRepository& base, bool whole,
                       const std::filesystem::path& folder);

}  // namespace fettle
