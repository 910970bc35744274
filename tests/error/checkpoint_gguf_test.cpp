// Tests that broken or hostile GGUF files are refused with a reason and a remedy.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/files/mapped_file.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/gguf_folder.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/repository.h"
#include "environment.h"
#include "gguf_reference.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string text(const std::string& value) {
  return raw<uint64_t>(value.size()) + value;
}

std::string key(const std::string& name, uint32_t kind, const std::string& value) {
  return text(name) + raw(kind) + value;
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  std::string out = text(name) + raw(static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) out += raw(dim);
  return out + raw(type) + raw(offset);
}

// Returns the bytes of a GGUF file with these keys and tensors, and `data` bytes of data.
std::string file(const std::vector<std::string>& keys, const std::vector<std::string>& tensors, size_t data = 64) {
  std::string out = "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(tensors.size()) + raw<uint64_t>(keys.size());
  for (const std::string& each : keys) out += each;
  for (const std::string& each : tensors) out += each;
  out.resize((out.size() + 31) / 32 * 32);
  return out + std::string(data, '\1');
}

std::string header_error(const std::string& bytes) {
  return user_error([&] { read_gguf_header(std::as_bytes(std::span(bytes)), "m.gguf"); });
}

const std::string kF32 = tensor("a", {4, 2}, 0, 0);

TEST(BadGguf, IsRefusedWithAReason) {
  EXPECT_EQ(header_error(file({}, {kF32})), "no error");
  EXPECT_THAT(header_error("GG"), HasSubstr("m.gguf: is not a GGUF file"));
  EXPECT_THAT(header_error("GGUF" + raw<uint32_t>(1)), HasSubstr("version 1 of GGUF; Fettle reads 2 and 3"));
  EXPECT_THAT(header_error("GGUF" + raw<uint32_t>(0x03000000)), HasSubstr("big-endian"));
  EXPECT_THAT(header_error(file({key("a", 99, "")}, {})), HasSubstr("unknown type 99"));
  EXPECT_THAT(header_error(file({key("a", 4, raw(7)), key("a", 4, raw(7))}, {})),
              HasSubstr("the key 'a' occurs twice"));
  EXPECT_THAT(header_error(file({key("a", 9, raw(9) + raw<uint64_t>(1))}, {})), HasSubstr("list of lists"));
  EXPECT_THAT(header_error(file({key("a", 9, raw(0) + raw<uint64_t>(1ull << 60))}, {})),
              HasSubstr("elements, but the file ends"));
  EXPECT_THAT(header_error("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(1) + text("a")),
              HasSubstr("cut off?"));
  EXPECT_THAT(header_error("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(1) + raw<uint64_t>(~0ull)),
              AllOf(HasSubstr("18446744073709551615 bytes"), HasSubstr("cut off?")));
  EXPECT_THAT(header_error(file({key("general.alignment", 4, raw(24))}, {kF32})), HasSubstr("wanted a power of two"));
}

TEST(BadGguf, TensorsMustLieInTheFile) {
  EXPECT_THAT(header_error(file({}, {kF32, kF32})), HasSubstr("the tensor 'a' occurs twice"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {}, 0, 0)})), HasSubstr("has 0 dims"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {0}, 0, 0)})), HasSubstr("a dim of size 0"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {1ull << 40, 1ull << 40}, 0, 0)})), HasSubstr("its size overflows"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {1ull << 61}, 0, 0)})), HasSubstr("its size overflows"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {~0ull}, 0, 0)})), HasSubstr("its size overflows"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {33}, 8, 0)})),
              HasSubstr("rows of 33 elements are not whole blocks of 32"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {4}, 0, 8)})), HasSubstr("not aligned to 32 bytes"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {4}, 0, 64)})),
              HasSubstr("has 16 bytes at offset 64, but the file has 64"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {4}, 0, ~0ull)})), HasSubstr("offset 18446744073709551615 overflows"));
  EXPECT_THAT(header_error(file({}, {tensor("a", {16}, 0, 0), tensor("b", {4}, 0, 32)})),
              HasSubstr("'a' and 'b' overlap"));
}

TEST(BadGguf, TypesThatFettleDoesNotReadAreNamed) {
  EXPECT_THAT(header_error(file({}, {tensor("a", {4}, 77, 0)})),
              AllOf(HasSubstr("m.gguf: tensor 'a' has a type with the number 77, which this version of Fettle does not "
                              "know; take a file of type F32, F16, "),
                    Not(HasSubstr("damaged"))));
  const TempFolder folder;
  const std::vector<std::string> keys{key("general.architecture", 8, text("llama")),
                                      key("llama.attention.head_count", 4, raw(4))};
  for (const auto& [number, name] :
       {std::pair{31u, "Q4_0_4_4"}, {32u, "Q4_0_4_8"}, {33u, "Q4_0_8_8"}, {40u, "NVFP4"}, {41u, "Q1_0"}}) {
    write_text(folder / "x.gguf", file(keys, {tensor("token_embd.weight", {128}, number, 0)}, 96));
    EXPECT_THAT(user_error([&] { open_gguf(folder / "x.gguf"); }),
                HasSubstr(fmt::format("'token_embd.weight' has the type {}, which Fettle does not read", name)));
  }
}

TEST(BadGguf, APointerOfGitLfsIsNamed) {
  const TempFolder folder;
  write_text(folder / "x.gguf", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(user_error([&] { open_gguf(folder / "x.gguf"); }), HasSubstr("x.gguf: is a Git LFS pointer"));
}

TEST(BadGguf, EveryTruncationIsRefused) {
  const std::string whole = read_file(source_folder() / "tests/fuzz/corpus/gguf/llama");
  ASSERT_EQ(header_error(whole), "no error");
  for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 13)
    EXPECT_NE(header_error(whole.substr(0, size)), "no error") << size;
}

std::string folder_error(const std::string& bytes) {
  const TempFolder folder;
  write_text(folder / "m.gguf", bytes);
  return user_error([&] { ModelRepository::open(unpacked(folder / "m.gguf")); });
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string bytes = read_file(kGgufFiles / "models/llama.gguf");
  for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1))
    bytes.replace(at, from.size(), to);
  return bytes;
}

TEST(BadGguf, WhatFettleDoesNotReadIsNamed) {
  EXPECT_EQ(folder_error(replaced("", "")), "no error");
  EXPECT_THAT(folder_error(replaced("llama", "mamba")),
              AllOf(HasSubstr("does not read the architecture 'mamba' from GGUF"), HasSubstr("llama, ")));
  EXPECT_THAT(folder_error(replaced("blk.1.ffn_up", "blk.1.ffn_xp")),
              HasSubstr("the tensor 'blk.1.ffn_xp.weight' is unknown"));
  EXPECT_THAT(folder_error(replaced("gpt-2", "gpt-9")),
              HasSubstr("cuts texts into words by the method 'gpt-9' (tokenizer.ggml.pre)"));
  EXPECT_THAT(folder_error(replaced(text("gpt2"), text("ugm2"))), HasSubstr("its tokenizer is of the kind 'ugm2'"));
  EXPECT_THAT(folder_error(replaced("llama.block_count", "llama.block_xount")),
              HasSubstr("'llama.block_count' is missing"));
  EXPECT_THAT(folder_error(file({key("general.architecture", 8, text("llama"))}, {})),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(folder_error(file({}, {})), HasSubstr("no general.architecture"));
  const std::string q8 = tensor("output.weight", {64, 256}, 8, 32);
  EXPECT_THAT(folder_error(replaced(q8, tensor("output.weight", {64, 256}, 20, 32))),
              HasSubstr("IQ4_NL, which Fettle does not read"));
}

// llama.cpp warns about such a file, and cuts texts by expressions that fit no model.
TEST(BadGguf, TheMethodThatCutsTextsMustBeNamed) {
  const std::string tokens = raw(8) + raw<uint64_t>(1) + text("a");
  const std::vector<std::string> keys{key("general.architecture", 8, text("llama")),
                                      key("tokenizer.ggml.model", 8, text("gpt2")),
                                      key("tokenizer.ggml.tokens", 9, tokens)};
  EXPECT_THAT(folder_error(file(keys, {})),
              AllOf(HasSubstr("m.gguf: it does not say how its tokenizer cuts texts into words (tokenizer.ggml.pre is "
                              "missing)"),
                    HasSubstr("take a newer GGUF file of this model, or the model's own folder")));
  for (const auto& [name, shown] : {std::pair{"default", "'default'"}, {"", "missing"}}) {
    std::vector<std::string> named = keys;
    named.push_back(key("tokenizer.ggml.pre", 8, text(name)));
    EXPECT_THAT(folder_error(file(named, {})), HasSubstr(fmt::format("(tokenizer.ggml.pre is {})", shown)));
  }
}

TEST(GgufParts, AreRecognisedByTheirNames) {
  for (const char* name : {"x.gguf", "model-best-of-8.gguf", "x-00001-of-00002.gguf"})
    EXPECT_TRUE(is_gguf_model(name)) << name;
  for (const char* name : {"x-00002-of-00002.gguf", "mmproj-x.gguf", "x.bin"})
    EXPECT_FALSE(is_gguf_model(name)) << name;
}

TEST(BadGguf, SeveralFilesAreListed) {
  const TempFolder folder;
  for (const char* name : {"x-Q4_K.gguf", "x-Q8_0.gguf", "mmproj-x.gguf"}) write_text(folder / name, "");
  EXPECT_THAT(user_error([&] { find_gguf(folder.path()); }),
              HasSubstr("has 2 GGUF models: x-Q4_K.gguf, x-Q8_0.gguf; set model_name_or_path to one of these files"));
  std::filesystem::remove(folder / "x-Q4_K.gguf");
  EXPECT_EQ(find_gguf(folder.path()), folder / "x-Q8_0.gguf");
  write_text(folder / "model.safetensors", "");
  EXPECT_EQ(find_gguf(folder.path()), std::nullopt);
}

// In a hub's cache, the parts of a model are links. Each link points to a blob that is named by its checksum.
TEST(GgufParts, MayBeLinks) {
  const TempFolder folder;
  write_text(folder / "blobs/one",
             file({key("general.architecture", 8, text("llama")), key("llama.attention.head_count", 4, raw(4)),
                   key("split.count", 2, raw<uint16_t>(2))},
                  {tensor("token_embd.weight", {4, 2}, 0, 0)}));
  write_text(folder / "blobs/two", file({}, {tensor("output_norm.weight", {4}, 0, 0)}));
  std::filesystem::create_directory(folder / "snapshot");
  std::filesystem::create_symlink("../blobs/one", folder / "snapshot/x-00001-of-00002.gguf");
  std::filesystem::create_symlink("../blobs/two", folder / "snapshot/x-00002-of-00002.gguf");
  std::filesystem::create_symlink(folder / "snapshot/x-00001-of-00002.gguf", folder / "model.gguf");
  for (const char* name : {"snapshot/x-00001-of-00002.gguf", "model.gguf"}) {
    const std::vector<TensorFile> files = open_gguf(folder / name);
    ASSERT_EQ(files.size(), 2u) << name;
    EXPECT_EQ(files[1].entries().at(0).name, "model.norm.weight");
  }
}

// The list has one entry more than Fettle reads, and the model one expert more. Without these limits, a small file
// could make Fettle take GBs of memory.
TEST(BadGguf, HugeCountsAreRefused) {
  const std::string start = file({key("a", 9, raw(0) + raw<uint64_t>((1u << 24) + 1))}, {}, 0);
  EXPECT_THAT(header_error(start + std::string(1u << 25, '\0')), HasSubstr("Fettle reads lists of up to 16777216"));
  const TempFolder folder;
  const std::vector<std::string> keys{key("general.architecture", 8, text("qwen3moe")),
                                      key("qwen3moe.attention.head_count", 4, raw(4))};
  write_text(folder / "x.gguf", file(keys, {tensor("blk.0.ffn_up_exps.weight", {1, 1, 4097}, 0, 0)}, 4 * 4097));
  EXPECT_THAT(user_error([&] { open_gguf(folder / "x.gguf"); }),
              HasSubstr("has 4097 experts; Fettle reads up to 4096"));
}

TEST(BadGguf, KeysThatDoNotFitAreNamed) {
  const TempFolder folder;
  const auto error = [&](int heads) {
    write_text(folder / "x.gguf",
               file({key("general.architecture", 8, text("llama")), key("llama.attention.head_count", 4, raw(heads)),
                     key("llama.embedding_length", 4, raw(4))},
                    {tensor("blk.0.attn_q.weight", {4, 4}, 0, 0)}));
    return user_error([&] { open_gguf(folder / "x.gguf"); });
  };
  EXPECT_EQ(error(2), "no error");
  EXPECT_THAT(error(3), HasSubstr("has 4 rows, wanted a multiple of 2 x 3 heads (attention.head_count"));
  EXPECT_THAT(error(1 << 21), HasSubstr("attention.head_count is 2097152, wanted 0 to 1048576"));
}

TEST(BadGguf, ACacheThatCannotBeWrittenHasARemedy) {
  const Environment cache("FETTLE_CACHE", "/proc/fettle");
  EXPECT_THAT(user_error([] { gguf_folder(kGgufFiles / "models/qwen3.gguf"); }),
              AllOf(HasSubstr("/proc/fettle/gguf"), HasSubstr("set FETTLE_CACHE to a folder")));
}

TEST(BadGguf, AMissingPartIsNamed) {
  const TempFolder folder;
  const std::string bytes =
      file({key("general.architecture", 8, text("llama")), key("llama.attention.head_count", 4, raw(4)),
            key("split.count", 2, raw<uint16_t>(2))},
           {});
  write_text(folder / "x-00001-of-00002.gguf", bytes);
  EXPECT_THAT(user_error([&] { open_gguf(folder / "x-00001-of-00002.gguf"); }),
              HasSubstr("x-00002-of-00002.gguf is missing"));
  write_text(folder / "x.gguf", bytes);
  EXPECT_THAT(user_error([&] { open_gguf(folder / "x.gguf"); }), HasSubstr("name the first one"));
}

}  // namespace
}  // namespace fettle
