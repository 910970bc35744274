// Defines run_generate, the command `fettle generate`: continuations of prompts on standard output.
#pragma once

#include <iosfwd>

#include "run/request.h"

namespace fettle {

// Answers the prompt; without one, each line of `in` that is not blank; when `in` is a terminal or has none, the
// rows of `dataset` (at most max_samples), without their answers. Prompts go through the chat template unless the
// stage is pt or there is none: then the text itself is continued. Writes each reply as it comes, a newline after it,
// to `out`; before those to several rows a line "==> file:line <==". Prompts are checked before weights are loaded.
// Throws UserError.
void run_generate(const Request& request, std::istream& in, bool in_is_terminal, std::ostream& out);

// With standard input and output.
void run_generate(const Request& request);

}  // namespace fettle
