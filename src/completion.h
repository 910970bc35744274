// Defines print_completion, which prints the words that a shell offers to complete a command line.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace fettle {

struct OptionWords {
  std::vector<std::string> names;  // "-v", "--verbose"
  std::string about;
  bool takes_value = false;
  std::vector<std::string> values = {};  // allowed values; empty: any
};

struct CommandWords {
  std::string name, about;
  bool reads_recipe = false;
  std::vector<OptionWords> options = {};
};

// Prints the candidates that complete the last of `words`, one per line: the candidate, a tab, its meaning. `words` are
// the words of the command line between `fettle` and the cursor. The line ":files" says that file names are candidates,
// too; if the last word is "key=TEXT", the file names complete TEXT. `program` has the options that come before a
// command.
void print_completion(const CommandWords& program, const std::vector<CommandWords>& commands,
                      const std::vector<std::string>& words, std::ostream& out);

}  // namespace fettle
