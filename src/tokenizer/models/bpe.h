// Defines Bpe: byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909), over characters or over bytes.
//
// A word starts as a list of its characters. Each step joins the neighbours whose merge has the lowest rank, the
// leftmost ones first, until no merge applies.
#pragma once

#include <array>

#include "tokenizer/models/model.h"

namespace fettle {

// Finds merges by pair. Uses an open-addressing table, because every step of every word looks up pairs.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = UINT32_MAX;  // UINT32_MAX: no merge
    int32_t id = 0;
  };

  explicit MergeTable(size_t count);
  // If a pair is added twice, the last merge counts.
  void add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Merge merge;
  };
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;
};

class Bpe : public TokenModel {
 public:
  // Reads a `model` of type BPE. Throws UserError for merges of tokens that are not in the vocabulary.
  static std::unique_ptr<Bpe> read(const JsonField& field);

  // The fields of the same names in tokenizer.json; unk_id is the id of `unk_token`.
  struct Options {
    std::optional<int32_t> unk_id;
    bool fuse_unk = false;
    bool byte_fallback = false;
    bool ignore_merges = false;
  };
  // Makes a model that joins two neighbours if they form a token together. If several tokens can be formed, the token
  // with the lowest rank is formed first. `ranks` has the rank of each id; tokens with a negative rank are never
  // formed.
  static std::unique_ptr<Bpe> of_ranks(Vocabulary vocabulary, std::span<const int64_t> ranks, const Options& options);

  // Makes the model take pieces of plain text instead of text in the byte alphabet. The ids stay the same, and encoding
  // is faster. Returns false and changes nothing when the vocabulary does not allow it.
  bool take_bytes();

  // Returns whether the ids stay the same when a text is cut before each run of the character `mark`. Returns false if
  // a token contains a different character directly before `mark`. Also returns false if the model works on bytes, has
  // ignore_merges, has a prefix or suffix, or lacks the token `mark`.
  bool may_cut_before(std::string_view mark) const;

 protected:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  Bpe(Vocabulary vocabulary, size_t merges);
  void read_merges(const JsonField& field);
  void index_characters();
  // Fills `symbols` with the ids of the word's characters or bytes, before any merge.
  void start_word(std::string_view word, std::vector<int32_t>& symbols) const;
  void start_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  int32_t character_id(char32_t character) const;  // -1 when there is none
  // The next two functions join the symbols in place.
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  MergeTable merges_;
  std::string prefix_;  // prefix of symbols that are not at the start of a word
  std::string suffix_;  // suffix of the symbol at the end of a word
  Options options_;
  bool takes_bytes_ = false;
  std::array<int32_t, 256> byte_ids_{};  // takes_bytes_: ids of the byte alphabet; byte_fallback: ids of <0x00>...
  std::vector<int32_t> character_ids_;   // ids of the characters below U+10000; -1 when there is none
  // Used if both ignore_merges and takes_bytes_ are true: the ids of whole words. The keys are bytes in word_texts_.
  std::unordered_map<std::string_view, int32_t> words_;
  std::vector<std::string> word_texts_;
};

}  // namespace fettle
