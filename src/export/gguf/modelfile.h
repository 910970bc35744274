// Defines modelfile: the file from which `ollama create` takes a GGUF model.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/gguf/write/metadata.h"

namespace fettle {

// Returns the text of a Modelfile for the GGUF file `gguf`, which lies beside it. `folder` is the model folder with the
// tokenizer and its chat template. Ollama's templates are texts of its own kind: TEMPLATE is stated when the chat
// template gives each role a text before and a text after its message, which is verified by rendering conversations
// with both. Else a comment says that Ollama has to recognise the template in the file.
std::string modelfile(const std::string& gguf, const std::filesystem::path& folder, const GgufMetadata& metadata);

}  // namespace fettle
