// Defines HubSettings: where models and data sets are fetched from, and where they are kept.
#pragma once

#include <filesystem>
#include <string>

namespace fettle {

enum class Hub { kHuggingFace, kModelScope };

struct HubSettings {
  Hub hub = Hub::kHuggingFace;
  std::string endpoint;         // "https://huggingface.co", without a slash at the end
  std::string token;            // empty: no token. Sent only to the endpoint's origin, and never shown
  std::filesystem::path cache;  // the folder of all repositories; empty: unknown, because HOME is unset
  bool offline = false;         // true: nothing is fetched
  int connect_seconds = 10;     // longest time for making a connection
  int stall_seconds = 20;       // longest time without a byte
  double pause_seconds = 1;     // pause before the first retry; each further pause is twice as long
  int parallel = 8;             // number of files that are fetched at the same time
};

// Reads the settings from environment variables, which mean the same as in huggingface_hub:
// - endpoint: HF_ENDPOINT
// - token: HF_TOKEN or HUGGING_FACE_HUB_TOKEN, else the file HF_TOKEN_PATH, by default $HF_HOME/token; none if
//   HF_HUB_DISABLE_IMPLICIT_TOKEN is on
// - cache: HF_HUB_CACHE or HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub
//   A path may begin with ~ and may contain $NAME and ${NAME}. Without HF_TOKEN_PATH, HF_HOME, XDG_CACHE_HOME and HOME,
//   no token file is read.
// - offline: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
// - connect_seconds and stall_seconds: HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT
// For ModelScope, endpoint, token and cache come from MODELSCOPE_ENDPOINT (or MODELSCOPE_DOMAIN), MODELSCOPE_API_TOKEN
// and MODELSCOPE_CACHE (by default $HOME/.cache/modelscope). Throws UserError for values that cannot be used.
HubSettings read_hub_settings(Hub hub);

// Returns the folder of Hugging Face's tools: HF_HOME, else the folder `huggingface` in the user's cache folder.
// Returns an empty path when no variable names a folder.
std::filesystem::path hugging_face_home();

// Returns kModelScope when USE_MODELSCOPE_HUB is 1, true, yes or on; else kHuggingFace. LLaMA-Factory has the same
// variable.
Hub hub_of_environment();

// Throws UserError when `token` has a character that is not allowed in a header, or is longer than 4096 bytes. `where`
// names the token's source.
void check_token(const std::string& token, const std::string& where);

}  // namespace fettle
