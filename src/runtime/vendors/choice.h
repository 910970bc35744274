// Defines choose_plugin, which chooses a plugin when the user names none.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vendors/vendor.h"

namespace fettle {

// In all functions below, `root` is the folder with this machine's folders dev and sys; only tests give another one.

// Returns whether this machine seems to have a device for the vendor's plugin.
bool has_device(const Vendor& vendor, const std::filesystem::path& root = "/");

// Returns what the device files say about the driver and the device, for a remedy: "/dev/kfd exists, so there is a
// device". The vendor must have a device file.
std::string device_state(const Vendor& vendor, const std::filesystem::path& root = "/");

struct PluginChoice {
  std::filesystem::path plugin;           // empty when there is none
  std::vector<std::string_view> skipped;  // vendors with a device and a plugin, which cannot run
  // If the CPU's plugin is taken: vendors with a device, whose plugins are not installed.
  std::vector<std::string_view> absent = {};
};

// Returns the first vendor's plugin for which there is a device and which can run: all libraries load to which it is
// linked. If no plugin of a GPU can run, but a GPU has one, returns the first such plugin, whose error has the remedy.
// The CPU would be far too slow for most jobs that are meant for a GPU. Throws UserError like find_cache().
PluginChoice choose_plugin(const std::filesystem::path& root = "/");

// Returns what to tell the user about one of PluginChoice::absent, without a remedy.
std::string absence_text(std::string_view vendor);

}  // namespace fettle
