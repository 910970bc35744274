#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/pattern.h"
#include "tokenizer/text/newer_unicode.h"
#include "tokenizer/text/pattern.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackMost = 256 << 20;
constexpr uint32_t kHeapMostKib = 1 << 20;

// Returns the number of steps that one attempt to match may take. Hugging Face's engine allows 10 million steps. Long
// texts get more, because a good pattern may take a few steps for each byte.
uint32_t step_limit(size_t text_bytes) {
  constexpr size_t kSteps = 10'000'000, kStepsPerByte = 16;
  return static_cast<uint32_t>(std::min<size_t>(kSteps + kStepsPerByte * text_bytes, UINT32_MAX));
}

// The memory that a thread needs to match: the offsets that PCRE2 returns, its limits, and the stack of its JIT code.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);

  Workspace() {
    pcre2_jit_stack_assign(context, nullptr, stack);
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
  std::string where;  // the file and field that contain the pattern
  Variant ascii;      // has no code when the pattern cannot be translated for ASCII texts
  Variant usual;
  Variant all;

  ~Code() {
    for (const Variant* variant : {&ascii, &usual, &all}) pcre2_code_free(variant->code);
  }
};

Regex::Regex(std::string_view pattern, std::string_view where) {
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  code->where = where;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  std::string rest;  // the rest of the translated pattern, from the error on
  auto compile = [&](Texts texts, Variant& variant) {
    const std::optional<std::string> translated = translate_pattern(pattern, texts);
    if (!translated) return false;
    const uint32_t unicode = texts == Texts::kAscii ? 0 : PCRE2_UTF | PCRE2_UCP;
    PCRE2_SIZE offset = 0;
    variant.code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                 unicode | PCRE2_MULTILINE, &error, &offset, context);
    rest = translated->substr(std::min(offset, translated->size()), 20);
    variant.jit = variant.code != nullptr && pcre2_jit_compile(variant.code, PCRE2_JIT_COMPLETE) == 0;
    return variant.code != nullptr;
  };
  compile(Texts::kAscii, code->ascii);
  const bool compiled = compile(Texts::kUsual, code->usual) && compile(Texts::kAll, code->all);
  pcre2_compile_context_free(context);
  if (!compiled) {
    throw UserError("{}: the pattern '{}' is not valid or not supported: {} (at '{}')", where, pattern,
                    pcre2_message(error), rest);
  }
  code_ = std::move(code);
}

const Regex::Variant& Regex::variant_for(std::string_view text) const {
  // In UTF-8, all characters of kNewerRanges start with this byte or a larger one.
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
  pcre2_set_match_limit(workspace.context, step_limit(text.size()));
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
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT) {
      throw UserError(
          "{}: the pattern '{}' needs more than {} to match a text of {} bytes; rewrite it so that no part can match "
          "the same text in many ways: a repetition within a repetition, as in (a+)+, is the usual cause",
          code_->where, code_->pattern,
          found == PCRE2_ERROR_MATCHLIMIT ? fmt::format("{} steps", step_limit(text.size())) : "1 GiB of memory",
          text.size());
    }
    if (found < 0) {
      throw UserError("{}: the pattern '{}' failed on a text of {} bytes: {}; rewrite the pattern, or shorten the text",
                      code_->where, code_->pattern, text.size(), pcre2_message(found));
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
