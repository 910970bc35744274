#include "jinja/lexer.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "jinja/builtins.h"

namespace fettle::jinja {
namespace {

// Returns the number of bytes of the white space character at `at`; 0 if there is none.
size_t space_bytes(std::string_view text, size_t at) {
  if (at >= text.size()) return 0;
  auto next = static_cast<int32_t>(at);
  U8_FWD_1(reinterpret_cast<const uint8_t*>(text.data()), next, static_cast<int32_t>(text.size()));
  const size_t bytes = static_cast<size_t>(next) - at;
  return is_python_space(text.substr(at, bytes)) ? bytes : 0;
}

size_t skipped_space(std::string_view text, size_t at) {
  while (const size_t bytes = space_bytes(text, at)) at += bytes;
  return at;
}

// Returns the size of `text` without the white space at its end.
size_t size_without_space(std::string_view text) {
  auto begin = static_cast<int32_t>(text.size());
  while (begin > 0) {
    const auto end = static_cast<size_t>(begin);
    U8_BACK_1(reinterpret_cast<const uint8_t*>(text.data()), 0, begin);
    if (!is_python_space(text.substr(static_cast<size_t>(begin), end - static_cast<size_t>(begin)))) return end;
  }
  return 0;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Appends the character of an escape. Numbers that are not characters, such as halves of surrogate pairs, become
// U+FFFD.
void append_escaped(std::string& out, uint32_t code) {
  append_utf8(out, code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? U'\uFFFD' : static_cast<char32_t>(code));
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : name_(name) {
    // Changes all line ends to \n and drops one at the end of the text, as Jinja does by default.
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        source_ += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_ += source[i];
      }
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { throw UserError("{}:{}: {}", name_, line_, reason); }
  bool looking_at(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + bytes, '\n'));
    at_ += bytes;
    starts_line_ = at_ > 0 && source_[at_ - 1] == '\n';
  }
  void skip_space() { advance(skipped_space(source_, at_) - at_); }

  // Reads the text before the next tag, then the tag. The tag's sign and lstrip_blocks decide how much white space is
  // removed from the end of the text.
  void root() {
    size_t begin = at_;
    while (begin + 1 < source_.size() &&
           !(source_[begin] == '{' &&
             (source_[begin + 1] == '{' || source_[begin + 1] == '%' || source_[begin + 1] == '#')))
      ++begin;
    if (begin + 1 >= source_.size()) begin = source_.size();
    const bool found = begin < source_.size();
    std::string text = source_.substr(at_, begin - at_);
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : ' ';
    if (found) strip_end(text, sign, source_[begin + 1] == '{');
    if (!text.empty()) add(TokenKind::kText, text);
    advance(begin - at_);
    if (!found) return;
    const char kind = source_[at_ + 1];
    if (kind == '#') return comment();
    if (kind == '%' && raw_block()) return;
    add(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '{' && sign == '+') --at_;  // in `{{+` the plus is an operator, not a sign
    expression(kind == '{');
  }

  void strip_end(std::string& text, char sign, bool output) const {
    if (sign == '-') {
      text.resize(size_without_space(text));
    } else if (sign != '+' && !output) {
      const size_t line_start = text.rfind('\n') + 1;  // without a '\n', npos + 1 = 0
      if (line_start == 0 && !starts_line_) return;
      if (size_without_space(text) <= line_start) text.resize(line_start);
    }
  }

  // Moves past the last `bytes` bytes of a tag. With `strip` (the sign -), skips all white space after the tag; with
  // `trim` (trim_blocks), skips one line end.
  void end_tag(size_t bytes, bool strip, bool trim) {
    advance(bytes);
    if (strip)
      skip_space();
    else if (trim && at_ < source_.size() && source_[at_] == '\n')
      advance(1);
  }

  void comment() {
    const size_t content = at_ + (source_[at_ + 2] == '-' || source_[at_ + 2] == '+' ? 3 : 2);
    const size_t end = source_.find("#}", content);
    if (end == std::string::npos) fail("this comment {# has no #} at its end");
    const char sign = end > content ? source_[end - 1] : ' ';
    end_tag(end + 2 - at_, sign == '-', sign != '+');
  }

  // Reads {% raw %} ... {% endraw %} as one text token. Returns false for any other tag.
  bool raw_block() {
    auto tag = [&](size_t from, std::string_view word, char& first, char& last) -> size_t {
      size_t i = from + 2;
      first = i < source_.size() ? source_[i] : ' ';
      if (first == '-' || first == '+') ++i;
      i = skipped_space(source_, i);
      if (source_.compare(i, word.size(), word) != 0) return 0;
      i += word.size();
      i = skipped_space(source_, i);
      last = i < source_.size() ? source_[i] : ' ';
      if (last == '-' || last == '+') ++i;
      return source_.compare(i, 2, "%}") == 0 ? i + 2 : 0;
    };
    char first = ' ', last = ' ';
    const size_t body = tag(at_, "raw", first, last);
    if (body == 0) return false;
    end_tag(body - at_, last == '-', false);
    for (size_t begin = source_.find("{%", at_); begin != std::string::npos; begin = source_.find("{%", begin + 2)) {
      const size_t end = tag(begin, "endraw", first, last);
      if (end == 0) continue;
      std::string text = source_.substr(at_, begin - at_);
      strip_end(text, first, false);
      if (!text.empty()) add(TokenKind::kText, text);
      end_tag(end - at_, last == '-', last != '+');
      return true;
    }
    fail("{% raw %} has no {% endraw %}");
  }

  void expression(bool output) {
    std::string open;  // closing brackets that are still missing; while there are any, }} does not end the tag
    const int begin_line = line_;
    while (true) {
      skip_space();
      if (at_ >= source_.size()) throw UserError("{}:{}: this {} has no end", name_, begin_line, output ? "{{" : "{%");
      const std::string_view end = output ? "}}" : "%}";
      if (open.empty()) {
        if (looking_at(end) || (looking_at("-") && source_.compare(at_ + 1, 2, end) == 0) ||
            (!output && looking_at("+") && source_.compare(at_ + 1, 2, end) == 0)) {
          const char sign = source_[at_];
          add(output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
          end_tag(sign == '-' || sign == '+' ? 3 : 2, sign == '-', !output && sign != '+');
          return;
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return string(c);
    if (is_digit(c)) return number();
    if (const size_t bytes = name_bytes(); bytes > 0) {
      add(TokenKind::kName, source_.substr(at_, bytes));
      return advance(bytes);
    }
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (std::string_view op : kOperators) {
      if (!looking_at(op)) continue;
      if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) fail(fmt::format("unexpected '{}'", op));
        if (open.back() != op[0]) fail(fmt::format("unexpected '{}', expected '{}'", op, open.back()));
        open.pop_back();
      }
      add(TokenKind::kOperator, std::string(op));
      return advance(op.size());
    }
    fail(fmt::format("unexpected character '{}'", c));
  }

  size_t name_bytes() const {
    auto end = static_cast<int32_t>(at_);
    while (end < static_cast<int32_t>(source_.size())) {
      int32_t next = end;
      UChar32 code = 0;
      U8_NEXT_OR_FFFD(reinterpret_cast<const uint8_t*>(source_.data()), next, static_cast<int32_t>(source_.size()),
                      code);
      const bool first = end == static_cast<int32_t>(at_);
      if (!(code == '_' || (first ? u_isIDStart(code) : u_isIDPart(code)))) break;
      end = next;
    }
    return static_cast<size_t>(end) - at_;
  }

  void number() {
    size_t end = at_;
    auto digits = [&](auto is) {
      while (end < source_.size() &&
             (is(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && is(source_[end + 1]))))
        ++end;
    };
    bool is_float = false;
    if (source_[at_] == '0' && at_ + 1 < source_.size() &&
        std::string_view("xXbBoO").find(source_[at_ + 1]) != std::string_view::npos) {
      end += 2;
      digits([](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
    } else {
      digits(is_digit);
      // "1.foo" and "x.0.1" are subscripts, not floats.
      const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
      if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        is_float = true;
        ++end;
        digits(is_digit);
      }
      if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          is_float = true;
          end = exponent;
          digits(is_digit);
        }
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(is_float ? TokenKind::kFloat : TokenKind::kInt, text);
    advance(end - at_);
  }

  void string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    auto code = [&](size_t digits) {
      uint32_t value = 0;
      for (size_t n = 0; n < digits; ++n) {
        const char c = i + 1 < source_.size() ? source_[i + 1] : ' ';
        if (!std::isxdigit(static_cast<unsigned char>(c))) fail("a string has an invalid \\x or \\u escape");
        value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
        ++i;
      }
      return value;
    };
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        text += source_[i];
        continue;
      }
      const char c = source_[++i];
      static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
        text += kTo[known];
      } else if (c == '\n') {
        // A backslash at the end of a line joins the line with the next one.
      } else if (c == 'x') {
        append_escaped(text, code(2));
      } else if (c == 'u') {
        uint32_t value = code(4);
        if (value >= 0xd800 && value < 0xdc00 && source_.compare(i + 1, 2, "\\u") == 0) {
          i += 2;
          const uint32_t low = code(4);
          if (low >= 0xdc00 && low < 0xe000) {
            value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
          } else {
            append_escaped(text, value);
            value = low;
          }
        }
        append_escaped(text, value);
      } else if (c == 'U') {
        append_escaped(text, code(8));
      } else if (c >= '0' && c <= '7') {
        uint32_t value = static_cast<uint32_t>(c - '0');
        for (int n = 0; n < 2 && i + 1 < source_.size() && source_[i + 1] >= '0' && source_[i + 1] <= '7'; ++n)
          value = value * 8 + static_cast<uint32_t>(source_[++i] - '0');
        append_escaped(text, value);
      } else {
        text += '\\';
        text += c;
      }
    }
    if (i >= source_.size()) fail("a string has no closing quote");
    add(TokenKind::kString, text);
    advance(i + 1 - at_);
  }

  std::string source_;
  const std::string& name_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace fettle::jinja
