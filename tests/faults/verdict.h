// What the settings of faults.cpp say about a call.
#pragma once

#include <string>

// Returns 0 when the call goes through, else the error it fails with, or one of the two below.
int verdict(const char* call, const std::string& path);

constexpr int kKill = -1;       // the process is killed before the call; verdict does not return
constexpr int kKillAfter = -2;  // the process is to be killed after the call

// Whether FAULT_CALL has this call, for calls that are too frequent to name their path.
bool is_chosen(const char* call);
