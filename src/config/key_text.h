// Defines KeyText: the help of a recipe key whose valid values are defined in another folder of src.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct KeyText {
  std::string help;
  std::vector<std::string_view> values;  // allowed values; empty: any
};
using KeyTexts = std::map<std::string_view, KeyText>;  // texts by the names of the keys

}  // namespace fettle
