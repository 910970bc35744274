// Declares the reader of SentencePiece's files.
#pragma once

#include <sentencepiece.pb.h>

#include <filesystem>

namespace fettle {

// Throws UserError when the file is not a SentencePiece model, has no pieces, or has a piece that is not UTF-8.
sentencepiece::ModelProto read_sentencepiece_file(const std::filesystem::path& path);

}  // namespace fettle
