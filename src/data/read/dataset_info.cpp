#include "data/read/dataset_info.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/json_text.h"
#include "base/text.h"
#include "config/near_path.h"
#include "config/nearest.h"
#include "data/read/data_files.h"
#include "data/read/hub_folder.h"
#include "data/read/hub_rows.h"
#include "data/read/rows.h"
#include "hub/snapshot.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

const std::vector<std::string_view> kKeys = {
    "file_name", "formatting",  "columns",    "tags",       "num_samples", "ranking",    "split",
    "subset",    "folder",      "hf_hub_url", "ms_hub_url", "om_hub_url",  "script_url", "cloud_file_name",
    "file",      "drop_system", "prompt",     "sample_by",  "only_marked"};
const std::vector<std::string_view> kColumns = {"prompt",  "query",  "response",  "history", "messages", "system",
                                                "tools",   "images", "videos",    "audios",  "chosen",   "rejected",
                                                "kto_tag", "text",   "text_pair", "label"};
const std::vector<std::string_view> kTags = {"role_tag",      "content_tag",     "spans_tag",    "user_tag",
                                             "assistant_tag", "observation_tag", "function_tag", "system_tag"};

const std::vector<std::string_view> kPrompt = {"style", "format", "no_input_format", "system_format", "system_prompt"};

std::string hint(const std::string& word, const std::vector<std::string_view>& known) {
  auto near = nearest(word, known);
  for (std::string_view other : known)
    if (!near && other.starts_with(word)) near = other;
  return near ? fmt::format(" (did you mean '{}'?)", *near) : "";
}

// Suggests an entry of dataset_info.json, or else a file in the current folder or in dataset_dir.
std::string near_source(const std::string& name, const std::vector<std::string>& entries, const fs::path& dataset_dir) {
  if (const std::string entry = hint(name, {entries.begin(), entries.end()}); !entry.empty()) return entry;
  for (const fs::path& path : {fs::path(name), dataset_dir / name})
    if (const auto near = near_path(path)) return fmt::format(" (did you mean '{}'?)", *near);
  return "";
}

// Lists the first names: "; it has a, b and 7 more". Returns "" without names.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  if (names.empty()) return "";
  const size_t shown = std::min(kShown, names.size());
  return fmt::format("; it has {}{}",
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

void check_key(const std::string& where, const std::string& key, const std::vector<std::string_view>& known) {
  if (std::find(known.begin(), known.end(), key) != known.end()) return;
  const std::string near = hint(key, known);
  throw UserError("{}: the key '{}' is not known{}; use one of {}", where, key, near, fmt::join(known, " "));
}

std::map<std::string, std::string> words(const std::string& where, const ordered_json& value,
                                         const std::vector<std::string_view>& known) {
  if (!value.is_object()) throw UserError("{}: found {}, wanted an object", where, value.type_name());
  std::map<std::string, std::string> out;
  for (const auto& [key, word] : value.items()) {
    check_key(where, key, known);
    if (word.is_null()) continue;
    if (!word.is_string()) throw UserError("{}.{}: found {}, wanted a string", where, key, word.dump());
    out[key] = word.get<std::string>();
  }
  return out;
}

// Reads `tags`. A role may have a list of names.
std::multimap<std::string, std::string> read_tags(const std::string& where, const ordered_json& value) {
  std::multimap<std::string, std::string> out;
  ordered_json single = value;
  for (const auto& [tag, names] : value.items()) {
    if (!names.is_array() || tag == "role_tag" || tag == "content_tag" || tag == "spans_tag") continue;
    single.erase(tag);
    for (const auto& name : names)
      for (const auto& pair : words(where, {{tag, name}}, kTags)) out.insert(pair);
  }
  for (const auto& pair : words(where, single, kTags)) out.insert(pair);
  return out;
}

std::string text_of(const std::string& where, const ordered_json& entry, const char* key) {
  if (!entry.contains(key) || entry[key].is_null()) return "";
  if (!entry[key].is_string()) throw UserError("{}.{}: found {}, wanted a string", where, key, entry[key].dump());
  return entry[key].get<std::string>();
}

// Reads a key whose value is one text or a list of texts.
std::vector<std::string> texts_of(const std::string& where, const ordered_json& entry, const char* key) {
  if (!entry.contains(key) || !entry[key].is_array()) {
    const std::string one = text_of(where, entry, key);
    return one.empty() ? std::vector<std::string>() : std::vector{one};
  }
  std::vector<std::string> out;
  for (const auto& item : entry[key]) {
    if (!item.is_string()) throw UserError("{}.{}: found {}, wanted strings", where, key, entry[key].dump());
    out.push_back(item.get<std::string>());
  }
  return out;
}

bool flag_of(const std::string& where, const ordered_json& entry, const char* key) {
  if (!entry.contains(key)) return false;
  if (!entry[key].is_boolean()) throw UserError("{}.{}: found {}, wanted true or false", where, key, entry[key].dump());
  return entry[key].get<bool>();
}

PromptFormat prompt_format(const std::string& where, const ordered_json& value) {
  PromptFormat out;
  const auto texts = words(where, value, kPrompt);
  if (const auto style = texts.find("style"); style != texts.end()) {
    const std::optional<PromptFormat> known = alpaca_style(style->second);
    if (!known)
      throw UserError("{}.style: '{}' is not known; use one of instruct, chat, chatml, phi", where, style->second);
    out = *known;
  }
  for (const auto& [key, text] : texts) {
    if (key == "format") out.format = text;
    if (key == "no_input_format") out.no_input_format = text;
    if (key == "system_format") out.system_format = text;
    if (key == "system_prompt") out.system_prompt = out.no_input_system_prompt = text;
  }
  out.check(where);
  return out;
}

// The folders in which relative paths are looked for, the first one first.
using Folders = std::array<fs::path, 2>;

// Returns where the entry's rows are on this machine; nullopt when they are only on a hub.
std::optional<fs::path> location(const std::string& where, const ordered_json& entry, const Folders& folders) {
  bool named = false;
  for (const char* key : {"file_name", "cloud_file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url"}) {
    const std::string text = text_of(where, entry, key);
    if (text.empty()) continue;
    named = true;
    const bool second = !names_something(folders[0] / text) && names_something(folders[1] / text);
    fs::path path = folders[second ? 1 : 0] / text;  // `text` alone if it is absolute
    if (const std::string folder = text_of(where, entry, "folder"); !folder.empty()) path /= folder;
    if (std::string_view(key) == "file_name" || names_something(path)) return path;
  }
  if (!named) throw UserError("{}: file_name is missing; set it to the file or folder of the rows", where);
  return std::nullopt;
}

// Returns the entry's files on this machine; nullopt when they are only on a hub.
std::optional<std::vector<fs::path>> local_files(const std::string& where, const ordered_json& entry,
                                                 const HubPart& part, const Folders& folders) {
  std::vector<std::string> names = texts_of(where, entry, "file_name");
  if (names.empty()) names.emplace_back();  // the entry names a hub
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    ordered_json one = entry;
    one["file_name"] = name;
    const std::optional<fs::path> path = location(where, one, folders);
    if (!path) return std::nullopt;
    try {
      const auto take = [&](const fs::path& from, const std::string& subset) {
        const auto more = fs::is_directory(from) ? split_files(from, subset, part.split) : data_files(from);
        files.insert(files.end(), more.begin(), more.end());
      };
      for (const std::string& file : part.files) take(*path / file, "");
      if (part.files.empty()) take(*path, part.subset);
    } catch (const UserError& error) {
      throw UserError("{}: {}", where, error.what());
    }
  }
  return files;
}

// Fetches the files of an entry that is on a hub, and returns their paths. As in LLaMA-Factory, ms_hub_url is used when
// the settings choose ModelScope, or when there is no hf_hub_url.
std::vector<fs::path> fetch_entry(const std::string& where, const ordered_json& entry, const HubPart& part,
                                  const std::optional<HubSettings>& hub) {
  const std::string face = text_of(where, entry, "hf_hub_url"), scope = text_of(where, entry, "ms_hub_url");
  const bool take_scope = !scope.empty() && (face.empty() || (hub && hub->hub == Hub::kModelScope));
  const std::string& name = take_scope ? scope : face;
  if (name.empty() || !hub)
    throw UserError("{}: {}, and set file_name to the path", where,
                    entry.contains("script_url")
                        ? "Fettle does not run the data set's Python script; save its rows to a file"
                        : "Fettle cannot fetch the data set; download it yourself");
  const std::optional<RepoName> repo = read_repo_name(RepoKind::kDataset, name);
  if (!repo) throw UserError("{}: '{}' is neither a folder nor a name of a data set on the hub", where, name);
  const Hub wanted = take_scope ? Hub::kModelScope : Hub::kHuggingFace;
  return fetch_split(hub->hub == wanted ? *hub : read_hub_settings(wanted), *repo, part);
}

// Returns the name of the split in "train[:10%]" or "train[:500]". Sets first_share or first_rows of `source` to the
// slice.
std::string cut_slice(const std::string& where, const std::string& split, DataSource& source) {
  const size_t open = split.find('[');
  if (open == std::string::npos) return split;
  std::string part = split.substr(open);
  const bool share = part.ends_with("%]");
  part = part.starts_with("[:") && part.ends_with("]") ? part.substr(2, part.size() - (share ? 4 : 3)) : "";
  const std::optional<int64_t> number = digits_value(part);
  if (!number) throw UserError("{}.split: found '{}', wanted a name, perhaps with [:N] or [:N%]", where, split);
  if (share)
    source.first_share = static_cast<double>(*number) / 100;
  else
    source.first_rows = *number;
  return split.substr(0, open);
}

DataSource from_entry(const std::string& name, const ordered_json& entry, const fs::path& info, const Folders& folders,
                      const std::optional<HubSettings>& hub) {
  const std::string where = fmt::format("{}: {}", info.string(), name);
  if (!entry.is_object()) throw UserError("{}: found {}, wanted an object", where, entry.type_name());
  for (const auto& [key, value] : entry.items()) check_key(where, key, kKeys);
  DataSource source;
  source.name = name;
  source.ranking = flag_of(where, entry, "ranking");
  source.drop_system = flag_of(where, entry, "drop_system");
  source.only_marked = flag_of(where, entry, "only_marked");
  if (entry.contains("formatting") && !entry["formatting"].is_string())
    throw UserError("{}.formatting: found {}, wanted a string", where, entry["formatting"].dump());
  source.formatting = entry.value("formatting", "alpaca");
  static const std::vector<std::string> kFormats = {"alpaca", "sharegpt", "openai", "alpaca_prompt", "text"};
  if (std::find(kFormats.begin(), kFormats.end(), source.formatting) == kFormats.end())
    throw UserError("{}.formatting: '{}' is not known; use one of {}", where, source.formatting,
                    fmt::join(kFormats, ", "));
  if (entry.contains("columns")) source.columns = words(where + ".columns", entry["columns"], kColumns);
  if (entry.contains("tags")) source.tags = read_tags(where + ".tags", entry["tags"]);
  if (entry.contains("prompt")) {
    if (source.formatting != "alpaca_prompt")
      throw UserError("{}.prompt: belongs to formatting: alpaca_prompt, found {}", where, source.formatting);
    source.prompt = prompt_format(where + ".prompt", entry["prompt"]);
  }
  // If the entry does not describe the rows, the format is detected. An entry that names only the columns of the two
  // replies, the tools, the system text or the label does not describe the rows, because the prompt is missing. If the
  // entry describes messages, the first message shows the format.
  static const std::set<std::string> kBeside = {"chosen", "rejected", "tools", "system", "kto_tag", "label"};
  const bool only_beside =
      std::ranges::all_of(source.columns, [](const auto& column) { return kBeside.contains(column.first); });
  const bool prompts = source.columns.contains("prompt") || source.columns.contains("response");
  const bool messages = source.columns.contains("messages") || (!source.tags.empty() && !prompts);
  if (!entry.contains("formatting") && (only_beside || messages)) source.formatting.clear();
  if (const std::string by = text_of(where, entry, "sample_by"); !by.empty()) {
    source.sample_by = text_rows_named(by);
    if (!source.sample_by)
      throw UserError("{}.sample_by: '{}' is not known; use one of {}", where, by, fmt::join(kTextRowNames, ", "));
  }
  if (entry.contains("num_samples")) {
    if (!entry["num_samples"].is_number_unsigned() || entry["num_samples"] == 0)
      throw UserError("{}.num_samples: found {}, wanted a count above 0", where, entry["num_samples"].dump());
    source.num_samples = entry["num_samples"].get<int64_t>();
  }
  for (const char* kind : {"images", "videos", "audios"})
    if (source.columns.contains(kind))
      throw UserError(
          "{}.columns.{}: rows with {} cannot be used, because Fettle trains on text only; leave the data set out, or, "
          "if the column '{}' is empty in all rows, remove the key",
          where, kind, kind == std::string_view("audios") ? "sound" : kind, source.columns.at(kind));
  const std::string split = cut_slice(where, text_of(where, entry, "split"), source);
  const HubPart part{text_of(where, entry, "subset"), split, text_of(where, entry, "folder"),
                     texts_of(where, entry, "file")};
  const auto local = local_files(where, entry, part, folders);
  source.files = local ? *local : fetch_entry(where, entry, part, hub);
  return source;
}

// Returns the folder for a dataset_dir of the form REMOTE:ORG/NAME. A local folder of the name ORG/NAME takes
// precedence. Otherwise downloads the data set's dataset_info.json and the file of the entry `name`.
fs::path remote_folder(const std::string& repo_name, const std::string& name, const std::optional<HubSettings>& hub) {
  std::error_code none;
  if (fs::is_directory(repo_name, none)) return repo_name;
  const auto repo = hub ? read_repo_name(RepoKind::kDataset, repo_name) : std::nullopt;
  if (!repo) throw UserError("dataset_dir: '{}' is neither a folder nor a name of a data set on the hub", repo_name);
  const Snapshot snapshot = Snapshot::open(*hub, *repo);
  const std::string info = "dataset_info.json";
  if (!snapshot.has(info)) throw UserError("dataset_dir: {} has no {}", repo->id, info);
  snapshot.fetch({info});
  std::ifstream file(snapshot.folder() / info);
  const ordered_json all = parse_json_or_discard<ordered_json>(std::string{std::istreambuf_iterator<char>(file), {}});
  const bool named = all.is_object() && all.contains(name) && all[name].is_object();
  if (named)
    for (const std::string& rows : texts_of(info, all[name], "file_name"))
      if (snapshot.has(rows)) snapshot.fetch({rows});
  return snapshot.folder();
}

// Reads ms-swift's "ORG/NAME:SUBSET", which means a subset of a data set on the hub. Returns nullopt for other names.
std::optional<DataSource> named_subset(const std::string& name, const std::optional<HubSettings>& hub) {
  const size_t colon = name.find(':');
  if (!hub || colon == std::string::npos || is_data_file(name) || name.find_first_of("*?[") != std::string::npos)
    return std::nullopt;
  const std::string set = name.substr(0, colon), subset = name.substr(colon + 1);
  const auto repo = set.find('/') == std::string::npos ? std::nullopt : read_repo_name(RepoKind::kDataset, set);
  if (!repo || subset.empty()) return std::nullopt;
  if (const size_t slash = subset.find('/'); slash != std::string::npos)
    throw UserError("dataset: {}: wanted one subset; list each subset as a data set of its own, beginning with {}:{}",
                    name, set, subset.substr(0, slash));
  DataSource source;
  source.name = name;
  source.files = fetch_split(*hub, *repo, {.subset = subset, .split = "", .folder = ""});
  return source;
}

}  // namespace

std::string DataSource::column(const std::string& what, const std::string& otherwise) const {
  const auto found = columns.find(what);
  return found == columns.end() ? otherwise : found->second;
}

std::string DataSource::tag(const std::string& what, const std::string& otherwise) const {
  const auto found = tags.find(what);
  return found == tags.end() ? otherwise : found->second;
}

std::string set_title(const std::string& name) {
  if (!name.starts_with("{")) return name;
  const ordered_json entry = parse_json_or_discard<ordered_json>(name);
  if (!entry.is_object()) return "an entry";
  // Wrong values are reported when the entry is read.
  const auto said = [&](const char* key) {
    std::vector<std::string> texts;
    if (!entry.contains(key)) return texts;
    for (const auto& text : entry[key].is_array() ? entry[key] : ordered_json::array({entry[key]}))
      if (text.is_string()) texts.push_back(text.get<std::string>());
    return texts;
  };
  const auto listed = [](const std::vector<std::string>& texts) {
    return texts.size() <= 2 ? fmt::format("{}", fmt::join(texts, ", "))
                             : fmt::format("{} and {} more files", texts[0], texts.size() - 1);
  };
  for (const char* key : {"file_name", "hf_hub_url", "ms_hub_url"}) {
    const std::vector<std::string> names = said(key);
    if (names.empty()) continue;
    std::vector<std::string> parts;  // two entries may be parts of one data set
    for (const char* part : {"subset", "folder", "file", "split"})
      if (const std::string text = listed(said(part)); !text.empty() && text != "train") parts.push_back(text);
    return fmt::format("{}{}", listed(names), parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", ")));
  }
  return "an entry";
}

std::vector<std::string> set_titles(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(set_title(name));
  return out;
}

DataSource find_source(const std::string& name, const fs::path& dataset_dir, const std::optional<HubSettings>& hub) {
  if (name.starts_with("{")) {
    const ordered_json entry = parse_json_or_discard<ordered_json>(name);
    if (entry.is_discarded()) throw UserError("dataset: {} is not valid JSON", name);
    return from_entry(set_title(name), entry, "dataset", {fs::path(), dataset_dir}, hub);
  }
  constexpr std::string_view kRemote = "REMOTE:";
  if (const std::string dir = dataset_dir.string(); dir.starts_with(kRemote))
    return find_source(name, remote_folder(dir.substr(kRemote.size()), name, hub), hub);
  const fs::path info = dataset_dir / "dataset_info.json";
  std::vector<std::string> names;
  if (fs::exists(info)) {
    const std::string text = read_file(info);
    ordered_json all;
    try {
      all = parse_json<ordered_json>(text);
    } catch (const UserError& error) {
      throw UserError("{}: is not valid JSON: {}; correct the file", info.string(), error.what());
    }
    if (!all.is_object()) throw UserError("{}: wanted an object of data sets", info.string());
    if (all.contains(name)) return from_entry(name, all[name], info, {dataset_dir, fs::path()}, hub);
    for (const auto& item : all.items()) names.push_back(item.key());
  }
  for (const fs::path& path : {fs::path(name), dataset_dir / name}) {
    if (!names_something(path)) continue;
    DataSource source;
    source.name = name;
    std::error_code none;
    source.files = fs::is_directory(path, none) ? split_files(path, "", "") : data_files(path);
    return source;
  }
  // ms-swift's "rows.jsonl#500" means 500 rows.
  const size_t mark = name.rfind('#');
  if (mark != std::string::npos && mark + 1 < name.size() &&
      name.find_first_not_of("0123456789", mark + 1) == std::string::npos) {
    constexpr int64_t kMost = 999'999'999'999'999;
    const int64_t count = digits_value(std::string_view(name).substr(mark + 1)).value_or(kMost + 1);
    if (count == 0 || count > kMost)
      throw UserError("dataset: {}: wanted a number of rows after #, at least 1 and with at most 15 digits", name);
    DataSource source = find_source(name.substr(0, mark), dataset_dir, hub);
    source.num_samples = count;
    return source;
  }
  if (std::optional<DataSource> part = named_subset(name, hub)) return *std::move(part);
  const bool remote = hub && (dataset_dir == "ONLINE" || name.find('/') != std::string::npos);
  if (const auto repo = remote ? read_repo_name(RepoKind::kDataset, name) : std::nullopt) {
    DataSource source;
    source.name = name;
    try {
      source.files = fetch_split(*hub, *repo, {});
    } catch (const UserError& error) {
      const std::string missing = near_path(name) ? missing_path(name) : "";
      if (missing.empty()) throw;
      throw UserError("dataset: {}; as a name on the hub: {}", missing, error.what());
    }
    return source;
  }
  if (name.find_first_of("*?[") != std::string::npos)
    throw UserError("dataset: no file matches {} in the current folder or in {}", name, dataset_dir.string());
  const std::string near = near_source(name, names, dataset_dir);
  const bool short_name = hub && near.empty() && !is_data_file(name) && read_repo_name(RepoKind::kDataset, name);
  throw UserError("dataset: '{}' is {}{}", name,
                  names.empty() ? fmt::format("not a file, and there is no {} to look it up in", info.string())
                                : fmt::format("neither a file nor a data set of {}", info.string()),
                  near + listed(names) + (short_name ? "; with `dataset_dir: ONLINE`, it is a name on the hub" : ""));
}

}  // namespace fettle
