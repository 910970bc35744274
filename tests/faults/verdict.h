// Declares verdict, which decides what happens to a call, according to the settings of faults.cpp.
#pragma once

#include <string>

// Returns 0 if the call is to be made. Otherwise returns the errno with which it fails, or one of the constants below.
int verdict(const char* call, const std::string& path);

constexpr int kKill = -1;       // the process is killed before the call; verdict does not return
constexpr int kKillAfter = -2;  // the process must be killed after the call
constexpr int kTermAfter = -3;  // the process must get SIGTERM after the call

// Returns whether FAULT_CALL contains this call. If it does not, the call never fails, so its path need not be found.
bool is_chosen(const char* call);
