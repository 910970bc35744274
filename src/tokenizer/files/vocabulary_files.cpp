#include "tokenizer/files/vocabulary_files.h"

#include <array>
#include <sstream>

#include "base/base64.h"
#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/files/class_tokens.h"
#include "tokenizer/models/sentencepiece_file.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kWords = "vocab.txt";
constexpr const char* kTokens = "vocab.json";
constexpr const char* kMerges = "merges.txt";
constexpr const char* kPieces = "sentencepiece.bpe.model";

// Returns the lines of a file, without white space at their ends.
std::vector<std::string> trimmed_lines(const fs::path& file) {
  const std::string text = read_file(file);
  if (!is_valid_utf8(text)) throw UserError("{}: is not UTF-8; fetch the file again", file.string());
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    size_t end = line.size();
    for (size_t at = end; at > 0 && is_white_space(previous_char(line, at));) end = at;
    line.resize(end);
    lines.push_back(std::move(line));
  }
  return lines;
}

// Reads the four kinds of files into the parts of a tokenizer.json.
class Reader {
 public:
  Reader(const fs::path& model_dir, TokenizerConfig& config) : folder_(model_dir), config_(config) {}

  VocabularyFiles bert() {
    name_tokens("BertTokenizer");
    Json vocab = Json::object();
    int64_t id = 0;
    for (const std::string& word : trimmed_lines(read(kWords))) vocab[word] = id++;
    Json normalizer{{"type", "BertNormalizer"}};
    normalizer.update(config_.bert_normalizer);
    set_model({{"type", "WordPiece"},
               {"unk_token", config_.unk_token},
               {"continuing_subword_prefix", "##"},
               {"max_input_chars_per_word", 100},
               {"vocab", vocab}},
              vocab);
    out_.tokenizer["normalizer"] = normalizer;
    out_.tokenizer["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
    out_.tokenizer["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    put_around("BertProcessing", config_.cls_token, config_.sep_token);
    return std::move(out_);
  }

  VocabularyFiles roberta() {
    name_tokens("RobertaTokenizer");
    read_byte_level();
    put_around("RobertaProcessing", config_.cls_token, config_.sep_token);
    return std::move(out_);
  }

  VocabularyFiles gpt2() {
    name_tokens("GPT2Tokenizer");
    read_byte_level();
    return std::move(out_);
  }

  // The ids are those of fairseq: four special tokens, the pieces after <unk>, <s> and </s>, then <mask>.
  VocabularyFiles xlm_roberta() {
    name_tokens("XLMRobertaTokenizer");
    const fs::path file = read(kPieces);
    const sentencepiece::ModelProto proto = read_sentencepiece_file(file);
    const std::array first = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; ++i)
      if (proto.pieces_size() <= i || proto.pieces(i).piece() != first[i])
        throw UserError("{}: piece {} is not {}, as it is in the files of XLM-RoBERTa; fetch the file again",
                        file.string(), i, first[i]);
    Json list = Json::array(), ids = Json::object();
    const auto add = [&](const std::string& piece, float score) {
      ids[piece] = list.size();
      list.push_back({piece, score});
    };
    for (const std::string& token : {config_.bos_token, config_.pad_token, config_.eos_token, config_.unk_token})
      add(token, 0);
    for (int i = 3; i < proto.pieces_size(); ++i) add(proto.pieces(i).piece(), proto.pieces(i).score());
    add(config_.mask_token, 0);
    set_model({{"type", "Unigram"}, {"unk_id", 3}, {"byte_fallback", false}, {"vocab", list}}, ids);
    const std::string& charsmap = proto.normalizer_spec().precompiled_charsmap();
    if (!charsmap.empty())
      out_.tokenizer["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(charsmap)}};
    const char* scheme = config_.add_prefix_space.value_or(true) ? "always" : "never";
    const Json spaces{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", true}};
    out_.tokenizer["pre_tokenizer"] = {{"type", "Sequence"},
                                       {"pretokenizers", {{{"type", "WhitespaceSplit"}}, spaces}}};
    out_.tokenizer["decoder"] = spaces;
    put_around("RobertaProcessing", config_.bos_token, config_.eos_token);
    return std::move(out_);
  }

 private:
  void name_tokens(const char* class_name) {
    name_class_tokens(
        class_name, [](const std::string&) { return true; }, config_);
    for (const auto& [key, token] : TokenizerConfig::names()) special_.push_back(config_.*token);
  }

  fs::path read(const char* name) { return out_.files.emplace_back(folder_ / name); }

  void read_byte_level() {
    const Json vocab = read_json_file(read(kTokens));
    Json merges = Json::array();
    for (const std::string& line : trimmed_lines(read(kMerges)))
      if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
    set_model({{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}, vocab);
    const bool space = config_.add_prefix_space.value_or(false);
    out_.tokenizer["pre_tokenizer"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", space}, {"trim_offsets", true}, {"use_regex", true}};
    out_.tokenizer["decoder"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", space}, {"trim_offsets", true}, {"use_regex", true}};
  }

  // Sets the model, and adds the special tokens that `vocab` has.
  void set_model(const Json& model, const Json& vocab) {
    vocab_ = vocab;
    Json added = Json::array();
    for (const std::string& token : special_)
      if (vocab.contains(token) && vocab[token].is_number_integer()) {
        added.push_back(AddedTokens::entry(token, true, false));
        added.back()["id"] = vocab[token];
      }
    out_.tokenizer["model"] = model;
    out_.tokenizer["added_tokens"] = added;
  }

  void put_around(const char* type, const std::string& before, const std::string& after) {
    for (const std::string& token : {before, after})
      if (!vocab_.contains(token))
        throw UserError("{}: the token '{}', which goes around each text, is missing", out_.files[0].string(), token);
    out_.tokenizer["post_processor"] = {
        {"type", type}, {"cls", {before, vocab_[before]}}, {"sep", {after, vocab_[after]}}};
  }

  const fs::path& folder_;
  TokenizerConfig& config_;
  std::vector<std::string> special_;
  Json vocab_;
  VocabularyFiles out_;
};

// Returns the name of a vocabulary file in the folder; null when there is none.
const char* vocabulary_file(const fs::path& model_dir) {
  const auto has = [&](const char* name) { return fs::is_regular_file(model_dir / name); };
  return has(kWords) ? kWords : has(kTokens) && has(kMerges) ? kMerges : has(kPieces) ? kPieces : nullptr;
}

}  // namespace

bool has_vocabulary_files(const fs::path& model_dir) {
  return vocabulary_file(model_dir) != nullptr;
}

std::optional<VocabularyFiles> read_vocabulary_files(const fs::path& model_dir, TokenizerConfig& config) {
  const auto has = [&](const char* name) { return fs::is_regular_file(model_dir / name); };
  const bool bytes = has(kTokens) && has(kMerges);
  const char* found = vocabulary_file(model_dir);
  if (found == nullptr) return std::nullopt;
  const std::string name = tokenizer_class_of(model_dir, config);
  Reader reader(model_dir, config);
  if (name == "BertTokenizer" && has(kWords)) return reader.bert();
  if (name == "RobertaTokenizer" && bytes) return reader.roberta();
  if (name == "GPT2Tokenizer" && bytes) return reader.gpt2();
  if (name == "XLMRobertaTokenizer" && has(kPieces)) return reader.xlm_roberta();
  throw UserError(
      "{}: Fettle does not read this file for the tokenizer class '{}'; write a tokenizer.json with Transformers: "
      "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)",
      (model_dir / found).string(), name.empty() ? "unknown" : name);
}

}  // namespace fettle
