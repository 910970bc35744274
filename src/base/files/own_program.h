// Defines functions for the file of this program, and for the modules beside it: shared objects that the program loads
// when it needs them.
#pragma once

#include <filesystem>
#include <string>

namespace fettle {

// Returns the path of the file that this process runs; "" when /proc does not tell.
std::filesystem::path own_program();

// Returns the path of a module, such as "fettle_pmix.so": the file of this name in the program's folder.
std::filesystem::path module_file(const std::string& name);

// Loads a module and returns its symbol. The module stays loaded. Returns null, and sets `fault` to the reason, when
// the module cannot be loaded or lacks the symbol.
void* symbol_of_module(const std::string& name, const char* symbol, std::string& fault);

}  // namespace fettle
