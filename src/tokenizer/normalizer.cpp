#include "tokenizer/normalizer.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <map>

#include "base/base64.h"
#include "base/text.h"
#include "tokenizer/text/charsmap.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

// Calls each(c, out) for every character. The call appends the replacement of the character to `out`.
template <typename Each>
void map_chars(std::string& text, Each each) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) each(next_char(text, at), out);
  text = std::move(out);
}

// Hugging Face's library normalizes with the tables of Unicode 9. Newer characters stay unchanged, and the texts
// before and after them are normalized separately.
const icu::UnicodeSet& normalized_characters() {
  static const icu::UnicodeSet* const set = [] {
    UErrorCode status = U_ZERO_ERROR;
    auto* made = new icu::UnicodeSet(UNICODE_STRING_SIMPLE("[:Age=9.0:]"), status);
    internal_check(U_SUCCESS(status), "ICU cannot tell the ages of characters: {}", u_errorName(status));
    made->freeze();
    return made;
  }();
  return *set;
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
}

void apply_form(const icu::Normalizer2& form, std::string& text) {
  if (is_ascii(text)) return;
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  UErrorCode status = U_ZERO_ERROR;
  form.normalizeUTF8(0, text, sink, nullptr, status);
  internal_check(U_SUCCESS(status), "ICU cannot normalize: {}", u_errorName(status));
  text = std::move(out);
}

using FormOf = const icu::Normalizer2* (*)(UErrorCode&);

template <FormOf form_of>
const icu::Normalizer2& form() {
  static const icu::FilteredNormalizer2 form = [] {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* whole = form_of(status);
    internal_check(U_SUCCESS(status), "ICU has no normalization data: {}", u_errorName(status));
    return icu::FilteredNormalizer2(*whole, normalized_characters());
  }();
  return form;
}

template <FormOf form_of>
Normalizer read_form(const JsonField& field) {
  field.expect_only({"type"});
  return [&form = form<form_of>()](std::string& text) { apply_form(form, text); };
}

Normalizer read_lowercase(const JsonField& field) {
  field.expect_only({"type"});
  return [](std::string& text) { map_chars(text, [](char32_t c, std::string& out) { append_lowercase(out, c); }); };
}

Normalizer read_strip_accents(const JsonField& field) {
  field.expect_only({"type"});
  return [](std::string& text) {
    map_chars(text, [](char32_t c, std::string& out) {
      if (!is_mark(c)) append_utf8(out, c);
    });
  };
}

Normalizer read_strip_normalizer(const JsonField& field) {
  field.expect_only({"type", "strip_left", "strip_right"});
  const bool left = field.boolean_or("strip_left", true);
  const bool right = field.boolean_or("strip_right", true);
  return [left, right](std::string& text) {
    size_t start = 0;
    size_t end = text.size();
    for (size_t at = 0; left && at < text.size(); start = at) {
      if (!is_white_space(next_char(text, at))) break;
    }
    for (size_t at = end; right && at > start; end = at) {
      if (!is_white_space(previous_char(text, at))) break;
    }
    text = text.substr(start, end - start);
  };
}

Normalizer read_prepend(const JsonField& field) {
  field.expect_only({"type", "prepend"});
  return [prefix = field.at("prepend").string()](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  };
}

Normalizer read_replace_normalizer(const JsonField& field) {
  field.expect_only({"type", "pattern", "content"});
  return [pattern = Regex::of_field(field.at("pattern")), content = field.at("content").string()](std::string& text) {
    std::string out;
    pattern.cover(text, [&](size_t start, size_t end, bool is_match) {
      if (is_match) {
        out += content;
      } else {
        out.append(text, start, end - start);
      }
    });
    text = std::move(out);
  };
}

Normalizer read_byte_level_normalizer(const JsonField& field) {
  field.expect_only({"type"});
  return [](std::string& text) { text = to_alphabet(text); };
}

bool is_chinese(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return c >= kBlocks[0].first &&
         std::any_of(std::begin(kBlocks), std::end(kBlocks), [c](auto b) { return c >= b.first && c <= b.second; });
}

Normalizer read_bert_normalizer(const JsonField& field) {
  field.expect_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool cleans = field.boolean_or("clean_text", true);
  const bool spaces_chinese = field.boolean_or("handle_chinese_chars", true);
  const bool lowers = field.boolean_or("lowercase", true);
  const bool strips = field.boolean_or("strip_accents", lowers);
  const icu::Normalizer2& nfd = form<icu::Normalizer2::getNFDInstance>();
  return [=, &nfd](std::string& text) {
    if (cleans || spaces_chinese) {
      map_chars(text, [&](char32_t c, std::string& out) {
        const bool blank = c == '\t' || c == '\n' || c == '\r';
        if (cleans && (c == 0 || c == 0xFFFD || (!blank && is_other(c)))) return;
        if (cleans && is_white_space(c)) return out.push_back(' ');
        const bool spaced = spaces_chinese && is_chinese(c);
        if (spaced) out.push_back(' ');
        append_utf8(out, c);
        if (spaced) out.push_back(' ');
      });
    }
    if (strips) apply_form(nfd, text);
    if (strips || lowers) {
      map_chars(text, [&](char32_t c, std::string& out) {
        if (strips && is_nonspacing_mark(c)) return;
        lowers ? append_lowercase(out, c) : append_utf8(out, c);
      });
    }
  };
}

// Returns the positions at which the grapheme clusters of `text` end.
std::vector<size_t> grapheme_ends(const std::string& text) {
  std::vector<size_t> ends;
  if (is_ascii(text)) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') ends.push_back(i + 1);
    }
    return ends;
  }
  UErrorCode status = U_ZERO_ERROR;
  thread_local const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  internal_check(U_SUCCESS(status), "ICU has no grapheme rules: {}", u_errorName(status));
  UText* whole = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status);
  breaks->setText(whole, status);
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) ends.push_back(end);
  utext_close(whole);
  return ends;
}

// If the map has a replacement for the start of a short grapheme cluster, the replacement stands for the whole cluster.
// Otherwise each character is replaced separately. Hugging Face's library does this too, but SentencePiece itself does
// not.
Normalizer read_precompiled(const JsonField& field) {
  field.expect_only({"type", "precompiled_charsmap"});
  constexpr size_t kLongCluster = 6;
  const JsonField source = field.at("precompiled_charsmap");
  std::string bytes;
  if (!decode_base64(source.string(), bytes)) source.fail("is not base64");
  const auto map = std::make_shared<const Charsmap>(bytes, source.where());
  return [map](std::string& text) {
    std::string out;
    size_t start = 0;
    for (size_t end : grapheme_ends(text)) {
      const std::string_view cluster(text.data() + start, end - start);
      start = end;
      if (cluster.size() < kLongCluster) {
        if (const Charsmap::Match match = map->find_shortest(cluster); match.length > 0) {
          out += match.replacement;
          continue;
        }
      }
      for (size_t at = 0; at < cluster.size();) {
        const size_t from = at;
        next_char(cluster, at);
        const std::string_view character = cluster.substr(from, at - from);
        const Charsmap::Match match = map->find_shortest(character);
        out += match.length > 0 ? match.replacement : character;
      }
    }
    text = std::move(out);
  };
}

Normalizer read_nmt(const JsonField& field) {
  field.expect_only({"type"});
  return [](std::string& text) {
    map_chars(text, [](char32_t c, std::string& out) {
      const bool control =
          (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      if (control) return;
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      append_utf8(out, space ? U' ' : c);
    });
  };
}

Normalizer read_sequence_normalizer(const JsonField& field) {
  field.expect_only({"type", "normalizers"});
  std::vector<Normalizer> steps;
  for (const JsonField& step : field.at("normalizers").elements()) steps.push_back(read_normalizer(step));
  return [steps](std::string& text) {
    for (const Normalizer& step : steps) step(text);
  };
}

using ReadNormalizer = Normalizer (*)(const JsonField&);

const std::map<std::string, ReadNormalizer>& normalizer_readers() {
  static const std::map<std::string, ReadNormalizer> readers = {
      {"BertNormalizer", read_bert_normalizer},
      {"ByteLevel", read_byte_level_normalizer},
      {"Lowercase", read_lowercase},
      {"NFC", read_form<icu::Normalizer2::getNFCInstance>},
      {"NFD", read_form<icu::Normalizer2::getNFDInstance>},
      {"NFKC", read_form<icu::Normalizer2::getNFKCInstance>},
      {"NFKD", read_form<icu::Normalizer2::getNFKDInstance>},
      {"Nmt", read_nmt},
      {"Precompiled", read_precompiled},
      {"Prepend", read_prepend},
      {"Replace", read_replace_normalizer},
      {"Sequence", read_sequence_normalizer},
      {"Strip", read_strip_normalizer},
      {"StripAccents", read_strip_accents},
  };
  return readers;
}

}  // namespace

Normalizer read_normalizer(const JsonField& field) {
  return read_by_type(field, "normalizer", normalizer_readers());
}

}  // namespace fettle
