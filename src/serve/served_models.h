// Defines ServedModels: the models that `fettle serve` offers, with their names. They are a base and adapters of this
// base.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/session.h"
#include "run/request.h"

namespace fettle {

struct ServedModel {
  std::string name;              // in requests and answers
  std::string root;              // the folder of the model or adapter
  int64_t adapter = kNoAdapter;  // ReplyJob::adapter
  bool is_adapter = false;       // false: the base, or a base into which all adapters are merged
  std::string full_name = {};    // the name on a hub or the path that the recipe gives; requests may use it, too
};

struct ServedModels {
  Request request;  // has the adapters of all models
  Session::Adapters adapters;
  std::vector<ServedModel> models;  // the first one answers requests that name no model

  // Returns the name of the base, or "" when the base is not served. /v1/models shows this name as the adapters'
  // `parent`.
  std::string base() const;
  // Returns null when no model has this name or full name. "" means the first model.
  const ServedModel* find(const std::string& name) const;
};

// Returns the models of a request and of --lora-modules, whose entries are NAME=PATH. PATH is a PEFT folder or a name
// on a hub.
//
// - If adapter_name_or_path names one adapter, the adapter comes first in the list, then the base. If they cannot be
//   served together, and --lora-modules is not given, the adapter is merged into the base, and this merged model is the
//   only one. An info message then names the reason.
// - If adapter_name_or_path names several adapters, they are merged in the order of that key, as in other commands. The
//   merged model is the only one.
// - The adapters of --lora-modules come last, in the order of the flag.
//
// `name` is the name of the first model; if it is empty, the last part of the full name of the adapter or base is used.
// Throws UserError for an entry of another form, for two equal names, for --lora-modules together with several adapters
// in adapter_name_or_path, and when adapters cannot be served together.
ServedModels served_models(const Request& request, const std::vector<std::string>& lora_modules,
                           const std::string& name);

}  // namespace fettle
