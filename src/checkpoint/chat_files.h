// Defines ResultChat: the chat template and the end token of a result, where they are not those of its base.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "data/data_spec.h"

namespace fettle {

struct ResultChat {
  std::map<std::string, std::string> templates;  // Jinja texts by name, "default" and others; empty: those of the base
  std::string end;                               // the new eos_token; "": that of the base
  int64_t end_id = -1;

  bool changes() const { return !templates.empty() || !end.empty(); }
};

// Returns what the result of a run with the settings `data` has instead of the chat template and the eos_token of
// `base`. Programs that use the result then render conversations as in training, and stop at the end of a reply.
//
// If `data` names a built-in template, the result gets this template, unless the base's own template renders the same
// (ChatTemplate::written). If the base stops at other tokens than the one with which the built-in template ends a turn,
// this token becomes eos_token. If `data` names no template, the result gets the template and the eos_token of the last
// of `adapters` (folders) whose files have a chat template. Only a model that generates text gets another eos_token.
//
// If the built-in template does not fit the tokenizer, prints a warning and returns no changes.
ResultChat result_chat(const ModelRepository& base, const DataSpec& data, bool generates,
                       const std::vector<std::string>& adapters = {});

// Changes the files in `folder`, which has copies of the base's tokenizer files: writes the templates to
// chat_template.jinja and additional_chat_templates/, and eos_token to tokenizer_config.json. In a whole model
// (`whole`), the token also becomes the first end token of generation_config.json, which is created if it is missing.
void write_result_chat(const ResultChat& chat, const ModelRepository& base, bool whole,
                       const std::filesystem::path& folder);

}  // namespace fettle
