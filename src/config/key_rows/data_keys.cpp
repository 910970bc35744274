#include "config/keys.h"

namespace fettle {

std::vector<Key> data_keys() {
  return {
      {.name = "dataset",
       .group = Group::kData,
       .member = &Recipe::dataset,
       .help =
           "One or more data sets. Each is a file, a folder, a pattern such as `rows/*.jsonl`, the name of an entry in "
           "dataset_info.json, such an entry itself, or a name on the hub.",
       .aliases = {"local_dataset", "datasets", "train_dataset", "dataset_name", "dataset.source"}},
      {.name = "eval_dataset",
       .group = Group::kData,
       .member = &Recipe::eval_dataset,
       .help = "Held-out data sets, named as in `dataset`.",
       .aliases = {"val_dataset", "test_datasets", "valid_dataset"}},
      {.name = "dataset_dir",
       .group = Group::kData,
       .member = &Recipe::dataset_dir,
       .help =
           "Folder that holds dataset_info.json and the files listed there. REMOTE:ORG/NAME means a data set on the "
           "hub instead of a folder. ONLINE means that all names in `dataset` are names on the hub."},
      {.name = "cutoff_len",
       .group = Group::kData,
       .member = &Recipe::cutoff_len,
       .help = "Longest sequence in tokens. With packing, the length of every sequence.",
       .aliases = {"sequence_len", "max_length", "max_seq_length", "max_seq_len", "max_target_length",
                   "tokenizer.max_seq_len"},
       .min = 2},
      {.name = "overlength",
       .group = Group::kData,
       .member = &Recipe::overlength,
       .help = "What to do with rows longer than cutoff_len: cut them, drop them, or stop with an error.",
       .aliases = {"excess_length_strategy"},
       .values = {"cut", "drop", "error"},
       .spellings = {{"truncate", "cut"}, {"raise", "error"}}},
      {.name = "packing",
       .group = Group::kData,
       .member = &Recipe::packing,
       .help = "Put several rows into one sequence; they do not attend to each other. On by default with `stage: pt`.",
       .aliases = {"sample_packing", "dataset.packed"},
       .by_stage = true},
      {.name = "plain_text_rows",
       .group = Group::kData,
       .member = &Recipe::plain_text_rows,
       .help = "Rows whose prompt and reply are texts, in the columns prompt and completion, or prompt, chosen and "
               "rejected, are trained as they are: the prompt, the reply and eos_token, without the chat template. TRL "
               "does this."},
      {.name = "self_name",
       .group = Group::kData,
       .member = &Recipe::self_name,
       .help = "Replaces {{NAME}} in the rows: one text, or two of which the first is for rows with the tag zh.",
       .aliases = {"model_name"},
       .one_or_two = true},
      {.name = "self_author",
       .group = Group::kData,
       .member = &Recipe::self_author,
       .help = "Replaces {{AUTHOR}} in the rows, as self_name replaces {{NAME}}.",
       .aliases = {"model_author"},
       .one_or_two = true},
      {.name = "sample_by",
       .group = Group::kData,
       .member = &Recipe::sample_by,
       .help =
           "What becomes a row of a text file (.txt, .md): a line that is not blank, a paragraph (the lines between "
           "blank lines), or the whole file. An entry of dataset_info.json may have this key too.",
       .values = {"line", "paragraph", "document"}},
      {.name = "train_on_prompt",
       .group = Group::kData,
       .member = &Recipe::train_on_prompt,
       .help = "Train on the prompts too, not only on the replies.",
       .aliases = {"train_on_inputs", "train_on_input", "dataset.train_on_input"}},
      {.name = "mask_history",
       .group = Group::kData,
       .member = &Recipe::mask_history,
       .help = "Train only on the last reply of a conversation."},
      {.name = "val_size",
       .group = Group::kData,
       .member = &Recipe::val_size,
       .help = "Rows to hold out for evaluation. A value below 1 is a share of all rows. A value from 1 on is a number "
               "of rows.",
       .aliases = {"split_dataset_ratio", "val_set_size", "test_split_size"},
       .min = 0,
       .share_or_count = true},
      {.name = "max_samples",
       .group = Group::kData,
       .member = &Recipe::max_samples,
       .help = "Largest number of rows to take from each data set. The first rows are taken.",
       .min = 1},
      {.name = "remove_duplicates",
       .group = Group::kData,
       .member = &Recipe::remove_duplicates,
       .help = "Leave out rows that have the same tokens and labels as an earlier row of any data set. The training "
               "rows and eval_dataset are compared separately.",
       .aliases = {"dataset_exact_deduplication"}},
      {.name = "disable_shuffling",
       .group = Group::kData,
       .member = &Recipe::disable_shuffling,
       .help = "Keep the rows in the order of the files."},
      {.name = "on_bad_row",
       .group = Group::kData,
       .member = &Recipe::on_bad_row,
       .help = "Stop at a row that cannot be read, or skip it and count it.",
       .values = {"error", "skip"}},
      {.name = "skip_rows",
       .group = Group::kData,
       .member = &Recipe::skip_rows,
       .help = "Rows that training leaves out, each written as in messages (`rows.jsonl:17`). Padding takes their "
               "positions, so the other rows keep their order and a run can be resumed after this key has changed."},
      {.name = "mix_strategy",
       .group = Group::kData,
       .member = &Recipe::mix_strategy,
       .help =
           "How several data sets are combined: one after another (concat), or in turns until the first one "
           "(interleave_under) or the last one is used up. Until then, shorter ones start again (interleave_over) or "
           "are left out (interleave_once).",
       .values = {"concat", "interleave_under", "interleave_over", "interleave_once"}},
      {.name = "interleave_probs",
       .group = Group::kData,
       .member = &Recipe::interleave_probs,
       .help = "Probability with which the next row comes from each data set, such as `0.7,0.3`. If empty, the data "
               "sets take turns in order."},
      {.name = "data_cache",
       .group = Group::kData,
       .member = &Recipe::data_cache,
       .help = "Folder for tokenised rows. They are reused until the files, the tokenizer or a key that affects them "
               "changes. If empty, the default folder; off: keep them only during the run.",
       .aliases = {"tokenized_path", "dataset_prepared_path"}},
  };
}

}  // namespace fettle
