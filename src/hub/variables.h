// Defines variables_of: the names of a hub's environment variables, for messages.
#pragma once

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

}  // namespace fettle
