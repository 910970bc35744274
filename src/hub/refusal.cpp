#include "hub/refusal.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "config/nearest.h"
#include "hub/repo_folder.h"

namespace fettle {
namespace {

using nlohmann::json;
using Reason = HubRefusal::Reason;

json asked_json(const HubSettings& settings, const std::string& url) {
  try {
    return parse_json_or_discard<json>(http_get(settings, url, 1).body);
  } catch (const UserError&) {
    return json();  // without an answer, the message makes no suggestion
  }
}

// Returns at most 8 valid repository or branch names: the strings under `key` in a list of objects.
std::vector<std::string> names_in(const json& list, const char* key) {
  std::vector<std::string> out;
  if (!list.is_array()) return out;
  for (const json& item : list)
    if (item.is_object() && item.contains(key) && item[key].is_string() && out.size() < 8)
      if (const std::string name = item[key].get<std::string>();
          name.size() <= 200 && read_repo_name(RepoKind::kModel, name))
        out.push_back(name);
  return out;
}

// Returns a suggestion such as " (did you mean Qwen/Qwen3-0.6B?)".
std::string similar(const HubSettings& settings, const RepoName& repo) {
  if (settings.hub != Hub::kHuggingFace) return "";
  const std::string last = repo.id.substr(repo.id.find('/') + 1);
  std::vector<std::string> found;
  for (const std::string& words : {last, repo.id.substr(0, repo.id.find('/'))}) {
    const std::string url =
        fmt::format("{}/api/{}?search={}&limit=20", settings.endpoint, repo.plural(), escaped(words, false));
    found = names_in(asked_json(settings, url), "id");
    if (!found.empty()) break;
  }
  const auto near = nearest(repo.id, {found.begin(), found.end()});
  if (near) return fmt::format(" (did you mean {}?)", *near);
  if (found.size() > 3) found.resize(3);
  return found.empty() ? "" : fmt::format(" (similar names: {})", fmt::join(found, ", "));
}

std::string revisions(const HubSettings& settings, const RepoName& repo) {
  const json refs = asked_json(settings, fmt::format("{}/api/{}/{}/refs", settings.endpoint, repo.plural(), repo.id));
  std::string out;
  for (const auto& [key, noun] : {std::pair{"branches", "branches"}, {"tags", "tags"}}) {
    if (!refs.is_object() || !refs.contains(key)) continue;
    const std::vector<std::string> names = names_in(refs[key], "name");
    if (!names.empty()) out += fmt::format("; its {} are {}", noun, fmt::join(names, ", "));
  }
  return out;
}

std::string token_remedy(const HubSettings& settings) {
  if (settings.hub == Hub::kModelScope) return "set MODELSCOPE_API_TOKEN to a token of https://www.modelscope.cn";
  return fmt::format("make a token at {}/settings/tokens and set HF_TOKEN to it", settings.endpoint);
}

// Returns the first 300 bytes of the text. A ? replaces each byte that is not a printable ASCII character.
std::string shown(const std::string& text) {
  std::string out;
  for (const unsigned char c : text.substr(0, 300)) out += c < ' ' || c >= 127 ? '?' : static_cast<char>(c);
  return out;
}

}  // namespace

void throw_refusal(const HubSettings& settings, const RepoName& repo, const HttpReply& reply) {
  const std::string code = reply.header("x-error-code"), said = shown(reply.header("x-error-message"));
  const std::string page = page_url(settings, repo);
  const std::string local =
      repo.kind == RepoKind::kModel ? "a folder on this machine" : "a file or folder on this machine";
  if (code == "GatedRepo") {
    if (settings.token.empty())
      throw HubRefusal(
          Reason::kNoAccess,
          fmt::format("{} is gated: only people who accepted its terms may download it. Accept them at {}, "
                      "then {}",
                      repo.id, page, token_remedy(settings)));
    throw HubRefusal(
        Reason::kNoAccess,
        fmt::format("{} is gated, and the account of your token has no access to it yet{}. Accept the terms at "
                    "{} and wait until the owners agree, or give the token the right to read gated repositories",
                    repo.id, said.empty() ? "" : " (" + said + ")", page));
  }
  if (code == "RevisionNotFound")
    throw HubRefusal(Reason::kNoRevision,
                     fmt::format("{} has no revision '{}'{}", repo.id, repo.revision.empty() ? "main" : repo.revision,
                                 revisions(settings, repo)));
  if (said.find("Invalid credentials") != std::string::npos || said.find("Invalid username or password") == 0)
    throw HubRefusal(Reason::kNoAccess, fmt::format("{} does not accept your token ({}); {}, or unset it",
                                                    settings.endpoint, said, token_remedy(settings)));
  if (code == "RepoNotFound" || reply.status == 401 || reply.status == 404)
    throw HubRefusal(
        Reason::kNoRepo,
        fmt::format(
            "'{}' is neither {} nor a {} of {}{}. Check the name. If the repository is private, {}", repo.id, local,
            repo.noun(), settings.endpoint, similar(settings, repo),
            settings.token.empty() ? token_remedy(settings) : "your token must belong to someone who may read it"));
  if (reply.status == 403)
    throw HubRefusal(Reason::kNoAccess,
                     fmt::format("your token may not read {}{}", page, said.empty() ? "" : ": " + said));
  if (reply.status == 429)
    throw HubRefusal(Reason::kOther,
                     fmt::format("{} limits the number of requests; try again later{}", settings.endpoint,
                                 settings.token.empty() ? ", or " + token_remedy(settings) : ""));
  throw HubRefusal(Reason::kOther, fmt::format("{} answers with status {}{}; try again later", page, reply.status,
                                               said.empty() ? "" : " (" + said + ")"));
}

std::string offline_remedy(const HubSettings& settings, const RepoName& repo) {
  const RepoFolder folder(settings, repo);
  return fmt::format(
      "Run `fettle download {}{}{}{}` where there is a network and copy {} from there to {}; or replace the "
      "repository's "
      "name by the path of a local folder",
      repo.id, repo.kind == RepoKind::kDataset ? " --dataset" : "",
      repo.revision.empty() ? "" : " --revision " + repo.revision,
      settings.hub == Hub::kModelScope ? " --modelscope" : "", folder.path().filename().string(),
      folder.path().parent_path().string());
}

}  // namespace fettle
