#include "hub/settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "base/environment.h"
#include "base/error.h"
#include "base/text.h"
#include "hub/http.h"
#include "hub/variables.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the value of the first of the variables that is set and not empty.
std::string variable_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string value = environment(name); !value.empty()) return value;
  return "";
}

fs::path home() {
  return environment("HOME");
}

// Replaces a leading ~ by the home folder.
fs::path with_home(const std::string& text) {
  if (text == "~") return home();
  if (text.starts_with("~/")) return home() / text.substr(2);
  return text;
}

// Replaces a leading ~ by the home folder, then $NAME and ${NAME} by the variable's value. A name that is not set stays
// as it is. Both are as in Python's expanduser and expandvars, which huggingface_hub calls.
fs::path expanded(const std::string& text) {
  static const std::regex kName(R"(\$(?:(\w+)|\{([^}]*)\}))");
  const std::string path = with_home(text).string();
  std::string out;
  size_t done = 0;
  for (std::sregex_iterator found(path.begin(), path.end(), kName), end; found != end; ++found) {
    const std::string name = (*found)[1].matched ? (*found)[1] : (*found)[2];
    const char* value = std::getenv(name.c_str());
    const size_t at = static_cast<size_t>(found->position());
    out += path.substr(done, at - done) + (value == nullptr ? found->str() : value);
    done = at + static_cast<size_t>(found->length());
  }
  return out + path.substr(done);
}

fs::path cache_home() {
  if (const std::string set = environment("XDG_CACHE_HOME"); !set.empty()) return expanded(set);
  return home().empty() ? fs::path() : home() / ".cache";
}

std::string checked_endpoint(std::string endpoint, const char* name) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (endpoint.find("://") == std::string::npos) endpoint = "https://" + endpoint;
  const bool web = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const bool plain =
      std::none_of(endpoint.begin(), endpoint.end(), [](unsigned char c) { return c <= ' ' || c == 127; });
  if (endpoint.find('@') != std::string::npos)
    throw UserError("{}: '{}' has an @; Fettle takes no name and password from an address, so leave them out", name,
                    without_login(endpoint));
  if (!web || !plain || endpoint.find_first_of("?#") != std::string::npos)
    throw UserError("{}: '{}' is not an address; set it to something like https://huggingface.co", name, endpoint);
  return endpoint;
}

int seconds_of(const char* name, int otherwise) {
  const std::string text = environment(name);
  if (text.empty()) return otherwise;
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  if (!digits || text.size() > 6) throw UserError("{}: found '{}', wanted a number of seconds", name, text);
  const int seconds = std::stoi(text);
  return seconds == 0 ? otherwise : seconds;
}

std::string token_in(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  return in && std::getline(in, text) ? std::string(trimmed(text)) : "";
}

HubSettings hugging_face() {
  HubSettings out{.hub = Hub::kHuggingFace};
  const std::string endpoint = environment("HF_ENDPOINT");
  out.endpoint = checked_endpoint(endpoint.empty() ? "https://huggingface.co" : endpoint, "HF_ENDPOINT");
  const fs::path base = hugging_face_home();
  out.cache = expanded(variable_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}));
  if (out.cache.empty() && !base.empty()) out.cache = base / "hub";
  if (!environment_is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
    out.token = trimmed(variable_of({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
    check_token(out.token, "HF_TOKEN");
    if (out.token.empty()) {
      fs::path file = expanded(environment("HF_TOKEN_PATH"));
      if (file.empty() && !base.empty()) file = base / "token";
      if (!file.empty()) out.token = token_in(file);
      check_token(out.token, "the token file");
    }
  }
  return out;
}

HubSettings model_scope() {
  HubSettings out{.hub = Hub::kModelScope};
  const std::string endpoint = variable_of({"MODELSCOPE_ENDPOINT", "MODELSCOPE_DOMAIN"});
  out.endpoint = checked_endpoint(endpoint.empty() ? "https://www.modelscope.cn" : endpoint, "MODELSCOPE_ENDPOINT");
  out.cache = with_home(environment("MODELSCOPE_CACHE"));
  if (out.cache.empty() && !home().empty()) out.cache = home() / ".cache" / "modelscope";
  out.token = trimmed(environment("MODELSCOPE_API_TOKEN"));
  check_token(out.token, "MODELSCOPE_API_TOKEN");
  return out;
}

}  // namespace

fs::path hugging_face_home() {
  if (const fs::path set = expanded(environment("HF_HOME")); !set.empty()) return set;
  return cache_home().empty() ? fs::path() : cache_home() / "huggingface";
}

void check_token(const std::string& token, const std::string& where) {
  const bool plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > ' ' && c < 127; });
  if (!plain || token.size() > 4096)
    throw UserError("{}: the token {}; copy it again", where,
                    plain ? "is longer than 4096 bytes" : "has a character that access tokens never have");
}

HubSettings read_hub_settings(Hub hub) {
  HubSettings out = hub == Hub::kModelScope ? model_scope() : hugging_face();
  out.offline = environment_is_on(offline_variable());
  out.connect_seconds = seconds_of("HF_HUB_ETAG_TIMEOUT", out.connect_seconds);
  out.stall_seconds = seconds_of("HF_HUB_DOWNLOAD_TIMEOUT", out.stall_seconds);
  return out;
}

Hub hub_of_environment() {
  return environment_is_on("USE_MODELSCOPE_HUB") ? Hub::kModelScope : Hub::kHuggingFace;
}

}  // namespace fettle
