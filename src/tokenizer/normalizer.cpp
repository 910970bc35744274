#include "tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <map>

#include "tokenizer/by_type.h"
#include "tokenizer/regex.h"
#include "tokenizer/text.h"

namespace fettle {
namespace {

// Calls each(c, out) for every character, which appends to `out` what is to stand in its place.
template <typename Each>
void map_chars(std::string& text, Each each) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) each(next_char(text, at), out);
  text = std::move(out);
}

// The reference normalizes by Unicode 9: later characters stay as they are and part the text.
const icu::UnicodeSet& normalized_characters() {
  static const icu::UnicodeSet* const set = [] {
    UErrorCode status = U_ZERO_ERROR;
    auto* made = new icu::UnicodeSet(UNICODE_STRING_SIMPLE("[:Age=9.0:]"), status);
    internal_check(U_SUCCESS(status), "ICU has no character ages: {}", u_errorName(status));
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
Normalizer read_form(const JsonField&) {
  return [&form = form<form_of>()](std::string& text) { apply_form(form, text); };
}

Normalizer read_lowercase(const JsonField&) {
  return [](std::string& text) { map_chars(text, [](char32_t c, std::string& out) { append_lowercase(out, c); }); };
}

Normalizer read_strip_accents(const JsonField&) {
  return [](std::string& text) {
    map_chars(text, [](char32_t c, std::string& out) {
      if (!is_mark(c)) append_utf8(out, c);
    });
  };
}

Normalizer read_strip(const JsonField& field) {
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
  return [prefix = field.at("prepend").string()](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  };
}

Normalizer read_replace(const JsonField& field) {
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

Normalizer read_byte_level(const JsonField&) {
  return [](std::string& text) { text = to_alphabet(text); };
}

Normalizer read_sequence(const JsonField& field) {
  std::vector<Normalizer> steps;
  for (const JsonField& step : field.at("normalizers").elements()) steps.push_back(read_normalizer(step));
  return [steps](std::string& text) {
    for (const Normalizer& step : steps) step(text);
  };
}

using Reader = Normalizer (*)(const JsonField&);

const std::map<std::string, Reader>& readers() {
  static const std::map<std::string, Reader> readers = {
      {"ByteLevel", read_byte_level},
      {"Lowercase", read_lowercase},
      {"NFC", read_form<icu::Normalizer2::getNFCInstance>},
      {"NFD", read_form<icu::Normalizer2::getNFDInstance>},
      {"NFKC", read_form<icu::Normalizer2::getNFKCInstance>},
      {"NFKD", read_form<icu::Normalizer2::getNFKDInstance>},
      {"Prepend", read_prepend},
      {"Replace", read_replace},
      {"Sequence", read_sequence},
      {"Strip", read_strip},
      {"StripAccents", read_strip_accents},
  };
  return readers;
}

}  // namespace

Normalizer read_normalizer(const JsonField& field) {
  return read_by_type(field, "normalizer", readers());
}

}  // namespace fettle
