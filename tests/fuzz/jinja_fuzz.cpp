// Reads any text as a template. It is rendered within the interpreter's limits, or UserError is thrown.
#include "base/error.h"
#include "jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "é 🎉\n"},
                 {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}],
    "tools": [{"name": "f"}], "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "none": null})");
  try {
    fettle::jinja::Template(std::string_view(reinterpret_cast<const char*>(data), size))
        .render(context, fettle::LocalTime{});
  } catch (const fettle::UserError&) {
  }
  return 0;
}
