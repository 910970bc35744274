#include "config/foreign/handbook_sets.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/nodes.h"
#include "config/value.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns a share as the slice of a split: "" for 1, "[:50%]" for 0.5.
std::string slice(const YAML::Node& share, const std::string& file) {
  if (!share.IsDefined() || share.IsNull()) return "";
  double value = -1;
  if (!YAML::convert<double>::decode(share, value) || !(value > 0 && value <= 1))
    throw UserError("{}: the share of a data set: found {}, wanted a number above 0, at most 1", place_of(file, share),
                    describe_node(share));
  const double percent = std::round(value * 100);
  if (value == 1) return "";
  if (std::abs(value * 100 - percent) > 1e-6)
    throw UserError(
        "{}: the share {} of a data set is no whole number of percent; set `dataset` to entries of dataset_info.json, "
        "with num_samples",
        place_of(file, share), value);
  return fmt::format("[:{:.0f}%]", percent);
}

// `subset` may be empty, and so may `cut`, the slice of the split.
std::string hub_entry(const std::string& name, const std::string& subset, const std::string& split,
                      const std::string& cut) {
  ordered_json out = {{"hf_hub_url", name}};
  if (!subset.empty() && subset != "default") out["subset"] = subset;
  if (split != "train" || !cut.empty()) out["split"] = split + cut;
  return out.dump();
}

// Returns an item of dataset_mixture.datasets. `columns` are the columns to load.
std::string item_of_mixture(const YAML::Node& item, const std::string& file) {
  if (!item.IsMap() || text_of(item["id"]).empty())
    throw UserError("{}: dataset_mixture: found a data set without `id`; add it", place_of(file, item));
  for (const auto& pair : item)
    if (const std::string key = pair.first.Scalar();
        key != "id" && key != "config" && key != "split" && key != "columns" && key != "weight")
      throw UserError("{}: dataset_mixture: '{}' of a data set is not available; remove it", place_of(file, pair.first),
                      key);
  const std::string split = text_of(item["split"]), cut = slice(item["weight"], file);
  if (!cut.empty())
    info("{}: weight: {} takes the first rows of {}; the alignment handbook draws the rows at random",
         place_of(file, item["weight"]), text_of(item["weight"]), text_of(item["id"]));
  return hub_entry(text_of(item["id"]), text_of(item["config"]), split.empty() ? "train" : split, cut);
}

HandbookSets read_mixture(const YAML::Node& map, const std::string& file) {
  HandbookSets out{.key = "dataset_mixture"};
  const YAML::Node list = map.IsMap() ? map["datasets"] : YAML::Node(YAML::NodeType::Undefined);
  if (!list.IsDefined() || !list.IsSequence())
    throw UserError("{}: dataset_mixture: found {}, wanted a map with a list `datasets`", place_of(file, map),
                    describe_node(map));
  for (const auto& item : list) out.trained.push_back(item_of_mixture(item, file));
  for (const auto& pair : map)
    if (const std::string key = pair.first.Scalar(); key != "datasets" && key != "seed" && key != "test_split_size")
      throw UserError("{}: dataset_mixture.{} is not available; remove it", place_of(file, pair.first), key);
  if (const YAML::Node size = map["test_split_size"]; size.IsDefined() && !size.IsNull()) out.val_size = size;
  return out;
}

// Reads dataset_mixer with dataset_splits and dataset_configs. Splits whose names contain `test` are held out, in full.
HandbookSets read_mixer(const YAML::Node& map, const YAML::Node& recipe, const std::string& file) {
  HandbookSets out{.key = "dataset_mixer"};
  if (!map.IsMap())
    throw UserError("{}: dataset_mixer: found {}, wanted a map of data sets to their shares", place_of(file, map),
                    describe_node(map));
  const YAML::Node configs = recipe["dataset_configs"];
  if (configs.IsDefined() && configs.IsSequence() && configs.size() != map.size())
    throw UserError("{}: dataset_configs has {} names for {} data sets; give one name for each data set",
                    place_of(file, configs), configs.size(), map.size());
  std::vector<std::string> splits;
  if (const YAML::Node list = recipe["dataset_splits"]; list.IsDefined() && list.IsSequence())
    for (const auto& split : list) splits.push_back(text_of(split));
  else
    splits = {"train", "test"};
  size_t number = 0;
  for (const auto& pair : map) {
    const std::string name = pair.first.Scalar();
    const std::string subset = configs.IsDefined() && configs.IsSequence() ? text_of(configs[number]) : "";
    for (const std::string& split : splits) {
      if (split.find("train") != std::string::npos)
        out.trained.push_back(hub_entry(name, subset, split, slice(pair.second, file)));
      else if (split.find("test") != std::string::npos)
        out.held_out.push_back(hub_entry(name, subset, split, ""));
      else
        throw UserError("{}: dataset_splits: found '{}', wanted a name with `train` or `test` in it",
                        place_of(file, recipe["dataset_splits"]), split);
    }
    ++number;
  }
  return out;
}

}  // namespace

std::optional<HandbookSets> read_handbook_sets(const YAML::Node& recipe, const std::string& file) {
  if (const YAML::Node map = recipe["dataset_mixture"]; map.IsDefined() && !map.IsNull())
    return read_mixture(map, file);
  if (const YAML::Node map = recipe["dataset_mixer"]; map.IsDefined() && !map.IsNull())
    return read_mixer(map, recipe, file);
  return std::nullopt;
}

}  // namespace fettle
