// Defines open_side_by_side, which loads a base and several adapters. Each row of a batch uses one of them or none.
#pragma once

#include "step/open_model.h"

namespace fettle {

// Reads the options of adapter folders. Throws UserError, which names the folder, when an adapter belongs to another
// model, or cannot be applied beside others.
std::vector<SideAdapter> side_adapters(const Model& model, const std::vector<std::string>& folders);

// Resolves the request without its adapters, loads the base once, and adds `adapters`. Shows progress. Throws UserError
// like open_model, and when a value of an adapter is not finite.
OpenModel open_side_by_side(Devices& devices, const Request& request, std::vector<SideAdapter> adapters);

}  // namespace fettle
