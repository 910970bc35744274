// Defines read_by_type: reads a part of tokenizer.json by its "type", from a table of the known types.
#pragma once

#include <map>
#include <string>

#include "tokenizer/json_field.h"

namespace fettle {

// Calls the reader that `readers` has for field's "type". Throws UserError naming the type and the known ones.
template <typename Result>
Result read_by_type(const JsonField& field, std::string_view part,
                    const std::map<std::string, Result (*)(const JsonField&)>& readers) {
  const std::string& type = field.at("type").string();
  const auto reader = readers.find(type);
  if (reader != readers.end()) return reader->second(field);
  std::string known;
  for (const auto& [name, unused] : readers) known += (known.empty() ? "" : ", ") + name;
  field.fail("the {} type '{}' is not supported; supported are {}", part, type, known);
}

}  // namespace fettle
