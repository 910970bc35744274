#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include <vector>

#include "tokenizer/newer_unicode.h"
#include "tokenizer/text.h"

namespace fettle {
namespace {

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackMost = 256 << 20;

// The class items of \s, and of \S.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
// Alphabetic characters that are no letters, marks or letter numbers.
constexpr std::string_view kEnclosedLetters =
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
// What \w has besides, but only outside of brackets.
constexpr std::string_view kLatin1Words = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// The class items of the general category `name` (L, Nd, ...) that older Unicode tables lack.
std::string newer_items(std::string_view name) {
  std::string items;
  if (name.empty() || name.size() > 2) return items;
  for (const NewerRange& range : kNewerRanges) {
    if (std::string_view(range.category).substr(0, name.size()) != name) continue;
    items +=
        fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
  }
  return items;
}

std::string property_items(std::string_view name) {
  return fmt::format("\\p{{{}}}", name) + newer_items(name);
}

std::string word_items() {
  std::string items(kEnclosedLetters);
  for (std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) items += property_items(name);
  return items;
}

// The class items of [:name:]; empty where PCRE2 means the same.
std::string posix_items(std::string_view name) {
  if (name == "alpha") return "\\p{Alphabetic}" + newer_items("L") + newer_items("M");
  if (name == "alnum") return posix_items("alpha") + property_items("Nd");
  if (name == "digit") return property_items("Nd");
  if (name == "lower") return "\\p{Lowercase}" + newer_items("Ll");
  if (name == "upper") return "\\p{Uppercase}" + newer_items("Lu");
  if (name == "punct") return property_items("P") + property_items("S");
  if (name == "space") return std::string(kSpaces);
  if (name == "word") return word_items();
  return "";
}

// Rewrites one pattern; `at_` walks over the source.
class Translator {
 public:
  explicit Translator(std::string_view source) : source_(source) {}

  std::string translate() {
    std::string out;
    while (at_ < source_.size()) {
      if (source_[at_] == '\\') {
        out += escape(false);
      } else if (source_[at_] == '[') {
        out += bracket();
      } else {
        out += source_[at_++];
      }
    }
    return out;
  }

 private:
  // An escape sequence, as class items when `in_class`.
  std::string escape(bool in_class) {
    const char kind = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    auto wrap = [&](std::string_view items, bool negated) {
      at_ += 2;
      return in_class ? std::string(items) : fmt::format("[{}{}]", negated ? "^" : "", items);
    };
    switch (kind) {
      case 's': return wrap(kSpaces, false);
      case 'S': return in_class ? wrap(kNonSpaces, false) : wrap(kSpaces, true);
      case 'w': return wrap(word_items() + std::string(in_class ? "" : kLatin1Words), false);
      case 'W':
        if (!in_class) return wrap(word_items() + std::string(kLatin1Words), true);
        break;
      case 'd': return wrap(property_items("Nd"), false);
      case 'h': return wrap("0-9A-Fa-f", false);
      case 'H':
        if (!in_class) return wrap("0-9A-Fa-f", true);
        break;
      case 'b':
      case 'B':
        if (!in_class) return word_boundary(kind == 'b');
        break;
      case 'u':
        if (at_ + 6 <= source_.size()) {
          at_ += 6;
          return fmt::format("\\x{{{}}}", source_.substr(at_ - 4, 4));
        }
        break;
      case 'p':
      case 'P': return property(in_class);
      default: break;
    }
    const size_t length = std::min<size_t>(2, source_.size() - at_);
    at_ += length;
    return std::string(source_.substr(at_ - length, length));
  }

  std::string word_boundary(bool wanted) {
    at_ += 2;
    const std::string word = fmt::format("[{}{}]", word_items(), kLatin1Words);
    return wanted ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                  : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
  }

  std::string property(bool in_class) {
    const size_t close = source_.find('}', at_);
    if (at_ + 2 >= source_.size() || source_[at_ + 2] != '{' || close == std::string_view::npos) {
      at_ += 2;
      return std::string(source_.substr(at_ - 2, 2));
    }
    bool negated = source_[at_ + 1] == 'P';
    std::string_view name = source_.substr(at_ + 3, close - at_ - 3);
    if (!name.empty() && name[0] == '^') negated = !negated, name.remove_prefix(1);
    at_ = close + 1;
    const std::string newer = newer_items(name);
    if (in_class) return negated ? fmt::format("\\P{{{}}}", name) : property_items(name);
    if (newer.empty()) return fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
    return fmt::format("[{}{}]", negated ? "^" : "", property_items(name));
  }

  // A class from its '[' on. [a&&[b]] becomes (?:(?=[b])[a]).
  std::string bracket() {
    std::string out(1, source_[at_++]);
    std::string also;
    if (peek() == '^') out += source_[at_++];
    if (peek() == ']') out += "\\]", ++at_;
    while (at_ < source_.size() && source_[at_] != ']') {
      if (source_[at_] == '\\') {
        out += escape(true);
      } else if (source_.substr(at_, 2) == "[:") {
        const size_t close = source_.find(":]", at_);
        if (close == std::string_view::npos) break;
        const std::string items = posix_items(source_.substr(at_ + 2, close - at_ - 2));
        out += items.empty() ? source_.substr(at_, close + 2 - at_) : std::string_view(items);
        at_ = close + 2;
      } else if (source_.substr(at_, 3) == "&&[") {
        at_ += 2;
        also += fmt::format("(?={})", bracket());
      } else if (source_[at_] == '[') {
        out += "\\[", ++at_;
      } else {
        out += source_[at_++];
      }
    }
    if (at_ < source_.size()) out += source_[at_++];
    return also.empty() ? out : fmt::format("(?:{}{})", also, out);
  }

  char peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }

  std::string_view source_;
  size_t at_ = 0;
};

// What a thread needs to match: PCRE2's offsets and the JIT's stack.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);

  Workspace() {
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, UINT32_MAX);
  }
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string pattern;

  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view where) {
  const std::string translated = Translator(pattern).translate();
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    unsigned char message[256];
    pcre2_get_error_message(error, message, sizeof message);
    throw UserError("{}: the pattern '{}' is not one that Fettle can run: {} (at '{}')", where, pattern,
                    reinterpret_cast<const char*>(message), translated.substr(std::min(offset, translated.size()), 20));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(code);
}

Regex Regex::of_literal(std::string_view literal) {
  std::string pattern;
  for (char c : literal) {
    if (static_cast<uint8_t>(c) < 0x80 && is_punctuation(static_cast<uint8_t>(c))) pattern += '\\';
    pattern += c;
  }
  return Regex(pattern, "literal");
}

Regex Regex::of_field(const JsonField& field) {
  if (auto text = field.find("String")) return of_literal(text->string());
  if (auto pattern = field.find("Regex")) return Regex(pattern->string(), pattern->where());
  field.fail("wanted {{\"String\": ...}} or {{\"Regex\": ...}}");
}

bool Regex::find(std::string_view text, size_t from, size_t last_end, size_t& start, size_t& end) const {
  thread_local Workspace workspace;
  while (from <= text.size()) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = code_->jit
                    ? pcre2_jit_match(code_->code, subject, text.size(), from, 0, workspace.data, workspace.context)
                    : pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, workspace.data,
                                  workspace.context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, workspace.data,
                          workspace.context);
    }
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0)
      throw UserError("the pattern '{}' gave up on a text of {} bytes (PCRE2 error {})", code_->pattern, text.size(),
                      found);
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(workspace.data);
    start = offsets[0];
    end = offsets[1];
    if (start != end || start != last_end) return true;
    if (end >= text.size()) return false;
    from = end;
    next_char(text, from);
  }
  return false;
}

}  // namespace fettle
