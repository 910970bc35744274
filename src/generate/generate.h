// Defines run_generate, the command `fettle generate`: continuations of prompts on standard output.
#pragma once

#include <iosfwd>

#include "run/request.h"

namespace fettle {

// Where the prompts come from. All lines of a file are available at once, so these prompts are answered together.
enum class LinesFrom { kTerminal, kPipe, kFile };

// Answers the prompt of the recipe key `prompt`. Without this key, answers each line of `in` that is not blank. If
// `dataset` is set, and `in` is a terminal or has only blank lines, answers the rows of `dataset` (at most
// max_samples of each data set). The prompt of a row is the row without its answer, which may be missing. Prompts are
// formatted with the chat template; in stage pt, or without a template, the prompt is the text itself, which the model
// continues. Writes each reply to `out`, followed by a newline. A single reply is written while its tokens are drawn.
// With several rows, writes a line "==> file:line <==" before each reply. If lines are typed or piped in, loads the
// weights after it has checked the first line. Otherwise, loads the weights after it has checked all prompts. Throws
// UserError.
void run_generate(const Request& request, std::istream& in, LinesFrom from, std::ostream& out);

// Runs the command with standard input and output.
void run_generate(const Request& request);

}  // namespace fettle
