// Defines modelfile, which writes the file from which `ollama create` imports a GGUF model.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/gguf/write/metadata.h"

namespace fettle {

// Returns the text of a Modelfile for the GGUF file `gguf`, which is in the same folder as the Modelfile. `folder` is
// the model folder with the tokenizer and the chat template. Ollama cannot read Jinja templates. If the chat template
// writes fixed texts before and after the messages of each role, the Modelfile has these texts as TEMPLATE. To verify
// the TEMPLATE, test conversations are rendered with both templates, and the results must be equal. The TEMPLATE writes
// no tools; if the chat template does, a comment in the Modelfile and a line on stderr say so. For any other chat
// template, a comment in the Modelfile says that Ollama has to recognise the chat template in the GGUF file. If there
// is no chat template, a comment says so.
std::string modelfile(const std::string& gguf, const std::filesystem::path& folder, const GgufMetadata& metadata);

}  // namespace fettle
