#include "generate/replies/loose_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace fettle {
namespace {

constexpr std::string_view kGemmaQuote = "<|\"|>", kPunctuation = ",:=()[]{}\"'";

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class LooseReader {
 public:
  explicit LooseReader(std::string_view text) : rest_(text) {}

  std::string all() {
    while (!rest_.empty()) next();
    return std::move(out_);
  }

 private:
  // Returns the next character that is not white space, from `at` on; 0 at the end.
  char after(size_t at) const {
    const size_t found = rest_.find_first_not_of(kSpaces, at);
    return found == std::string_view::npos ? '\0' : rest_[found];
  }

  std::string_view take(size_t length) {
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  void next() {
    const char c = rest_.front();
    if (rest_.starts_with(kGemmaQuote)) {
      take(kGemmaQuote.size());
      out_ += json_text(take(rest_.find(kGemmaQuote)));
      take(kGemmaQuote.size());
    } else if (c == '"' || c == '\'') {
      quoted(c);
    } else if (c == ')') {
      take(1);
      out_ += "}}";
    } else if (c == '=') {
      take(1);
      out_ += ':';
    } else if (kPunctuation.find(c) != std::string_view::npos || kSpaces.find(c) != std::string_view::npos) {
      out_ += take(1);
    } else {
      word();
    }
  }

  void word() {
    size_t end = 0;
    while (end < rest_.size() && kPunctuation.find(rest_[end]) == std::string_view::npos &&
           kSpaces.find(rest_[end]) == std::string_view::npos && !rest_.substr(end).starts_with(kGemmaQuote))
      ++end;
    const std::string_view word = take(end);
    const char then = after(0);
    if (then == '(') {
      take(rest_.find('(') + 1);
      out_ += "{\"name\":" + json_text(word) + ",\"arguments\":{";
    } else if (then == ':' || then == '=') {
      out_ += json_text(word);
    } else {
      out_ += word == "True" ? "true" : word == "False" ? "false" : word == "None" ? "null" : word;
    }
  }

  void quoted(char quote) {
    take(1);
    out_ += '"';
    while (!rest_.empty()) {
      const char c = take(1).front();
      if (c == quote && std::string_view(",:)]}\0", 6).find(after(0)) != std::string_view::npos) break;
      if (c == '\\' && !rest_.empty())
        escaped(take(1).front());
      else if (c == '"')
        out_ += "\\\"";
      else if (static_cast<unsigned char>(c) < ' ')
        out_ += fmt::format("\\u{:04x}", static_cast<int>(c));
      else
        out_ += c;
    }
    out_ += '"';
  }

  // Adds a backslash and `c`, the character after it, as JSON. Like Python, keeps the backslash of an unknown escape.
  void escaped(char c) {
    if (c == '\'')
      out_ += c;
    else if (c == 'x' && rest_.size() >= 2)
      out_ += "\\u00" + std::string(take(2));
    else
      out_ += (std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos ? "\\" : "\\\\") + std::string(1, c);
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

std::string loose_as_json(std::string_view text) {
  return LooseReader(text).all();
}

}  // namespace fettle
