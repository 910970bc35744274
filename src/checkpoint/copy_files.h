// Defines copy_tokenizer_files, copy_model_files and copy_licence_files, which copy the small files of a model folder
// (model_files.h).
#pragma once

#include <filesystem>

namespace fettle {

// Copies the tokenizer's files (tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocabularies, chat
// templates, ...) from one model folder to another. copy_model_files also copies the other files of
// is_model_file and remote code: the *.py files that auto_map names, and the files that these import from the folder.
// Skips missing files. Throws UserError when a file cannot be read or written.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_model_files(const std::filesystem::path& from, const std::filesystem::path& to);
// Copies the files of is_licence_file.
void copy_licence_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fettle
