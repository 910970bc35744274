#include "tokenizer/text/pattern.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/text.h"
#include "tokenizer/text/intervals.h"
#include "tokenizer/text/newer_unicode.h"

namespace fettle {
namespace {

// \s and \S as items of a class in brackets.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
constexpr std::string_view kAsciiSpaces = "\\x{9}-\\x{d}\\x{20}";
constexpr std::string_view kAsciiNonSpaces = "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{7f}";
constexpr std::string_view kNoAscii = "\\xff";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr std::string_view kAnything = "(?s:.)";
// Alphabetic characters whose category is not letter, mark or letter number.
constexpr std::string_view kEnclosedLetters =
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
// \w also matches these characters, but not inside a class in brackets.
constexpr std::string_view kLatin1Words = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
// A character that newer versions of Unicode no longer list as a nonspacing mark.
constexpr std::string_view kSpacingByNow = "\\x{1171e}";

// Returns the short name of a general category, such as "Lu" for "Uppercase_Letter"; "" for an unknown name.
std::string category_of(std::string_view name) {
  const int32_t mask = u_getPropertyValueEnum(UCHAR_GENERAL_CATEGORY_MASK, std::string(name).c_str());
  if (mask == UCHAR_INVALID_CODE) return "";
  const char* short_name = u_getPropertyValueName(UCHAR_GENERAL_CATEGORY_MASK, mask, U_SHORT_PROPERTY_NAME);
  return short_name == nullptr ? "" : short_name;
}

std::string script_of(std::string_view name) {
  const int32_t script = u_getPropertyValueEnum(UCHAR_SCRIPT, std::string(name).c_str());
  if (script == UCHAR_INVALID_CODE) return "";
  const char* long_name = u_getPropertyValueName(UCHAR_SCRIPT, script, U_LONG_PROPERTY_NAME);
  return long_name == nullptr ? "" : long_name;
}

// A set of characters. `items` is what stands between the brackets of a regular expression's class: a-z0-9 for
// [a-z0-9].
struct Set {
  std::string items;
  std::string except;  // items to leave out
};

// Makes the sets for properties and escapes, for one kind of text.
class Sets {
 public:
  explicit Sets(Texts texts) : texts_(texts) {}

  // Returns false when the pattern has a set that cannot be written for ASCII texts.
  bool complete() const { return complete_; }

  Set spaces() const { return {std::string(is_ascii() ? kAsciiSpaces : kSpaces), ""}; }
  Set non_spaces() const { return {std::string(is_ascii() ? kAsciiNonSpaces : kNonSpaces), ""}; }

  Set property(std::string_view name) {
    static constexpr std::string_view kPosix[] = {"alnum", "alpha", "blank", "cntrl", "digit",  "graph",
                                                  "lower", "print", "space", "upper", "xdigit", "word"};
    const std::string lower = lower_case(std::string(name));
    if (std::find(std::begin(kPosix), std::end(kPosix), lower) != std::end(kPosix)) return posix(lower);
    if (is_ascii()) return {ascii(name), ""};
    if (const std::string category = category_of(name); !category.empty()) {
      Set set{fmt::format("\\p{{{}}}", category) + newer(category), ""};
      // PCRE2 may still list the newer characters as unassigned (Cn), so the set leaves them out.
      if (category == "C" || category == "Cn") set = {fmt::format("\\p{{{}}}", category), newer("", category)};
      if (category == "Mn" && texts_ == Texts::kAll) set.except = kSpacingByNow;
      return set;
    }
    if (const std::string script = script_of(name); !script.empty()) {
      // Without sc:, PCRE2 would also match characters that have the script in their Script_Extensions.
      Set set{fmt::format("\\p{{sc:{}}}", script), script == "Unknown" ? newer("") : ""};
      for (const NewerScript& known : kNewerScripts) {
        if (known.name == script) set.items += known.items;
      }
      return set;
    }
    std::string_view more;
    if (name == "Alphabetic" || name == "Alpha") more = kNewerAlphabetic;
    if (name == "Lowercase" || name == "Lower") more = kNewerLowercase;
    if (name == "Uppercase" || name == "Upper") more = kNewerUppercase;
    if (name == "Emoji") more = kNewerEmoji;
    return {fmt::format("\\p{{{}}}{}", name, more), ""};
  }

  Set word(bool bracketed) {
    std::string items = is_ascii() ? "" : std::string(kEnclosedLetters);
    if (!is_ascii() && !bracketed) items += kLatin1Words;
    for (std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) items += property(name).items;
    return {items, ""};
  }

  // Returns the set of [:name:].
  Set posix(std::string_view name) {
    if (name == "digit") return property("Nd");
    if (name == "punct") return {property("P").items + property("S").items, ""};
    if (name == "space") return spaces();
    if (name == "word") return word(true);
    if (name == "blank") return {"\\x{9}" + property("Zs").items, ""};
    if (name == "graph" || name == "print") {
      std::string items = name == "print" ? property("Zs").items : "";
      for (std::string_view part : {"L", "M", "N", "P", "S", "Cf", "Co"}) items += property(part).items;
      return {items, ""};
    }
    if (!is_ascii()) {
      if (name == "alpha") return property("Alphabetic");
      if (name == "alnum") return {property("Alphabetic").items + property("Nd").items, ""};
      if (name == "lower") return property("Lowercase");
      if (name == "upper") return property("Uppercase");
    }
    return {fmt::format("[:{}:]", name), ""};
  }

  bool is_ascii() const { return texts_ == Texts::kAscii; }

 private:
  // Returns the newer characters whose category starts with `category` ("": all). Leaves out those whose category
  // starts with `but`.
  std::string newer(std::string_view category, std::string_view but = "none") const {
    std::string items;
    if (texts_ != Texts::kAll) return items;
    for (const NewerRange& range : kNewerRanges) {
      if (std::string_view(range.category).substr(0, category.size()) != category) continue;
      if (std::string_view(range.category).substr(0, but.size()) == but) continue;
      items +=
          fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
    }
    return items;
  }

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

// Returns a pattern that matches one character in the set or, if `negated`, one character outside of it.
std::string one_of(const Set& set, bool negated) {
  if (set.except.empty()) return fmt::format("[{}{}]", negated ? "^" : "", set.items);
  return negated ? fmt::format("(?:[{}]|[^{}])", set.except, set.items)
                 : fmt::format("(?:(?![{}])[{}])", set.except, set.items);
}

std::string any_of(const std::vector<std::string>& patterns) {
  if (patterns.size() == 1) return patterns[0];
  return fmt::format("(?:{})", fmt::join(patterns, "|"));
}

// Rewrites one pattern. `at_` is the position in the source.
class Translator {
 public:
  Translator(std::string_view source, Sets& sets) : source_(source), sets_(sets) {}

  std::string translate() {
    std::string out;
    while (at_ < source_.size()) {
      if (source_[at_] == '\\') {
        out += escape();
      } else if (source_[at_] == '[') {
        out += bracket();
      } else if (source_.substr(at_, 2) == "(?") {
        out += group();
      } else {
        out += source_[at_++];
      }
    }
    return out;
  }

 private:
  // Translates the start of a group. Ruby's option m is PCRE2's option s.
  std::string group() {
    size_t end = at_ + 2;
    while (end < source_.size() && std::string_view("imx-").find(source_[end]) != std::string_view::npos) ++end;
    const bool options = end < source_.size() && (source_[end] == ':' || source_[end] == ')');
    std::string out(source_.substr(at_, options ? end - at_ : 2));
    at_ += out.size();
    std::replace(out.begin(), out.end(), 'm', 's');
    return out;
  }

  // Reads an escape that names a set, and whether it is negated. Returns nullopt for any other escape.
  std::optional<Set> named_set(bool bracketed, bool& negated) {
    const char kind = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    negated = kind == 'S' || kind == 'W' || kind == 'D' || kind == 'H' || kind == 'P';
    if (kind == 'p' || kind == 'P') {
      const size_t close = source_.find('}', at_);
      if (source_.substr(at_ + 2, 1) != "{" || close == std::string_view::npos) return std::nullopt;
      std::string_view name = source_.substr(at_ + 3, close - at_ - 3);
      if (name.starts_with('^')) negated = !negated, name.remove_prefix(1);
      at_ = close + 1;
      return sets_.property(name);
    }
    std::optional<Set> set;
    if (kind == 's' || kind == 'S') set = sets_.spaces();
    if (kind == 'w' || kind == 'W') set = sets_.word(bracketed);
    if (kind == 'd' || kind == 'D') set = sets_.property("Nd");
    if (kind == 'h' || kind == 'H') set = Set{std::string(kHexDigits), ""};
    if (set) at_ += 2;
    return set;
  }

  // Translates an escape that means one character, or keeps it for PCRE2.
  std::string other_escape() {
    const char kind = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    if (kind == 'u' && at_ + 6 <= source_.size()) {
      at_ += 6;
      return fmt::format("\\x{{{}}}", source_.substr(at_ - 4, 4));
    }
    const size_t length = std::min<size_t>(2, source_.size() - at_);
    at_ += length;
    if (kind == 'v') return "\\x{b}";
    return std::string(source_.substr(at_ - length, length));
  }

  std::string escape() {
    const char kind = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    bool negated = false;
    if (const std::optional<Set> set = named_set(false, negated)) return one_of(*set, negated);
    if (kind == 'b' || kind == 'B') return word_boundary(kind == 'b');
    if (kind == 'O') return at_ += 2, std::string(kAnything);
    return other_escape();
  }

  std::string word_boundary(bool wanted) {
    at_ += 2;
    const std::string word = one_of(sets_.word(false), false);
    return wanted ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                  : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
  }

  // Translates a class in brackets: a union of sets, or an intersection of such unions.
  std::string bracket() {
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    bool first = true;
    std::string items;
    std::vector<std::string> others;  // patterns that match one character but cannot be class items
    std::vector<std::string> unions;
    auto end_union = [&] {
      if (!items.empty() || others.empty()) others.push_back(items.empty() ? "(?!)" : fmt::format("[{}]", items));
      unions.push_back(any_of(others));
      items.clear();
      others.clear();
    };
    auto add = [&](const Set& set, bool not_of_it) {
      if (not_of_it || !set.except.empty()) {
        others.push_back(one_of(set, not_of_it));
      } else {
        items += set.items;
      }
    };
    for (; at_ < source_.size() && (peek() != ']' || first); first = false) {
      bool not_of_it = false;
      if (source_.substr(at_, 2) == "\\S") {
        items += sets_.non_spaces().items;
        at_ += 2;
      } else if (peek() == '\\') {
        const std::optional<Set> set = named_set(true, not_of_it);
        set ? add(*set, not_of_it) : void(items += other_escape());
      } else if (source_.substr(at_, 2) == "[:" && source_.find(":]", at_) != std::string_view::npos) {
        const size_t close = source_.find(":]", at_);
        std::string_view name = source_.substr(at_ + 2, close - at_ - 2);
        if (name.starts_with('^')) not_of_it = true, name.remove_prefix(1);
        add(sets_.posix(name), not_of_it);
        at_ = close + 2;
      } else if (source_.substr(at_, 2) == "&&") {
        end_union();
        at_ += 2;
      } else if (peek() == '[') {
        others.push_back(bracket());
      } else {
        // A closing bracket is an ordinary character only at the start of a class.
        items += peek() == ']' ? "\\]" : std::string(1, peek());
        ++at_;
      }
    }
    if (at_ >= source_.size()) return "[" + items;  // the class is not closed: PCRE2 reports this
    ++at_;
    if (unions.empty() && others.empty() && !items.empty()) {
      return fmt::format("[{}{}]", negated ? "^" : "", items);
    }
    end_union();
    std::string all;
    for (size_t i = 1; i < unions.size(); ++i) all += fmt::format("(?={})", unions[i]);
    all += unions[0];
    if (negated) return fmt::format("(?:(?!{}){})", all, kAnything);
    return unions.size() == 1 ? all : fmt::format("(?:{})", all);
  }

  char peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }

  std::string_view source_;
  Sets& sets_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> translate_pattern(std::string_view pattern, Texts texts) {
  Sets sets(texts);
  const std::string regrouped = regroup_intervals(pattern, IntervalPlus::kRepeats);
  std::string translated = Translator(regrouped, sets).translate();
  return sets.complete() ? std::optional(std::move(translated)) : std::nullopt;
}

}  // namespace fettle
