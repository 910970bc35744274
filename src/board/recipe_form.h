// Defines the functions for a form that edits recipes. They list the keys, and check the key=value words that the form
// makes.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fettle {

// Returns all keys, sorted by group: [{name, group, type, kind, values, default, help, of_one_run}]. `kind` is flag,
// number, list, map or text. `of_one_run`: a new run does not take the value over. Secret keys are left out.
nlohmann::ordered_json recipe_form_json();

// Returns the recipe of these key=value words as yaml. Adds `output_dir` if it is not empty. Throws UserError like
// read_recipe. Also throws UserError if a word sets a secret recipe key, because the yaml would not keep its value.
std::string recipe_yaml(const std::vector<std::string>& words, const std::string& output_dir);

}  // namespace fettle
