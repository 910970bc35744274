#include "hub/hub_api.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "hub/refusal.h"
#include "hub/variables.h"

namespace fettle {
namespace {

using nlohmann::json;

constexpr int kMostPages = 10000;
constexpr size_t kMostFiles = 5000000;
// ModelScope cuts the list of a model after so many files and folders, and does not say so. Source:
// REPO_FILES_TRUNCATION_LIMIT in modelscope_hub.
constexpr size_t kMostModelScopeEntries = 3000;

// Returns what is thrown if a reply is not that of a hub.
HubRefusal not_a_hub(const std::string& what) {
  return {HubRefusal::Reason::kOther, what};
}

json parsed_body(const HubSettings& settings, const HttpReply& reply, const std::string& url) {
  json value = parse_json_or_discard<json>(reply.body);
  if (value.is_discarded())
    throw not_a_hub(fmt::format(
        "{} answers with something other than JSON; check that {} names a hub, and that the network shows no login "
        "page",
        url.substr(0, url.find('?')), variables_of(settings.hub).endpoint));
  return value;
}

const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string api_url(const HubSettings& settings, const RepoName& repo) {
  const char* version = settings.hub == Hub::kModelScope ? "v1/" : "";
  return fmt::format("{}/api/{}{}/{}", settings.endpoint, version, repo.plural(), repo.id);
}

// Returns the address of the next page from a Link header (<https://...>; rel="next"); "" on the last page.
std::string next_page(const HttpReply& reply) {
  const std::string link = reply.header("link");
  const size_t rel = link.find("rel=\"next\"");
  const size_t end = rel == std::string::npos ? rel : link.rfind('>', rel);
  const size_t begin = end == std::string::npos ? end : link.rfind('<', end);
  return begin == std::string::npos ? "" : link.substr(begin + 1, end - begin - 1);
}

HubFile hugging_face_file(const json& entry) {
  HubFile file{.path = text_in(entry, "path"),
               .size = count_in(entry, "size"),
               .oid = text_in(entry, "oid"),
               .xet = text_in(entry, "xetHash")};
  file.etag = file.oid;
  if (const json* large = member(entry, "lfs"); large != nullptr && large->is_object()) {
    file.etag = text_in(*large, "oid");
    file.size = count_in(*large, "size");
  }
  return file;
}

HubFile model_scope_file(const json& entry) {
  const std::string sum = text_in(entry, "Sha256");
  return {.path = text_in(entry, "Path"), .size = count_in(entry, "Size"), .etag = sum, .oid = sum};
}

[[noreturn]] void throw_too_many_files(const HubSettings& settings, const RepoName& repo, size_t most = kMostFiles) {
  throw UserError(
      "{} has more files than Fettle can list ({} files, or {} pages of them); fetch the files that you need with "
      "another tool, and replace the repository's name by the path of their folder",
      page_url(settings, repo), most, kMostPages);
}

HttpReply ask(const HubSettings& settings, const RepoName& repo, const std::string& url, int attempts) {
  HttpReply reply = http_get(settings, url, attempts);
  if (reply.status != 200) throw_refusal(settings, repo, reply);
  return reply;
}

Listing list_hugging_face(const HubSettings& settings, const RepoName& repo, const std::string& commit) {
  Listing out;
  std::string url = fmt::format("{}/tree/{}?recursive=true&expand=false", api_url(settings, repo), commit);
  for (int page = 0; !url.empty(); ++page) {
    if (page == kMostPages) throw_too_many_files(settings, repo);
    const HttpReply reply = ask(settings, repo, url, 5);
    const json entries = parsed_body(settings, reply, url);
    if (!entries.is_array())
      throw not_a_hub(
          fmt::format("{}: found no list of files; check that HF_ENDPOINT names a hub", api_url(settings, repo)));
    for (const json& entry : entries)
      if (text_in(entry, "type") == "file") out.push_back(hugging_face_file(entry));
    if (out.size() > kMostFiles) throw_too_many_files(settings, repo);
    const std::string next = next_page(reply);
    url = next.empty() ? "" : at_endpoint(settings, redirect_target(url, next));
  }
  return out;
}

Listing list_model_scope(const HubSettings& settings, const RepoName& repo, const std::string& revision) {
  constexpr size_t kPage = 200;
  const bool pages = repo.kind == RepoKind::kDataset;
  Listing out;
  for (int page = 1; page <= kMostPages; ++page) {
    std::string url = fmt::format("{}/repo/{}?Revision={}&Recursive=True", api_url(settings, repo),
                                  pages ? "tree" : "files", escaped(revision, false));
    if (pages) url += fmt::format("&PageNumber={}&PageSize={}", page, kPage);
    const json reply = parsed_body(settings, ask(settings, repo, url, 5), url);
    const json* data = member(reply, "Data");
    const json* files = data != nullptr && data->is_object() ? member(*data, "Files") : data;
    if (files == nullptr || !files->is_array())
      throw not_a_hub(
          fmt::format("{}: found no list of files: {}", api_url(settings, repo), text_in(reply, "Message")));
    for (const json& entry : *files)
      if (text_in(entry, "Type") != "tree") out.push_back(model_scope_file(entry));
    if (!pages && files->size() >= kMostModelScopeEntries) throw_too_many_files(settings, repo, kMostModelScopeEntries);
    if (out.size() > kMostFiles) break;
    if (!pages || files->size() < kPage) return out;
  }
  throw_too_many_files(settings, repo);
}

}  // namespace

std::string revision_of(const HubSettings& settings, const RepoName& repo) {
  if (!repo.revision.empty() && !(settings.hub == Hub::kModelScope && repo.revision == "main")) return repo.revision;
  return settings.hub == Hub::kModelScope ? "master" : "main";
}

std::string find_commit(const HubSettings& settings, const RepoName& repo, int attempts) {
  const std::string revision = revision_of(settings, repo);
  if (settings.hub == Hub::kModelScope) return revision;
  const std::string url = fmt::format("{}/revision/{}", api_url(settings, repo), escaped(revision, false));
  const std::string commit = text_in(parsed_body(settings, ask(settings, repo, url, attempts), url), "sha");
  if (!is_hex(commit, 40)) throw not_a_hub(fmt::format("{}: found no commit; check that HF_ENDPOINT names a hub", url));
  return commit;
}

Listing list_files(const HubSettings& settings, const RepoName& repo, const std::string& commit) {
  Listing out = settings.hub == Hub::kModelScope ? list_model_scope(settings, repo, commit)
                                                 : list_hugging_face(settings, repo, commit);
  check_listing(out, page_url(settings, repo));
  return out;
}

std::string file_url(const HubSettings& settings, const RepoName& repo, const std::string& commit,
                     const std::string& path) {
  if (settings.hub == Hub::kModelScope)
    return fmt::format("{}/repo?Revision={}&FilePath={}", api_url(settings, repo), escaped(commit, false),
                       escaped(path, false));
  return fmt::format("{}/resolve/{}/{}", page_url(settings, repo), commit, escaped(path, true));
}

std::string page_url(const HubSettings& settings, const RepoName& repo) {
  const bool plain = settings.hub == Hub::kHuggingFace && repo.kind == RepoKind::kModel;
  return fmt::format("{}/{}{}", settings.endpoint, plain ? "" : repo.plural() + "/", repo.id);
}

}  // namespace fettle
