#include "checkpoint/table/tied_head.h"

#include <algorithm>

#include "models/model.h"

namespace fettle {

void take_head_for_embedding(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder) {
  const Family* family = find_family(config);
  if (family == nullptr || family->encoder) return;
  const TensorTable::Place* head = table.look_up(family->head + ".weight");
  if (head == nullptr) return;
  const ModelConfig model = family->read(ConfigReader(config, (folder / "config.json").string()));
  if (!model.tie_word_embeddings) return;
  const std::vector<Param> params = family->params(model);
  const auto embedding = std::ranges::find(params, Role::kTokenEmbedding, &Param::role);
  if (embedding == params.end() || table.look_up(embedding->hf_name) != nullptr) return;
  const TensorTable::Place place = *head;
  TensorEntry entry = *table.at(place).entry;
  table.erase(entry.name);
  entry.name = embedding->hf_name;
  table.put(place, std::move(entry));
}

}  // namespace fettle
