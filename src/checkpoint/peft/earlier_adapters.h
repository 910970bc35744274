// Defines what the record of an adapter's run tells of earlier adapters: those below it, and the one it began as.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace fettle {

// An adapter that was trained on a model with other adapters merged into it works only together with these. Its folder
// has this file, which names them with the recipe's keys. Unlike the run's fettle_run.json, it is part of the result:
// `upload` sends it.
inline constexpr const char* kEarlierAdapters = "earlier_adapters.json";
// Writes the file. `recipe` has the keys of the run.
void write_earlier_adapters(const std::filesystem::path& folder, const nlohmann::json& recipe);

// Looks for the earlier adapters in kEarlierAdapters, or else in fettle_run.json, which is in the adapter's folder or
// above a checkpoint's folder. Returns a message, with the
// remedy, for the first of `adapters` that was trained on this model with more adapters than the list has before it.
// Returns "" if there is none, or no record. `model` is the name or the folder of the model, `adapters` are folders in
// the order in which they are applied.
std::string missing_earlier_adapters(const std::string& model, const std::vector<std::string>& adapters);

// Returns the adapter, as the run's recipe names it, that the run trained further to make `adapter`; "" if the run
// began a new adapter, or if there is no record. `adapter` is a folder.
std::string continued_adapter(const std::string& adapter);

}  // namespace fettle
