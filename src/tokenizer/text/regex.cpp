#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/text/regex.h"

#include <pcre2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tokenizer/text/newer_unicode.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackMost = 256 << 20;
constexpr uint32_t kHeapMostKib = 1 << 20;

// The texts that a compiled pattern serves: those of ASCII need no Unicode properties, and those without characters
// of kNewerRanges need not ask for them.
enum class Texts { kAscii, kUsual, kAll };

// The class items of \s, and of \S.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
constexpr std::string_view kAsciiSpaces = "\\x{9}-\\x{d}\\x{20}";
constexpr std::string_view kAsciiNonSpaces = "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{7f}";
constexpr std::string_view kNoAscii = "\\xff";
// Alphabetic characters that are no letters, marks or letter numbers.
constexpr std::string_view kEnclosedLetters =
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
// What \w has besides, but only outside of brackets.
constexpr std::string_view kLatin1Words = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// The items of bracketed classes, for some texts.
class Items {
 public:
  explicit Items(Texts texts) : texts_(texts) {}

  // False once something was asked for that these texts do not allow.
  bool complete() const { return complete_; }

  std::string_view spaces() const { return is_ascii() ? kAsciiSpaces : kSpaces; }
  std::string_view non_spaces() const { return is_ascii() ? kAsciiNonSpaces : kNonSpaces; }

  std::string property(std::string_view name) {
    return is_ascii() ? ascii(name) : fmt::format("\\p{{{}}}", name) + newer(name);
  }

  std::string word(bool bracketed) {
    std::string items = is_ascii() ? "" : std::string(kEnclosedLetters);
    if (!is_ascii() && !bracketed) items += kLatin1Words;
    for (std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) items += property(name);
    return items;
  }

  // Of [:name:]; empty where PCRE2 means the same.
  std::string posix(std::string_view name) {
    if (name == "digit") return property("Nd");
    if (name == "punct") return property("P") + property("S");
    if (name == "space") return std::string(spaces());
    if (name == "word") return word(true);
    if (is_ascii()) return "";
    if (name == "alpha") return "\\p{Alphabetic}" + newer("L") + newer("M");
    if (name == "alnum") return posix("alpha") + property("Nd");
    if (name == "lower") return "\\p{Lowercase}" + newer("Ll");
    if (name == "upper") return "\\p{Uppercase}" + newer("Lu");
    return "";
  }

  // Of the general category `name` (L, Nd, ...), those that older Unicode tables lack.
  std::string newer(std::string_view name) const {
    std::string items;
    if (texts_ != Texts::kAll || name.empty() || name.size() > 2) return items;
    for (const NewerRange& range : kNewerRanges) {
      if (std::string_view(range.category).substr(0, name.size()) != name) continue;
      items +=
          fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
    }
    return items;
  }

  bool is_ascii() const { return texts_ == Texts::kAscii; }

 private:
  std::string ascii(std::string_view name) {
    const int32_t mask = u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, std::string(name).c_str());
    if (mask == UCHAR_INVALID_CODE) complete_ = false;
    std::string items(kNoAscii);
    for (int c = 0; c < 0x80; ++c) {
      if ((U_GET_GC_MASK(c) & static_cast<uint32_t>(mask)) != 0) items += fmt::format("\\x{{{:x}}}", c);
    }
    return items;
  }

  Texts texts_;
  bool complete_ = true;
};

// Rewrites one pattern; `at_` walks over the source.
class Translator {
 public:
  Translator(std::string_view source, Items& items) : source_(source), items_(items) {}

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
      case 's': return wrap(items_.spaces(), false);
      case 'S': return in_class ? wrap(items_.non_spaces(), false) : wrap(items_.spaces(), true);
      case 'w': return wrap(items_.word(in_class), false);
      case 'd': return wrap(items_.property("Nd"), false);
      case 'h': return wrap("0-9A-Fa-f", false);
      case 'W':
        if (!in_class) return wrap(items_.word(false), true);
        break;
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
    const std::string word = fmt::format("[{}]", items_.word(false));
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
    if (in_class && !negated) return items_.property(name);
    if (items_.is_ascii() || !items_.newer(name).empty()) {
      // A negated property within a class stays PCRE2's own.
      if (!in_class) return fmt::format("[{}{}]", negated ? "^" : "", items_.property(name));
    }
    return fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
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
        const std::string items = items_.posix(source_.substr(at_ + 2, close - at_ - 2));
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
  Items& items_;
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
    pcre2_set_heap_limit(context, kHeapMostKib);
  }
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

}  // namespace

struct Regex::Variant {
  pcre2_code* code = nullptr;
  bool jit = false;
};

struct Regex::Code {
  std::string pattern;
  Variant ascii;  // without code where the pattern has no meaning in ASCII alone
  Variant usual;
  Variant all;

  ~Code() {
    for (const Variant* variant : {&ascii, &usual, &all}) pcre2_code_free(variant->code);
  }
};

Regex::Regex(std::string_view pattern, std::string_view where) {
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  std::string rest;  // where it went wrong
  auto compile = [&](Texts texts, Variant& variant) {
    Items items(texts);
    const std::string translated = Translator(pattern, items).translate();
    if (!items.complete()) return false;
    const uint32_t unicode = texts == Texts::kAscii ? 0 : PCRE2_UTF | PCRE2_UCP;
    PCRE2_SIZE offset = 0;
    variant.code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 unicode | PCRE2_MULTILINE, &error, &offset, context);
    rest = translated.substr(std::min(offset, translated.size()), 20);
    variant.jit = variant.code != nullptr && pcre2_jit_compile(variant.code, PCRE2_JIT_COMPLETE) == 0;
    return variant.code != nullptr;
  };
  compile(Texts::kAscii, code->ascii);
  const bool compiled = compile(Texts::kUsual, code->usual) && compile(Texts::kAll, code->all);
  pcre2_compile_context_free(context);
  if (!compiled) {
    unsigned char message[256];
    pcre2_get_error_message(error, message, sizeof message);
    throw UserError("{}: the pattern '{}' is not one that Fettle can run: {} (at '{}')", where, pattern,
                    reinterpret_cast<const char*>(message), rest);
  }
  code_ = std::move(code);
}

const Regex::Variant& Regex::variant_for(std::string_view text) const {
  // The first character of kNewerRanges starts with this byte.
  constexpr uint8_t kNewerLead = 0xE0;
  bool ascii = true;
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    ascii = false;
    const char32_t c = next_char(text, at);
    if (lead < kNewerLead) continue;
    const auto range = std::partition_point(std::begin(kNewerRanges), std::end(kNewerRanges),
                                            [c](const NewerRange& each) { return each.last < c; });
    if (range != std::end(kNewerRanges) && range->first <= c) return code_->all;
  }
  return ascii && code_->ascii.code != nullptr ? code_->ascii : code_->usual;
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

bool Regex::find(const Variant& variant, std::string_view text, size_t from, size_t last_end, size_t& start,
                 size_t& end) const {
  thread_local Workspace workspace;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto interpret = [&](uint32_t options) {
    return pcre2_match(variant.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | options, workspace.data,
                       workspace.context);
  };
  while (from <= text.size()) {
    int found = variant.jit
                    ? pcre2_jit_match(variant.code, subject, text.size(), from, 0, workspace.data, workspace.context)
                    : interpret(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = interpret(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      throw UserError("the pattern '{}' gave up on a text of {} bytes (PCRE2 error {})", code_->pattern, text.size(),
                      found);
    }
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
