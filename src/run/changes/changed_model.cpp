#include "run/changes/changed_model.h"

#include "checkpoint/changed/changed_folder.h"
#include "config/recipe.h"

namespace fettle {

void change_model(Recipe& recipe, bool trains) {
  ModelChanges changes;
  changes.rope = {.type = recipe.rope_scaling, .length = {}, .at = recipe.where("rope_scaling")};
  if (trains || recipe.set_at.contains("cutoff_len")) changes.rope.length = recipe.cutoff_len;
  if (!changes.any()) return;
  const std::string folder = changed_folder(recipe.model_name_or_path, changes).string();
  if (folder == recipe.model_name_or_path) return;
  recipe.hub_names[folder] = recipe.name_of(recipe.model_name_or_path);
  recipe.model_name_or_path = folder;
}

}  // namespace fettle
