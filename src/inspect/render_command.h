// Defines run_render: the command `fettle render`.
#pragma once

#include <ostream>
#include <string>

namespace fettle {

struct RenderOptions {
  std::string source;    // a model folder, its name on a hub, a GGUF file or a Jinja file
  std::string messages;  // a JSON file: an object with `messages` and other variables of the template
  std::string name;      // one of the model's templates; empty: tool_use for tools if there is one, else the default
  bool jsonl = false;    // each line of the file is such an object, and one JSON value per line is written
};

// Writes the conversation to `out`, as the chat template renders it. Fetches the template if the model is on a hub.
// Returns the exit code. Throws UserError for files that cannot be read, and when the template refuses the
// conversation. With `jsonl`, a line that fails becomes an object with `error`, and the exit code is that of UserError.
int run_render(const RenderOptions& options, std::ostream& out);

}  // namespace fettle
