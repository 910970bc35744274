#include "inspect/tokenize_command.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_text.h"
#include "inspect/text_file.h"
#include "run/model_folders.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

// Reads a JSON array of ids. Throws UserError for other text, and for an id that the tokenizer does not have.
std::vector<int32_t> read_ids(const std::string& line, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const auto list = parse_json_or_discard<nlohmann::json>(line);
  if (!list.is_array()) throw UserError("wanted a JSON array of ids");
  for (const nlohmann::json& id : list) {
    const bool known = id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size();
    if (!known)
      throw UserError("{} is not a token id; ids are integers from 0 to {}", id.dump(), tokenizer.vocab_size() - 1);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string read_json_text(const std::string& line) {
  const auto text = parse_json_or_discard<nlohmann::json>(line);
  if (!text.is_string()) throw UserError("wanted a JSON string");
  return text.get<std::string>();
}

}  // namespace

int run_tokenize(const TokenizeOptions& options, std::ostream& out) {
  const Tokenizer tokenizer = Tokenizer::open(local_tokenizer(options.model));
  std::ifstream in = open_text_file(options.file);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    try {
      if (options.decode) {
        const std::string text = tokenizer.decode(read_ids(line, tokenizer), options.no_special);
        out << (options.jsonl ? nlohmann::json(text).dump() : text) << '\n';
        continue;
      }
      const std::string text = options.jsonl ? read_json_text(line) : line;
      out << nlohmann::json(tokenizer.encode(text, !options.no_special)).dump() << '\n';
    } catch (const UserError& error) {
      throw UserError("{}:{}: {}", options.file, number, error.what());
    }
  }
  return 0;
}

}  // namespace fettle
