// Defines print_completion: what may stand at the cursor of a command line, for the shells' completion.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace fettle {

struct OptionWords {
  std::vector<std::string> names;  // "-v", "--verbose"
  std::string about;
  bool takes_value = false;
  std::vector<std::string> values = {};  // allowed ones; empty: any
};

struct CommandWords {
  std::string name, about;
  bool reads_recipe = false;
  std::vector<OptionWords> options = {};
};

// Prints one candidate for the last of `words` per line: the candidate, a tab, its meaning. The line ":files" says that
// file names are candidates too; after "key=", they stand behind the "=". `words` are those after `fettle` up to the
// cursor. `program` has the options that stand before a command.
void print_completion(const CommandWords& program, const std::vector<CommandWords>& commands,
                      const std::vector<std::string>& words, std::ostream& out);

}  // namespace fettle
