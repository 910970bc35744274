#include <algorithm>
#include <charconv>

#include "base/base64.h"
#include "base/files/mapped_file.h"
#include "tokenizer/models/bpe.h"
#include "tokenizer/models/word_patterns.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/text/intervals.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

struct RankFile {
  Vocabulary vocabulary;       // tokens are written in the byte alphabet
  std::vector<int64_t> ranks;  // the rank of each id; -1 for an id without a token
  std::string pattern;
  std::vector<std::string> special_tokens;  // the ids of these tokens start at `first_special`
  int64_t first_special = 0;
  bool composes = false;  // texts are normalized to NFC
  bool adds_bos = true;   // unless tokenizer_config.json says otherwise; no effect without a bos token
};

void add_rank(RankFile& file, const std::string& bytes, int64_t rank, int64_t id, const std::string& origin) {
  if (!file.vocabulary.add(to_alphabet(bytes), id)) {
    throw UserError("{}: rank {} is invalid or occurs twice", origin, rank);
  }
  if (static_cast<size_t>(id) >= file.ranks.size()) file.ranks.resize(id + 1, -1);
  file.ranks[id] = rank;
}

RankFile read_lines(const std::filesystem::path& path) {
  RankFile file;
  const std::string text = read_file(path);
  std::string bytes;
  size_t number = 0;
  for (size_t start = 0; start < text.size();) {
    ++number;
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line(text.data() + start, end - start);
    start = end + 1;
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    int64_t rank = -1;
    const auto parsed =
        std::from_chars(line.data() + std::min(space + 1, line.size()), line.data() + line.size(), rank);
    if (!decode_base64(line.substr(0, space), bytes) || bytes.empty() || parsed.ec != std::errc() || rank < 0) {
      throw UserError("{}:{}: found '{}', wanted base64 and a rank", path.string(), number, line.substr(0, 60));
    }
    add_rank(file, bytes, rank, rank, fmt::format("{}:{}", path.string(), number));
  }
  return file;
}

RankFile read_tekken(const std::filesystem::path& path) {
  const JsonField json = JsonField::read_file(path);
  const JsonField config = json.at("config");
  const int64_t specials = config.at("default_num_special_tokens").integer();
  const int64_t most = config.at("default_vocab_size").integer() - specials;
  RankFile file;
  file.pattern = config.at("pattern").string();
  std::string bytes;
  const JsonField vocab = json.at("vocab");
  if (!vocab.is_array()) vocab.fail("wanted a list");
  for (const nlohmann::json& entry : vocab.value()) {
    if (!entry.is_object() || !entry.contains("rank") || !entry["rank"].is_number_integer() ||
        !entry.contains("token_bytes") || !entry["token_bytes"].is_string() ||
        !decode_base64(entry["token_bytes"].get_ref<const std::string&>(), bytes)) {
      vocab.fail("found {}, wanted \"rank\" and \"token_bytes\" in base64", entry.dump().substr(0, 80));
    }
    const int64_t rank = entry["rank"].get<int64_t>();
    if (rank < most) add_rank(file, bytes, rank, rank + specials, vocab.where());
  }
  if (auto list = json.find("special_tokens")) {
    for (const JsonField& token : list->elements()) file.special_tokens.push_back(token.at("token_str").string());
  } else {
    // Files of version 3 do not list the special tokens.
    file.special_tokens = {"<unk>",
                           "<s>",
                           "</s>",
                           "[INST]",
                           "[/INST]",
                           "[AVAILABLE_TOOLS]",
                           "[/AVAILABLE_TOOLS]",
                           "[TOOL_RESULTS]",
                           "[/TOOL_RESULTS]",
                           "[TOOL_CALLS]",
                           "[IMG]",
                           "<pad>",
                           "[IMG_BREAK]",
                           "[IMG_END]",
                           "[PREFIX]",
                           "[MIDDLE]",
                           "[SUFFIX]"};
  }
  for (auto i = static_cast<int64_t>(file.special_tokens.size()); i < specials; ++i) {
    file.special_tokens.push_back(fmt::format("<SPECIAL_{}>", i));
  }
  return file;
}

std::vector<std::string> numbered(std::string_view kind, int from, int to) {
  std::vector<std::string> tokens;
  for (int i = from; i < to; ++i) tokens.push_back(fmt::format("<|{}reserved_special_token_{}|>", kind, i));
  return tokens;
}

std::vector<std::string> joined(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<std::string> llama3_tokens() {
  return joined({{"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
                  "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>",
                  "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
                 numbered("", 3, 248)});
}

std::vector<std::string> llama4_tokens() {
  return joined({{"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                  "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"},
                 numbered("text_post_train_", 0, 6),
                 {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"},
                 numbered("text_post_train_", 8, 69),
                 {"<|image_start|>", "<|image_end|>"},
                 numbered("vision_", 0, 2),
                 {"<|tile_x_separator|>", "<|tile_y_separator|>"},
                 numbered("vision_", 2, 6),
                 {"<|image|>"},
                 numbered("vision_", 6, 7),
                 {"<|patch|>"},
                 numbered("vision_", 7, 1048),
                 numbered("reasoning_", 0, 8),
                 {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"},
                 numbered("", 0, 899)});
}

std::vector<std::string> qwen_tokens() {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) tokens.push_back(fmt::format("<|extra_{}|>", i));
  return tokens;
}

constexpr int64_t kKimiRanks = 163584;

// tokenizer_config.json has the names of the tokens that Kimi's models use.
std::vector<std::string> kimi_tokens() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.push_back(fmt::format("<|reserved_token_{}|>", kKimiRanks + i));
  return tokens;
}

// Settings that are missing in widely used files, because the models' own programs contain them.
struct KnownFile {
  std::string_view name;
  int64_t ranks;
  std::string_view pattern;
  bool composes;  // texts are normalized to NFC
  bool adds_bos;
  std::vector<std::string> (*special_tokens)();
};
constexpr KnownFile kKnownFiles[] = {{"Llama 3", 128000, kLlama3Words, false, true, llama3_tokens},
                                     {"Qwen", 151643, kQwen2Words, true, true, qwen_tokens},
                                     {"Llama 4", 200000, kGpt4oWords, false, true, llama4_tokens},
                                     {"Kimi", kKimiRanks, kKimiWords, false, false, kimi_tokens}};

void add_known(RankFile& file, const TokenizerConfig& config, const std::string& origin) {
  file.first_special = file.vocabulary.size();
  file.pattern = config.pattern;
  std::string names;
  for (const KnownFile& known : kKnownFiles) {
    names += fmt::format("{}{} ({} ranks)", names.empty() ? "" : ", ", known.name, known.ranks);
    if (known.ranks != file.vocabulary.size()) continue;
    if (file.pattern.empty()) file.pattern = known.pattern;
    file.composes = known.composes;
    file.adds_bos = known.adds_bos;
    file.special_tokens = known.special_tokens();
    return;
  }
  if (!file.pattern.empty()) return;
  throw UserError(
      "{}: Fettle does not know how this tokenizer of {} ranks cuts a text into words; it knows {}. Use the model's "
      "tokenizer.json, or set the regular expression as \"pat_str\" in tokenizer_config.json",
      origin, file.vocabulary.size(), names);
}

void name_tokens(const RankFile& file, TokenizerConfig& config) {
  auto name = [&](std::string& token, std::string_view known) {
    const auto& all = file.special_tokens;
    if (token.empty() && std::find(all.begin(), all.end(), known) != all.end()) token = known;
  };
  name(config.bos_token, "<|begin_of_text|>");
  name(config.bos_token, "<s>");
  name(config.eos_token, "<|end_of_text|>");
  name(config.eos_token, "<|endoftext|>");
  name(config.eos_token, "</s>");
  name(config.pad_token, "<|finetune_right_pad_id|>");
  name(config.pad_token, "<|finetune_right_pad|>");
  name(config.pad_token, "<|endoftext|>");
  name(config.pad_token, "<pad>");
  if (!config.add_bos_token) config.add_bos_token = file.adds_bos && !config.bos_token.empty();
}

RankFile read_rank_file(const std::filesystem::path& path, const TokenizerConfig& config) {
  if (path.extension() == ".json") return read_tekken(path);
  RankFile file = read_lines(path);
  add_known(file, config, path.string());
  return file;
}

// Returns the special tokens whose ids tokenizer_config.json does not give to other tokens.
std::vector<AddedToken> own_tokens(const RankFile& file, const TokenizerConfig& config) {
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < file.special_tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(file.first_special + static_cast<int64_t>(i));
    if (std::ranges::find(config.added_tokens, id, &AddedToken::id) == config.added_tokens.end())
      tokens.push_back({id, file.special_tokens[i], false, false, false, false, true});
  }
  return tokens;
}

nlohmann::json word_split(const RankFile& file) {
  using nlohmann::json;
  const std::string pattern = regroup_intervals(file.pattern, IntervalPlus::kPossessive);
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

// Returns the parts that a token of this rank has before the last merge: two if merges make the token.
std::vector<std::string> parts_of_token(const RankFile& file, const std::string& token, int64_t rank) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < token.size();) {
    const size_t from = at;
    next_char(token, at);
    parts.push_back(token.substr(from, at - from));
  }
  while (true) {
    size_t best = 0;
    int64_t least = rank;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto id = file.vocabulary.id(parts[i] + parts[i + 1]);
          id && file.ranks[*id] >= 0 && file.ranks[*id] < least)
        best = i, least = file.ranks[*id];
    if (least == rank) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

nlohmann::json tokenizer_json_of_ranks(const std::filesystem::path& path, TokenizerConfig& config) {
  using nlohmann::json;
  const RankFile file = read_rank_file(path, config);
  std::vector<std::pair<int64_t, int32_t>> by_rank;
  for (size_t id = 0; id < file.ranks.size(); ++id)
    if (file.ranks[id] >= 0) by_rank.emplace_back(file.ranks[id], static_cast<int32_t>(id));
  std::ranges::sort(by_rank);
  json vocabulary = json::object(), merges = json::array(), added = json::array();
  bool reaches_all = true;  // merges make every token
  for (const auto& [rank, id] : by_rank) {
    const std::string& token = *file.vocabulary.token(id);
    const std::vector<std::string> parts = parts_of_token(file, token, rank);
    vocabulary[token] = id;
    if (parts.size() == 2) merges.push_back({parts[0], parts[1]});
    reaches_all &= parts.size() <= 2;
  }
  for (const AddedToken& token : own_tokens(file, config))
    added.push_back({{"id", token.id}, {"content", token.content}, {"special", true}});
  name_tokens(file, config);
  return {{"model", {{"type", "BPE"}, {"ignore_merges", !reaches_all}, {"vocab", vocabulary}, {"merges", merges}}},
          {"normalizer", file.composes ? json{{"type", "NFC"}} : json()},
          {"pre_tokenizer", word_split(file)},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens", added}};
}

bool is_rank_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  const std::string_view line(text.data(), std::min<size_t>(text.find('\n'), std::min<size_t>(text.size(), 200)));
  const size_t space = line.find(' ');
  std::string bytes;
  return space != std::string_view::npos && space > 0 && decode_base64(line.substr(0, space), bytes) &&
         line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos;
}

Pipeline read_ranks(const std::filesystem::path& path, TokenizerConfig& config) {
  RankFile file = read_rank_file(path, config);
  Pipeline pipeline;
  for (AddedToken& token : own_tokens(file, config)) pipeline.added.add(std::move(token));
  std::unique_ptr<Bpe> bpe = Bpe::of_ranks(std::move(file.vocabulary), file.ranks, {{}, false, false, true});
  if (!bpe->take_bytes()) throw UserError("{}: some single bytes have no rank; fetch the file again", path.string());
  pipeline.model = std::move(bpe);
  pipeline.pre_tokenizer = read_pre_tokenizer(JsonField::of_value(word_split(file), path.string()));
  if (file.composes) pipeline.normalizer = read_normalizer(JsonField::of_value({{"type", "NFC"}}, path.string()));
  pipeline.decoder = read_decoder(JsonField::of_value({{"type", "ByteLevel"}}, path.string()));
  name_tokens(file, config);
  return pipeline;
}

}  // namespace fettle
