#include "export/gguf/modelfile.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/gguf/write/tokenizer_metadata.h"
#include "data/chat/chat.h"
#include "export/gguf/model_card.h"
#include "jinja/template.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {
namespace {

using Talk = std::vector<Message>;

// The texts around the messages of each role.
struct TurnTexts {
  std::string system_before, system_after, user_before, user_after, reply_before, reply_after;
  std::string default_system;  // rendered when a conversation has no system message
  bool has_system = false;
};

// Returns the prompt without the bos token, which Ollama adds itself; nullopt when the template refuses the
// conversation.
std::optional<std::string> rendered(const ChatTemplate& chat, const std::string& bos, const Talk& talk) {
  try {
    std::string text = chat.prompt_text({talk});
    return !bos.empty() && text.starts_with(bos) ? text.substr(bos.size()) : text;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Splits `text` at the contents of the messages, in their order; nullopt when a content does not occur.
std::optional<std::vector<std::string>> split_at(const std::string& text, const Talk& talk) {
  std::vector<std::string> between;
  size_t at = 0;
  for (const Message& message : talk) {
    const size_t found = text.find(message.content, at);
    if (found == std::string::npos) return std::nullopt;
    between.push_back(text.substr(at, found - at));
    at = found + message.content.size();
  }
  between.push_back(text.substr(at));
  return between;
}

std::string common_end(const std::string& a, const std::string& b) {
  size_t count = 0;
  while (count < std::min(a.size(), b.size()) && a[a.size() - 1 - count] == b[b.size() - 1 - count]) ++count;
  return a.substr(a.size() - count);
}

Message message_of(const std::string& role, const std::string& content) {
  return {.role = role, .content = content, .extra_json = ""};
}

const Message kSystem = message_of("system", "SYSTEMTEXT"), kUser = message_of("user", "USERTEXT"),
              kReply = message_of("assistant", "REPLYTEXT"), kSecond = message_of("user", "SECONDTEXT"),
              kOther = message_of("assistant", "OTHERTEXT"), kThird = message_of("user", "THIRDTEXT");

std::optional<TurnTexts> find_texts(const ChatTemplate& chat, const std::string& bos) {
  TurnTexts texts;
  const auto alone = rendered(chat, bos, {kUser}), turns = rendered(chat, bos, {kUser, kReply, kSecond});
  if (!alone || !turns) return std::nullopt;
  const auto one = split_at(*alone, {kUser}), three = split_at(*turns, {kUser, kReply, kSecond});
  if (!one || !three) return std::nullopt;
  texts.user_before = (*one)[0];
  texts.reply_before = (*one)[1];
  // `whole` does not ask for a reply, so it shows the text that the template writes directly after a user message.
  const std::string whole = chat.text({{kUser}});
  const auto without = split_at(whole, {kUser});
  if (without && texts.reply_before.starts_with((*without)[1])) {
    texts.user_after = (*without)[1];
    texts.reply_before = texts.reply_before.substr(texts.user_after.size());
  }
  std::string between = (*three)[2];  // after a reply and before the user's next message
  const Talk with{kSystem, kUser, kReply, kSecond};
  if (const auto system = rendered(chat, bos, with); system && system->find(kSystem.content) != std::string::npos) {
    const auto parts = split_at(*system, with);
    if (!parts) return std::nullopt;
    texts.has_system = true;
    texts.system_before = (*parts)[0];
    const std::string& after = (*parts)[1];
    // Without a system message, some templates write a default one.
    const std::string& first = texts.user_before;
    if (first.size() > texts.system_before.size() + after.size() && first.starts_with(texts.system_before) &&
        first.ends_with(after)) {
      texts.default_system =
          first.substr(texts.system_before.size(), first.size() - texts.system_before.size() - after.size());
      texts.user_before = common_end(after, between);
      // The end of the system message and of a reply is the end of a user message.
      if (!texts.user_after.empty() && texts.user_before.starts_with(texts.user_after))
        texts.user_before.erase(0, texts.user_after.size());
    }
    if (!after.ends_with(texts.user_before)) return std::nullopt;
    texts.system_after = after.substr(0, after.size() - texts.user_before.size());
  }
  if (!between.ends_with(texts.user_before)) return std::nullopt;
  texts.reply_after = between.substr(0, between.size() - texts.user_before.size());
  return texts;
}

// Returns the prompt that Ollama renders from the texts.
std::string composed(const TurnTexts& texts, const Talk& talk) {
  std::string out;
  const bool has_own = !talk.empty() && talk.front().role == "system";
  const std::string system = has_own ? talk.front().content : texts.default_system;
  if (!system.empty()) out += texts.system_before + system + texts.system_after;
  for (const Message& message : talk) {
    if (message.role == "user") out += texts.user_before + message.content + texts.user_after + texts.reply_before;
    if (message.role == "assistant") out += message.content + texts.reply_after;
  }
  return out;
}

bool agree(const ChatTemplate& chat, const std::string& bos, const TurnTexts& texts) {
  std::vector<Talk> talks{{kUser}, {kUser, kReply, kSecond}, {kUser, kReply, kSecond, kOther, kThird}};
  if (texts.has_system)
    talks.insert(talks.end(), {{kSystem, kUser}, {kSystem, kUser, kReply, kSecond, kOther, kThird}});
  for (const Talk& talk : talks)
    if (rendered(chat, bos, talk) != composed(texts, talk)) return false;
  return true;
}

bool can_be_quoted(const TurnTexts& texts) {
  for (const std::string& text : {texts.system_before, texts.system_after, texts.user_before, texts.user_after,
                                  texts.reply_before, texts.reply_after, texts.default_system})
    if (text.find("{{") != std::string::npos || text.find("\"\"\"") != std::string::npos) return false;
  return true;
}

bool renders_tools(const ChatTemplate& chat) {
  return jinja::Template(chat.source(true)).reads("tools");
}

bool renders_date(const ChatTemplate& chat) {
  return jinja::Template(chat.source(false)).reads("strftime_now");
}

// Returns the TEMPLATE and SYSTEM lines; "" when the chat template cannot be written as a TEMPLATE.
std::string template_lines(const std::filesystem::path& folder, const GgufMetadata& metadata) {
  const Tokenizer tokenizer = Tokenizer::open(folder);
  if (!tokenizer.chat_template()) return "";
  const ChatTemplate chat("", tokenizer);
  if (renders_date(chat)) return "";  // a TEMPLATE would always have the day of the export
  const GgufHeader header = header_of(metadata, {});
  const bool adds_bos = header.values.at("tokenizer.ggml.add_bos_token").get<bool>();
  const std::string bos = adds_bos ? tokenizer.bos_token() : "";
  const std::optional<TurnTexts> texts = find_texts(chat, bos);
  if (!texts || !can_be_quoted(*texts) || !agree(chat, bos, *texts)) return "";
  std::string out;
  if (renders_tools(chat)) {
    out = "# This TEMPLATE writes no tools; the model's chat template (tokenizer.chat_template) does.\n";
    info(
        "Modelfile: its TEMPLATE is for conversations without tools; the model's chat template also writes tools, but "
        "Ollama does not use it");
  }
  out += "TEMPLATE \"\"\"";
  if (texts->has_system)
    out += "{{ if .System }}" + texts->system_before + "{{ .System }}" + texts->system_after + "{{ end }}";
  out += "{{ if .Prompt }}" + texts->user_before + "{{ .Prompt }}" + texts->user_after + "{{ end }}" +
         texts->reply_before + "{{ .Response }}" + texts->reply_after + "\"\"\"\n";
  if (!texts->default_system.empty()) out += "SYSTEM \"\"\"" + texts->default_system + "\"\"\"\n";
  return out;
}

}  // namespace

std::string modelfile(const std::string& gguf, const std::filesystem::path& folder, const GgufMetadata& metadata) {
  std::string out = fmt::format("# ollama create NAME -f Modelfile\nFROM ./{}\n", gguf);
  std::string lines;
  try {
    lines = template_lines(folder, metadata);
  } catch (const UserError&) {
    // There is no TEMPLATE for a chat template that Fettle cannot render.
  }
  if (TokenizerConfig::read(folder).chat_templates.count("default") == 0)
    out += "# The model has no chat template; add a TEMPLATE.\n";
  else if (lines.empty())
    out +=
        "# The chat template is in the GGUF file (tokenizer.chat_template). Fettle cannot write it as an Ollama\n"
        "# template. If Ollama recognises it, Ollama uses a similar template of its own;\n"
        "# `ollama show --template NAME` shows which.\n";
  out += lines;
  for (const std::string& stop : stop_texts(metadata)) {
    if (stop.find('"') != std::string::npos || stop.find('\n') != std::string::npos) continue;
    out += fmt::format("PARAMETER stop \"{}\"\n", stop);
  }
  const std::string license = license_text(folder);
  if (!license.empty() && license.find("\"\"\"") == std::string::npos) out += "LICENSE \"\"\"" + license + "\"\"\"\n";
  return out;
}

}  // namespace fettle
