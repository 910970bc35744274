// Defines say_work, which says what a plan does now.
#pragma once

#include <string>

namespace fettle {

// Shows the text as the progress line or, when stderr is not a terminal, prints it. Call it before each compilation,
// which may take minutes.
void say_work(const std::string& text);

}  // namespace fettle
