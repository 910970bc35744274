// Defines ProcessPlace: which process of a run this process is, as the launcher's environment variables state it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace fettle {

enum class Engine {
  kPmix,   // uses the launcher's PMIx server if there is one; otherwise works like kRedis
  kRedis,  // process 0 starts a Redis server at `address`
};

struct ProcessPlace {
  std::string launcher;       // "torchrun or PyTorchJob"
  std::string variable = "";  // "RANK": it is set, so the launcher has started this process
  Engine engine = Engine::kRedis;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // rank and number of processes on this host
  bool local_known = true;             // false: the launcher does not set local_*; Rendezvous finds their values
  std::string address;                 // where process 0 can be reached; Redis only
  int port = 0;                        // port of the store; Redis only
  std::string job;                     // the same text in all processes of a run; not a secret
};

// Returns the value of an environment variable; "" when it is not set.
using ReadVariable = std::function<std::string(const char* name)>;

// Returns the place that the first matching launcher gives. Returns nullopt when no launcher matches, or when the
// launcher started only one process. Then warns if SLURM's job has several nodes. If no launcher matches but
// JOB_COMPLETION_INDEX is set, warns that this pod trains alone. Reads no files and contacts no host. FETTLE_STORE_PORT
// overrides the port. Throws UserError, which names the variable, when a variable is missing or is not a number in its
// range.
std::optional<ProcessPlace> find_place(const ReadVariable& variable);

// Returns the first host of a list in SLURM's notation: "gpu[03-05,9],login" gives "gpu03".
std::string first_host(const std::string& list);

}  // namespace fettle
