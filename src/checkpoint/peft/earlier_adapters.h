// Defines missing_earlier_adapters, which finds adapters that are used without the adapters below them.
#pragma once

#include <string>
#include <vector>

namespace fettle {

// An adapter that was trained on a model with other adapters merged into it works only together with these. The run's
// fettle_run.json, in the adapter's folder or above a checkpoint's folder, names them. Returns a message, with the
// remedy, for the first of `adapters` that was trained on this model with more adapters than the list has before it.
// Returns "" if there is none, or no record. `model` is the name or the folder of the model, `adapters` are folders in
// the order in which they are applied.
std::string missing_earlier_adapters(const std::string& model, const std::vector<std::string>& adapters);

}  // namespace fettle
