#include <memory>
#include <optional>
#include <set>

#include "adapters/quantised.h"
#include "base/error.h"
#include "checkpoint/quantised/bitsandbytes.h"
#include "checkpoint/table/joined_tensors.h"

namespace fettle {
namespace {

constexpr std::string_view kState = ".quant_state.bitsandbytes__", kRowScales = ".SCB";

// Returns the names of all weights in bitsandbytes' formats.
std::set<std::string> names_of_weights(const TensorTable& table) {
  std::set<std::string> names;
  for (const auto& [name, place] : table.places()) {
    if (const size_t at = name.find(kState); at != std::string::npos) names.insert(name.substr(0, at));
    if (name.ends_with(kRowScales)) names.insert(name.substr(0, name.size() - kRowScales.size()) + ".weight");
  }
  return names;
}

}  // namespace

void join_bitsandbytes(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder) {
  std::set<std::string> names = names_of_weights(table);
  const Family* family = names.empty() ? nullptr : find_family(config);
  if (family == nullptr) return;
  for (const std::string& name : names)
    if (name.find(".experts.gate_up_projs.") != std::string::npos)
      throw UserError(
          "{}: '{}' is one of GPT-OSS's experts in a form of bitsandbytes that only Unsloth reads; use the original "
          "model (openai/gpt-oss-20b, openai/gpt-oss-120b), whose experts are in 4 bits, too (MXFP4)",
          folder.string(), name);
  const ModelConfig model = family->read(ConfigReader(config, (folder / "config.json").string()));
  if (!model.quantisation) return;
  const Quantisation& format = *model.quantisation;
  for (const Param& param : family->params(model))
    for (int64_t i = 0; is_quantised(param, format, true) && i < param.stored_count(); ++i) {
      const std::string name = param.stored_name(i);
      const TensorTable::Place* place = table.look_up(name);
      if (place != nullptr && !any_names(model.in_floats, module_of(name))) names.erase(table.at(*place).entry->name);
    }
  const FindTensor find = [&](const std::string& name) {
    const TensorTable::Place* place = table.find(name);
    if (place == nullptr)
      throw UserError("{} has no tensor '{}', which is a part of a quantised weight; download the model again",
                      folder.string(), name);
    return table.at(*place);
  };
  for (const std::string& name : names) {
    if (table.find(name) == nullptr) continue;  // loading reports that the weight is missing
    const Dims dims = dims_of_quantised(find, name, format);
    const StoredQuantised stored = find_quantised(find, name, dims, format);
    BitsandbytesParts parts{format,
                            stored.codes.file,
                            stored.absmax.file,
                            stored.nested_absmax.file,
                            *stored.codes.entry,
                            *stored.absmax.entry,
                            format.nested ? *stored.nested_absmax.entry : TensorEntry{},
                            stored.nested_offset};
    TensorEntry entry = *stored.codes.entry;
    entry.shape = {model.dtype, dims};
    entry.bitsandbytes = std::make_shared<const BitsandbytesParts>(std::move(parts));
    const TensorTable::Place place = *table.find(name);
    for (const std::string& part : stored.names) table.erase(part);
    table.put(place, std::move(entry));
  }
}

}  // namespace fettle
