// Defines loose_as_json, which reads values in the syntax of Python and of Gemma 4.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Rewrites a value as JSON. `text` may mix JSON with the forms below. Copies all other text unchanged, so the result is
// JSON only if `text` has no other forms. The forms are:
// - strings in '...', "..." or <|"|>...<|"|>. A quote ends a string only before , : ) ] } or the end of the text.
// - keys without quotes, before : or =
// - True, False and None
// - f(x=1), which becomes {"name": "f", "arguments": {"x": 1}}
std::string loose_as_json(std::string_view text);

}  // namespace fettle
