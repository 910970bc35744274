#include "data/store/data_cache.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "base/files/cache.h"
#include "base/files/own_program.h"
#include "base/files/private_files.h"
#include "base/log.h"
#include "base/process_name.h"
#include "data/read/data_files.h"
#include "data/read/rows.h"
#include "data/store/file_hashes.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

constexpr const char* kHashes = "file_hashes";  // the subfolder for the hashes of data files
constexpr std::string_view kTimeFunction = "strftime_now";
constexpr hours kUnused(24 * 30);  // stores and hashes that no run used for this time are removed

// The key includes the program's own file, because another version may make other tokens from the same rows.
const std::string& program_key() {
  static const std::string key = [] {
    ContentKey made;
    made.add_file("/proc/self/exe");  // also readable when the program's file was replaced
    // The key includes the module that reads Parquet and Arrow files, because it also affects the rows.
    std::error_code none;
    const fs::path columns = module_file(kColumnsModule);
    if (fs::exists(columns, none)) made.add_file(columns);
    return made.text();
  }();
  return key;
}

std::string_view without_spaces(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// Returns the format that the template gives to strftime_now; `rest` is the template after this name. Returns "" if the
// template only asks whether the function is defined, and nullopt if the format is not one string literal.
std::optional<std::string_view> time_format(std::string_view rest) {
  rest = without_spaces(rest);
  if (rest.starts_with("is defined") || rest.starts_with("is not defined")) return "";
  if (!rest.starts_with('(')) return std::nullopt;
  rest = without_spaces(rest.substr(1));
  if (!rest.starts_with('\'') && !rest.starts_with('"')) return std::nullopt;
  const size_t end = rest.find(rest[0], 1);
  if (end == std::string_view::npos || !without_spaces(rest.substr(end + 1)).starts_with(')')) return std::nullopt;
  const std::string_view format = rest.substr(1, end - 1);
  return format.find('\\') == std::string_view::npos ? std::optional(format) : std::nullopt;
}

// Returns all formats that the template gives to strftime_now; if one of them is not known, the whole template.
std::string time_formats(const std::string& chat_template) {
  std::string formats;
  for (size_t at = 0; (at = chat_template.find(kTimeFunction, at)) != std::string::npos;) {
    at += kTimeFunction.size();
    const std::optional<std::string_view> format = time_format(std::string_view(chat_template).substr(at));
    if (!format) return chat_template;
    formats.append(*format).append("\n");
  }
  return formats;
}

// Returns the part of `started` that the template can show. If the template does not use strftime_now, returns "". If
// it shows only dates, returns the date. Otherwise, returns date and time.
std::string date_key(const std::string& chat_template, const LocalTime& started) {
  if (chat_template.find(kTimeFunction) == std::string::npos) return "";
  const std::string formats = time_formats(chat_template);
  bool shown = false, days_only = true;
  for (size_t at = 0; (at = formats.find('%', at)) != std::string::npos; ++at) {
    if (at > 0 && formats[at - 1] == '{') continue;  // this % belongs to {%, which begins a tag
    const size_t sign = formats.find_first_not_of("_-0^#EO", at + 1);
    if (sign == std::string::npos || formats[sign] == '}') continue;  // this % belongs to %}, which ends a tag
    shown = true;
    days_only = days_only && std::string_view("aAbBhCdDeFgGjmuUVwWxyYzZ%").find(formats[sign]) != std::string::npos;
    at = sign;
  }
  if (!shown || !days_only) return fmt::format("{} {} {}", started.seconds, started.offset, started.zone);
  const std::tm day = started.parts();
  return fmt::format("{}-{}-{} {} {}", day.tm_year, day.tm_mon, day.tm_mday, started.offset, started.zone);
}

bool can_write(const fs::path& folder) {
  return make_private_folder(folder) && access(folder.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

DataCache::DataCache(const DataSpec& spec) : spec_(spec) {
  if (spec.cache != "off") {
    folder_ = spec.cache.empty() ? cache_folder("rows") : fs::path(spec.cache);
    if (can_write(folder_)) return;
    warn("data_cache: {} cannot be written, so the tokens are not kept for the next run", folder_.string());
  }
  folder_ = scratch_.emplace("fettle-rows").path();
}

std::string DataCache::key(const DataSource& source, const Tokenizer& tokenizer, int64_t model_vocab_size) const {
  if (scratch_) return "";
  ContentKey key;
  key.add(program_key());
  for (const fs::path& file : tokenizer.files()) key.add(file.filename().string()).add_file(file);
  for (const auto& [name, token] : tokenizer.named_tokens()) key.add(name).add(token);
  for (const char* name : {"default", "tool_use"}) {
    const std::string text = tokenizer.chat_template(name).value_or("");
    key.add(text).add(date_key(text, spec_.started));
  }
  const DataSpec& s = spec_;
  key.add(row_reader(s.rows).name).add(s.template_name).add(s.default_system);
  if (is_template_text(s.template_name)) key.add(date_key(s.template_name, s.started));
  key.add(fmt::format("{} {} {} {} {} {} {}", static_cast<int>(s.overlength), static_cast<int>(s.on_bad_row),
                      s.cutoff_len, s.train_on_prompt, s.mask_history, s.most_rows(source).value_or(-1),
                      model_vocab_size));
  key.add(fmt::format("thinking {} {} {}", s.thinking.enabled ? (*s.thinking.enabled ? "on" : "off") : "auto",
                      s.thinking.keep_old, s.thinking.drop_old));
  if (s.plain_text_rows) key.add("plain text rows");
  for (const auto* texts : {&s.self_name, &s.self_author})
    for (const std::string& text : *texts) key.add(texts == &s.self_name ? "self_name" : "self_author").add(text);
  key.add(kTextRowNames[static_cast<size_t>(s.text_rows(source))]);
  if (s.labels) {
    key.add(name_of(s.labels->problem)).add(s.labels_optional ? "labels optional" : "");
    if (s.labels->lists_are_yes_or_no) key.add(*s.labels->lists_are_yes_or_no ? "yes or no" : "numbers");
    for (const std::string& name : s.labels->id2label) key.add(name);
  }
  key.add(source.formatting).add(source.ranking ? "ranking" : "").add(source.drop_system ? "drop_system" : "");
  key.add(source.only_marked ? "only_marked" : "");
  if (const auto& prompt = source.prompt)
    for (const std::string* text : {&prompt->format, &prompt->no_input_format, &prompt->system_format,
                                    &prompt->system_prompt, &prompt->no_input_system_prompt})
      key.add("prompt").add(*text);
  const auto add_all = [&](const auto& names) {
    for (const auto& [what, name] : names) key.add(what).add(name);
    key.add("");
  };
  add_all(source.columns);
  add_all(source.tags);
  const FileHashes hashes(folder_ / kHashes);
  for (const fs::path& file : source.files) key.add(kind_of(file)).add(hashes.of(file));
  return key.text();
}

std::shared_ptr<const TokenStore> DataCache::find(const std::string& key, bool& damaged) const {
  damaged = false;
  if (scratch_) return nullptr;
  std::string problem;
  std::shared_ptr<const TokenStore> store = TokenStore::open(place(key), &problem);
  std::error_code ignored;
  if (store) {
    fs::last_write_time(place(key), fs::file_time_type::clock::now(), ignored);  // marks the store as used now
  } else if (!problem.empty()) {
    damaged = problem.ends_with("damaged");
    warn("data_cache: {}: {}; the rows are tokenised again", place(key).string(), problem);
  }
  return store;
}

fs::path DataCache::draft(const std::string& key) const {
  if (!scratch_) remove_old();
  return folder_ / fmt::format("{}.{}.partial", key, random_hex(2));
}

void DataCache::remove_old() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    const bool partial = name.ends_with(".partial");
    if (!partial && !(name.size() == 32 && fs::exists(entry.path() / "store.json", error))) continue;
    // A draft that was last written more than a day ago belongs to a run that was stopped. It may have been stopped
    // before it made the file, or while it deleted the draft.
    const bool has_tokens = partial && fs::exists(entry.path() / "tokens", error);
    const fs::path used = has_tokens ? entry.path() / "tokens" : entry.path();
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(used, error);
    if (!error && age > (partial ? hours(24) : kUnused)) fs::remove_all(entry.path(), error);
  }
  FileHashes(folder_ / kHashes).remove_unused(kUnused);
}

}  // namespace fettle
