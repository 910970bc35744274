// Defines run_generate, the command `fettle generate`: continuations of prompts on standard output.
#pragma once

#include <iosfwd>

#include "run/request.h"

namespace fettle {

// Where lines come from. A file's lines are there at once, so they are answered together.
enum class LinesFrom { kTerminal, kPipe, kFile };

// Answers spec.prompt, else each line of `in` that is not blank. When `in` is a terminal or has no such line, answers
// the rows of `dataset` (at most max_samples), without their answers. Prompts go through the chat template; in stage
// pt, or without a template, the model continues the text itself. Writes each reply to `out`, followed by a newline;
// one prompt's reply is written as it is drawn. With several rows, a line "==> file:line <==" precedes each reply.
// Checks prompts before it loads weights. Throws UserError.
void run_generate(const Request& request, std::istream& in, LinesFrom from, std::ostream& out);

// With standard input and output.
void run_generate(const Request& request);

}  // namespace fettle
