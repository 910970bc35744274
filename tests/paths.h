// Declares the paths of this checkout and of its program. CMake passes these paths only to paths.cpp. So ccache can use
// the objects of all other tests in checkouts in other folders, too.
#pragma once

#include <filesystem>

namespace fettle {

std::filesystem::path source_folder();  // the checkout
std::filesystem::path program_file();   // build/fettle

}  // namespace fettle
