// Defines modelfile, which writes the file from which `ollama create` imports a GGUF model.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/gguf/write/metadata.h"

namespace fettle {

// Returns the text of a Modelfile for the GGUF file `gguf`, which is in the same folder as the Modelfile. `folder` is
// the model folder with the tokenizer and its chat template. Ollama's templates have a format of their own. TEMPLATE is
// written if the chat template writes a fixed text before and after the messages of each role. To verify this,
// conversations are rendered with both templates. Otherwise, a comment says that Ollama has to recognise the template
// in the file.
std::string modelfile(const std::string& gguf, const std::filesystem::path& folder, const GgufMetadata& metadata);

}  // namespace fettle
