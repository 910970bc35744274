#include "hub/listing.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/output_file.h"
#include "base/json_text.h"
#include "hub/repo_name.h"

namespace fettle {
namespace {

using nlohmann::json;

// Returns why the entry cannot be used; "" when it can be used.
std::string fault(const HubFile& file) {
  if (!is_path_inside(file.path)) return "a path that cannot be used here";
  if (file.size < 0) return "no size";
  if (!is_hex(file.etag, 64) && !is_hex(file.etag, 40)) return "no checksum";
  return "";
}

void sort_listing(Listing& listing) {
  std::sort(listing.begin(), listing.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
}

}  // namespace

const HubFile* find_file(const Listing& listing, const std::string& path) {
  const auto found =
      std::lower_bound(listing.begin(), listing.end(), path,
                       [](const HubFile& file, const std::string& wanted) { return file.path < wanted; });
  return found == listing.end() || found->path != path ? nullptr : &*found;
}

std::optional<Listing> read_listing(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  const json all = parse_json_or_discard<json>(std::string{std::istreambuf_iterator<char>(in), {}});
  if (!all.is_object() || count_in(all, "format_version") != 1) return std::nullopt;
  const auto files = all.find("files");
  if (files == all.end() || !files->is_object()) return std::nullopt;
  Listing out;
  for (const auto& [path, entry] : files->items()) {
    if (!entry.is_object()) return std::nullopt;
    HubFile one{.path = path, .oid = text_in(entry, "blob_id"), .xet = text_in(entry, "xet_hash")};
    const std::string large = text_in(entry, "lfs_sha256");
    one.etag = large.empty() ? one.oid : large;
    one.size = count_in(entry, large.empty() ? "size" : "lfs_size");
    if (!fault(one).empty()) return std::nullopt;
    out.push_back(std::move(one));
  }
  sort_listing(out);
  return out;
}

void write_listing(const std::filesystem::path& file, const Listing& listing) {
  json files = json::object();
  for (const HubFile& one : listing) {
    json entry = {{"size", one.size}, {"blob_id", one.oid}};
    if (one.etag.size() == 64) {
      entry["lfs_sha256"] = one.etag;
      entry["lfs_size"] = one.size;
    }
    if (!one.xet.empty()) entry["xet_hash"] = one.xet;
    files[one.path] = std::move(entry);
  }
  write_cache_file(file, json({{"format_version", 1}, {"files", std::move(files)}}).dump(1));
}

void check_listing(Listing& listing, const std::string& place) {
  for (const HubFile& file : listing)
    if (const std::string wrong = fault(file); !wrong.empty())
      throw UserError("{} lists the file {} with {}; nothing is fetched from there", place,
                      nlohmann::json(file.path).dump(-1, ' ', true, json::error_handler_t::replace), wrong);
  sort_listing(listing);
  const auto twice = std::adjacent_find(listing.begin(), listing.end(),
                                        [](const HubFile& a, const HubFile& b) { return a.path == b.path; });
  if (twice != listing.end())
    throw UserError("{} lists the file {} twice; nothing is fetched from there", place, twice->path);
}

}  // namespace fettle
