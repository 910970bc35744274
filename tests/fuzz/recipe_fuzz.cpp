// Reads any text as a recipe, or refuses it with UserError. The text after the first zero byte is an override.
#include "base/error.h"
#include "config/recipe.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    overrides.push_back(text.substr(zero + 1));
    text.resize(zero);
  }
  write_text(folder / "recipe.yaml", text);
  try {
    read_recipe(folder / "recipe.yaml", overrides);
  } catch (const UserError&) {
  }
  return 0;
}
