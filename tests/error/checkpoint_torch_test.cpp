// Tests that broken or hostile PyTorch checkpoints are refused with a reason. Fettle executes nothing from them and
// needs little time and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/repository.h"
#include "checkpoint/torch/pickle.h"
#include "checkpoint/torch/torch_file.h"
#include "checkpoint/torch/zip.h"
#include "temp_folder.h"
#include "torch_files.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string pickle_error(const std::string& pickle) {
  return user_error([&] { read_torch_pickle(std::as_bytes(std::span(pickle)), "some/pytorch_model.bin"); });
}

std::string file_error(const std::string& bytes) {
  TempFolder folder;
  write_text(folder / "pytorch_model.bin", bytes);
  return user_error([&] { TorchFile::open(folder / "pytorch_model.bin"); });
}

std::string checkpoint(const std::string& pickle, const std::string& storage = floats({1, 2})) {
  return zip_of({{"x/data.pkl", pickle}, {"x/data/0", storage}});
}

std::string one_tensor(int64_t elements, int64_t offset, const std::vector<int64_t>& dims,
                       const std::vector<int64_t>& strides) {
  return Pickle().dict().raw("(").text("w").tensor("0", elements, offset, dims, strides).raw("u").stop();
}

// These calls would do harm if Fettle executed the pickle.
TEST(HostilePickle, CallsAreRefusedByName) {
  const std::string command = "touch /tmp/fettle-was-here";
  for (const auto& [module, name] : {std::pair<const char*, const char*>{"os", "system"},
                                     {"posix", "system"},
                                     {"builtins", "eval"},
                                     {"__builtin__", "exec"},
                                     {"subprocess", "Popen"},
                                     {"torch", "load"},
                                     {"torch.hub", "load"},
                                     {"collections", "OrderedDict.__class__"},
                                     {"torch._utils", "_rebuild_tensor_v2.__globals__"}}) {
    const std::string call = Pickle().global(module, name).raw("(").text(command).raw("tR").stop();
    EXPECT_THAT(pickle_error(call),
                AllOf(HasSubstr("some/pytorch_model.bin"), HasSubstr("'" + std::string(module) + "." + name + "'"),
                      HasSubstr("executes nothing")));
    const std::string by_stack = Pickle().text(module).text(name).raw("\x93(").text(command).raw("tR").stop();
    EXPECT_THAT(pickle_error(by_stack), HasSubstr("'" + std::string(module) + "." + name + "'"));
  }
  EXPECT_FALSE(std::filesystem::exists("/tmp/fettle-was-here"));
}

TEST(HostilePickle, InstructionsThatCheckpointsDoNotNeed) {
  // The instructions NEWOBJ, INST, OBJ, EXT1, NEXT_BUFFER, PERSID and protocol 0's INT are refused.
  for (const char* op : {"\x81", "i", "o", "\x82\x01", "\x97", "Pkey\n", "I01\n"})
    EXPECT_THAT(pickle_error(Pickle().global("collections", "OrderedDict").raw(")").raw(op).stop()),
                HasSubstr("is not needed for checkpoints"))
        << static_cast<int>(op[0]);
  // REDUCE calls a storage type.
  EXPECT_THAT(pickle_error(Pickle().global("torch", "FloatStorage").raw("(").number(1 << 30).raw("tR").stop()),
              HasSubstr("it calls 'torch.FloatStorage'"));
  // BUILD sets attributes. Its argument must be a dict, and so must the object.
  EXPECT_THAT(pickle_error(Pickle().global("collections", "OrderedDict").raw("}b").stop()),
              HasSubstr("it lacks a dict"));
  EXPECT_THAT(pickle_error(Pickle().dict().text("state").raw("b").stop()),
              HasSubstr("it has a text, but a dict is needed"));
  EXPECT_THAT(pickle_error(std::string("\x80\x07.", 3)), HasSubstr("its protocol is 7"));
}

TEST(HostilePickle, StackAndMemo) {
  EXPECT_THAT(pickle_error(""), HasSubstr("ends too early"));
  EXPECT_THAT(pickle_error("\x80"), HasSubstr("ends too early"));
  EXPECT_THAT(pickle_error(Pickle().raw("0").stop()), HasSubstr("from an empty stack"));
  EXPECT_THAT(pickle_error(Pickle().raw("t").stop()), HasSubstr("a mark that does not exist"));
  EXPECT_THAT(pickle_error(Pickle().raw("(0\x85").stop()), HasSubstr("from an empty stack"));
  EXPECT_THAT(pickle_error(Pickle().raw("(\x85").stop()), HasSubstr("from an empty stack"));
  EXPECT_THAT(pickle_error(Pickle().raw("h\x05").stop()), HasSubstr("it loads value 5, which it has not stored"));
  EXPECT_THAT(pickle_error(Pickle().raw("q\x01").stop()), HasSubstr("it stores a value from an empty stack"));
  EXPECT_THAT(pickle_error(Pickle().raw("}NNNu").stop()), HasSubstr("mark"));
  EXPECT_THAT(pickle_error(Pickle().raw("}(Nu").stop()), HasSubstr("has no value"));
  EXPECT_THAT(pickle_error(Pickle().raw("NNa").stop()), HasSubstr("it lacks a list that is needed"));
  EXPECT_THAT(pickle_error(Pickle().raw("NR").stop()), HasSubstr("it has a None, but a tuple is needed"));
  EXPECT_THAT(pickle_error(Pickle().raw(")Q").stop()), HasSubstr("an object that is not a storage"));
  EXPECT_THAT(pickle_error(Pickle().raw("\x8a\x09" + std::string(9, '\1')).stop()), HasSubstr("9 bytes"));
  EXPECT_THAT(pickle_error(Pickle().raw("X\xff\xff\xff\xff").stop()), HasSubstr("ends too early"));
  EXPECT_THAT(pickle_error(Pickle().raw("\x8d" + std::string(8, '\xff')).stop()), HasSubstr("ends too early"));
  EXPECT_THAT(pickle_error(Pickle().raw("c" + std::string(1 << 20, 'a')).stop()),
              HasSubstr("a name in it is too long"));
}

// Tests a dict that contains itself, a million nested tuples, tuples that double in size with each instruction, and
// very many values.
TEST(HostilePickle, BombsStaySmall) {
  EXPECT_THAT(pickle_error(Pickle().raw("}q\x01").text("me").raw("h\x01s").stop()), HasSubstr("'me' is a dict"));
  std::string deep;
  for (int i = 0; i < 1 << 20; ++i) deep += "\x85";
  EXPECT_THAT(pickle_error(Pickle().raw("N" + deep).stop()), HasSubstr("it contains a tuple, not a dict"));
  std::string doubling = ")";
  for (int i = 0; i < 200; ++i) doubling += "2\x86";
  EXPECT_THAT(pickle_error(Pickle().raw(doubling).stop()), HasSubstr("it contains a tuple, not a dict"));
  EXPECT_THAT(pickle_error(Pickle().raw(std::string(3 << 20, ']')).stop()), HasSubstr("more than 2097152 values"));
  EXPECT_THAT(pickle_error(Pickle().raw("N" + std::string(3 << 20, '\x94')).stop()),
              HasSubstr("stores more than 2097152"));
  // A call gets a tuple of 100,000 values as arguments.
  const std::string wide = "(" + std::string(100000, 'N') + "tq\x01";
  EXPECT_THAT(pickle_error(Pickle().global("torch", "Size").raw(wide + "R").stop()), HasSubstr("too many values"));
}

TEST(HostilePickle, ViewsOutsideOfTheirStorage) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::string outside = "does not fit into its storage";
  EXPECT_THAT(pickle_error(one_tensor(2, 0, {3}, {1})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 1, {2}, {1})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, -1, {2}, {1})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 3, {0}, {1})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 0, {-2}, {1})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 1, {2}, {-1})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 0, {kHuge, kHuge}, {0, 0})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 0, {3, 1}, {kHuge, kHuge})), HasSubstr(outside));
  EXPECT_THAT(pickle_error(one_tensor(2, 0, {1000}, {0})), HasSubstr(outside)) << "an expanded view";
  EXPECT_THAT(pickle_error(one_tensor(-1, 0, {0}, {1})), HasSubstr("-1 elements"));
  EXPECT_THAT(pickle_error(one_tensor(std::numeric_limits<int64_t>::max(), 0, {1}, {1})), HasSubstr("elements"));
  EXPECT_THAT(pickle_error(one_tensor(2, 0, {2}, {1, 1})), HasSubstr("different numbers of strides and dimensions"));
  EXPECT_THAT(pickle_error(one_tensor(2, 0, std::vector<int64_t>(17, 1), std::vector<int64_t>(17, 1))),
              HasSubstr("17 dimensions"));
}

TEST(HostilePickle, PicklesWithoutAStateDict) {
  EXPECT_THAT(pickle_error(Pickle().raw("N").stop()), HasSubstr("it contains a None, not a dict of tensors"));
  EXPECT_THAT(pickle_error(Pickle().raw("}(").text("epoch").number(3).raw("u").stop()),
              AllOf(HasSubstr("'epoch' is a int"), HasSubstr("state dict")));
  EXPECT_THAT(pickle_error(Pickle().raw("}(").text("model").dict().raw("u").stop()), HasSubstr("'model' is a dict"));
  EXPECT_THAT(pickle_error(Pickle().raw("}(N").tensor("0", 1, 0, {1}, {1}).raw("u").stop()),
              HasSubstr("it has a None, but a text is needed"));
  EXPECT_THAT(pickle_error(Pickle()
                               .raw("}(")
                               .text("w")
                               .tensor("0", 1, 0, {1}, {1})
                               .text("w")
                               .tensor("0", 1, 0, {1}, {1})
                               .raw("u")
                               .stop()),
              HasSubstr("'w' twice"));
  EXPECT_THAT(pickle_error(Pickle().raw("}(").text("w").tensor("0", 1, 0, {1}, {1}, "QInt8Storage").raw("u").stop()),
              HasSubstr("'torch.QInt8Storage'"));
}

TEST(TorchFileErrors, NotTheRightKindOfFile) {
  EXPECT_THAT(file_error(std::string("\x80\x02\x8a\x0al\xfc\x9c"
                                     "F\xf9 j\xa8P\x19.",
                                     15)),
              AllOf(HasSubstr("before 1.6"), HasSubstr("torch.save(torch.load(")));
  EXPECT_THAT(file_error("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(file_error("{}"), HasSubstr("is not a PyTorch checkpoint"));
  EXPECT_THAT(file_error(""), HasSubstr("is not a PyTorch checkpoint"));
  EXPECT_THAT(file_error(zip_of({{"x/other", ""}})), HasSubstr("has no data.pkl"));
  EXPECT_THAT(file_error(zip_of({{"x/constants.pkl", ""}})), HasSubstr("TorchScript"));
  EXPECT_THAT(file_error(zip_of({{"x/byteorder", "big"}})), HasSubstr("big-endian"));
}

TEST(TorchFileErrors, BrokenZip) {
  const std::string good = checkpoint(one_tensor(2, 0, {2}, {1}));
  EXPECT_EQ(file_error(good), "no error");
  for (size_t length = 4; length < good.size(); length += 7)
    EXPECT_THAT(file_error(good.substr(0, length)), HasSubstr("download it again")) << length;
  EXPECT_THAT(file_error(zip_of({{"x/data.pkl", ""}}, 8)), HasSubstr("its member 'x/data.pkl' is compressed"));
  // Changes each byte of the directory. The result must be a clear error or a consistent file.
  for (size_t at = good.size() - 140; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xff);
    file_error(bad);
  }
}

TEST(TorchFileErrors, MissingStorages) {
  EXPECT_THAT(file_error(checkpoint(one_tensor(2, 0, {2}, {1}), floats({1}))),
              AllOf(HasSubstr("'w'"), HasSubstr("data/0"), HasSubstr("is 4, wanted 8")));
  EXPECT_THAT(file_error(zip_of({{"x/data.pkl", one_tensor(2, 0, {2}, {1})}})), HasSubstr("missing"));
}

TEST(TorchFileErrors, Repository) {
  TempFolder folder;
  write_text(folder / "config.json", "{}");
  write_text(folder / "pytorch_model-00001-of-00002.bin", "");
  auto error = [&] { return user_error([&] { ModelRepository::open(folder.path()); }); };
  EXPECT_THAT(error(), HasSubstr("no pytorch_model.bin.index.json; download that file too"));
  write_text(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"w": "absent.bin"}})");
  EXPECT_THAT(error(), HasSubstr("the shard absent.bin is missing"));
  write_text(folder / "absent.bin", checkpoint(one_tensor(2, 0, {2}, {1})));
  EXPECT_EQ(error(), "no error");
  write_text(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"v": "absent.bin"}})");
  EXPECT_THAT(error(), HasSubstr("'v' should be in absent.bin, but that file does not have it"));
}

}  // namespace
}  // namespace fettle
