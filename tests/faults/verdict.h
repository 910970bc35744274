// Decides what happens to a call, according to the settings of faults.cpp.
#pragma once

#include <string>

// Returns 0 when the call is made. Otherwise returns the error with which it fails, or one of the two constants below.
int verdict(const char* call, const std::string& path);

constexpr int kKill = -1;       // the process is killed before the call; verdict does not return
constexpr int kKillAfter = -2;  // the process must be killed after the call

// Returns whether FAULT_CALL contains this call. It is for calls that are too frequent to name their path.
bool is_chosen(const char* call);
