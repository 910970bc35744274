// Defines run_tokenize: the command `fettle tokenize`.
#pragma once

#include <ostream>
#include <string>

namespace fettle {

struct TokenizeOptions {
  std::string model;        // a model folder, its name on a hub, or a GGUF file
  std::string file;         // the text file
  bool jsonl = false;       // each line is a JSON string; with `decode`, JSON strings are written
  bool no_special = false;  // adds no special tokens; with `decode`, leaves them out
  bool decode = false;      // each line is a JSON array of ids, and its text is written
};

// Writes the token ids of each line of the file to `out`, one JSON array per line; with `decode`, writes the texts of
// ids. Fetches the tokenizer if the model is on a hub. Returns the exit code. Throws UserError, with the number of the
// line, for a line that is not of the wanted form.
int run_tokenize(const TokenizeOptions& options, std::ostream& out);

}  // namespace fettle
