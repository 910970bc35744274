// Tests how modules are found and loaded.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files/own_program.h"

namespace fettle {
namespace {

using testing::HasSubstr;

TEST(OwnProgram, ModulesAreBesideTheProgram) {
  EXPECT_EQ(own_program().filename(), "test_correct_base");
  EXPECT_EQ(module_file("one.so"), own_program().parent_path() / "one.so");
}

TEST(OwnProgram, AModuleThatIsMissingOrLacksASymbolIsNamed) {
  std::string fault;
  EXPECT_EQ(symbol_of_module("no_such_module.so", "getpid", fault), nullptr);
  EXPECT_THAT(fault, HasSubstr(module_file("no_such_module.so").string()));
  Dl_info libc{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getpid), &libc), 0);
  EXPECT_EQ(symbol_of_module(libc.dli_fname, "no_such_symbol", fault), nullptr);
  EXPECT_THAT(fault, HasSubstr("no_such_symbol"));
  EXPECT_NE(symbol_of_module(libc.dli_fname, "getpid", fault), nullptr);
}

}  // namespace
}  // namespace fettle
