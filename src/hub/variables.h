// Defines variables_of and offline_variable: the names of environment variables of hubs, for messages.
#pragma once

#include "base/environment.h"
#include "hub/settings.h"

namespace fettle {

// The variables that set the hub's address, the folder of its cache, and the token.
struct HubVariables {
  const char *endpoint, *cache, *token;
};

inline HubVariables variables_of(Hub hub) {
  if (hub == Hub::kModelScope) return {"MODELSCOPE_ENDPOINT", "MODELSCOPE_CACHE", "MODELSCOPE_API_TOKEN"};
  return {"HF_ENDPOINT", "HF_HUB_CACHE", "HF_TOKEN"};
}

// The variable that decides whether requests are forbidden. TRANSFORMERS_OFFLINE counts when HF_HUB_OFFLINE is not set.
inline const char* offline_variable() {
  const bool older = environment("HF_HUB_OFFLINE").empty() && !environment("TRANSFORMERS_OFFLINE").empty();
  return older ? "TRANSFORMERS_OFFLINE" : "HF_HUB_OFFLINE";
}

}  // namespace fettle
