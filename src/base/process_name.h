// Defines process_name: what this process calls itself in a folder that machines share. Unfinished files carry it.
#pragma once

#include <string>

namespace fettle {

// 16 hexadecimal digits, drawn at random; a forked process gets others. No two processes on any machines share them.
const std::string& process_name();
// Whether the text may be a name of some process, also of earlier versions.
bool is_process_name(const std::string& text);

}  // namespace fettle
