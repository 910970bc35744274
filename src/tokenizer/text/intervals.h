// Defines regroup_intervals, for the quantifier {n,m}+, which engines read in two ways.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// How an engine reads a{1,3}+.
enum class IntervalPlus {
  kRepeats,     // (?:a{1,3})+, in Oniguruma
  kPossessive,  // (?>a{1,3}), in the engines of tiktoken and PCRE2
};

// Rewrites each {n,m}+ of a pattern so that all engines read it as `meaning` says.
std::string regroup_intervals(std::string_view pattern, IntervalPlus meaning);

}  // namespace fettle
